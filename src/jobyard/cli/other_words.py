"""Other words: what do other systems call our verbs? Who types one of them is told ours."""

from __future__ import annotations

_NEVER_PAUSED = (
    "a job cannot be paused: stop it with `yard cancel JOB` and run it again with `yard retry JOB`; "
    "a training that stops at checkpoints goes on from there after `yard cancel --checkpoint JOB`"
)
# GNU parallel, pueue, HyperQueue, SkyPilot, dstack, Slurm, PBS, kubectl and docker have these words.
_OURS = {
    "yard ls": "status ps list jobs job queue squeue qstat get queues",
    "yard ls --all": "history sacct",
    "yard show JOB": "stat describe info inspect scontrol",
    "yard show --tasks JOB": "task tasks",
    "yard nodes": "sinfo node workers worker hosts machines",
    "yard run": "srun salloc start launch apply parallel execute",
    "yard submit": "sbatch qsub add push create enqueue spawn",
    "yard attach JOB": "sattach watch",
    "yard logs -f JOB": "log tail output follow",
    "yard cancel JOB": "kill scancel qdel stop abort terminate",
    "yard retry JOB": "restart rerun requeue resubmit resume unpause unsuspend release qrls",
    "yard priority JOB N": "renice nice prioritize prioritise prio update edit alter modify qalter",
    "yard why JOB": "sprio events explain",
    "yard rm JOB": "remove delete forget",
    "yard gc": "cleanup prune purge",
    "yard exec JOB -- CMD": "ssh shell",
    "yard fetch JOB": "cp scp sync rsync download pull",
    "yard doctor": "check health diagnose",
    "yard token": "login auth",
    "yard --version": "version",
}
_NEVER_HELD = (
    "a job that waits is not held back: `yard cancel JOB` takes it out of the queue, `yard retry JOB` puts it back; "
    "`yard priority JOB -1000` lets all others go first"
)
OTHERS_VERBS = frozenset({"scontrol", "qmgr", "hq"})  # what these are told to do stands behind them, as `scontrol hold`
_SENTENCES = dict.fromkeys(["pause", "suspend", "freeze"], _NEVER_PAUSED) | {
    **dict.fromkeys(["hold", "uhold", "stash", "qhold"], _NEVER_HELD),
    "clean": "`yard rm --state ended` removes what has ended, and `yard gc` what is older, or more, than is kept",
}
OTHER_WORDS = {word: f"yard's word is `{ours}`" for ours, words in _OURS.items() for word in words.split()} | _SENTENCES
