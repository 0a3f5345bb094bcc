"""Other words: what do other systems call our verbs? Who types one of them is told ours."""

from __future__ import annotations

_NEVER_PAUSED = "a job is not paused; `yard cancel --checkpoint JOB` stops one at its checkpoint and lets it wait again"
_GOES_BY_ITSELF = "jobs that have ended leave the list by themselves, and `yard cancel JOB` stops one that has not"
# GNU parallel, pueue, HyperQueue, SkyPilot, dstack, Slurm, PBS, kubectl and docker have these words.
_OURS = {
    "yard ls": "status ps list jobs job queue squeue qstat get top queues",
    "yard ls --all": "history sacct",
    "yard show JOB": "stat describe info inspect scontrol",
    "yard show --tasks JOB": "task tasks",
    "yard nodes": "sinfo node workers worker hosts machines",
    "yard run": "srun salloc start launch apply parallel execute",
    "yard submit": "sbatch qsub add push create enqueue spawn",
    "yard logs -f JOB": "log tail output attach follow",
    "yard cancel JOB": "kill scancel qdel stop abort terminate",
    "yard retry JOB": "restart rerun requeue resubmit resume unpause unsuspend",
    "yard why JOB": "sprio events explain",
    "yard exec JOB -- CMD": "ssh shell sattach",
    "yard fetch JOB": "cp scp sync rsync download pull",
    "yard doctor": "check health diagnose",
    "yard token": "login auth",
    "yard --version": "version",
}
_SENTENCES = dict.fromkeys(["pause", "suspend", "hold", "stash", "freeze"], _NEVER_PAUSED) | dict.fromkeys(
    ["clean", "rm", "remove", "delete", "prune", "forget"], _GOES_BY_ITSELF
)
OTHER_WORDS = {word: f"yard's word is `{ours}`" for ours, words in _OURS.items() for word in words.split()} | _SENTENCES
