"""Other flags: what do other systems call the flags of `yard run`? Who types one of them is told ours."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_NEAR = 0.75  # of difflib: below it a guess is as likely wrong
# Slurm, PBS, GNU parallel, pueue, HyperQueue, SkyPilot, Ray, docker and torchrun have these words.
_OURS = {
    "--timeout TIME (-t), for each attempt at a task": "--time --walltime --time-limit --time-request --max-time",
    "--name NAME (-n)": "--job-name -J --jobname --label --title",
    "--cpus N (-c), for each task": "--cpus-per-task --cores --ncpus --num-cpus --cpu --threads --procs",
    "--mem SIZE, for each task": "--memory --ram --vmem --mem-per-task",
    "--mem SIZE, for the whole task": "--mem-per-cpu --mem-per-gpu",
    "--gpus N (-G), for each task": "--gres --gpu --num-gpus --ngpus --gpus-per-task --gpus-per-node --accelerators",
    "--workers N for N tasks that know of each other, or --array 1-N (-a) for N that do not": (
        "--ntasks --nodes --num-nodes --nnodes --ntasks-per-node --np -np --nproc --replicas --num-workers"
    ),
    "--array RANGE (-a), as in 0-99": "--indices --index --array-range",
    "--after JOB, or --after afterany:JOB": "--dependency --depend --depends-on --depends --needs",
    "--workdir DIR (-w)": "--chdir -D --cwd --wd --working-directory --workdir-path",
    "--on NODE or --on LABEL; there are no partitions": "--partition --queue --constraint",
    "--on NODE,...; `yard nodes add` adds machines": "--nodelist --node --host --hosts --hostfile --sshlogin -S --slf",
    "--env NAME=VALUE (-e)": "--export --environment --var",
    "--image IMAGE": "--container-image --docker-image --docker",
    "--retries N": "--retry --max-retries --max-restarts --restarts --crash-limit --requeue",
    "--max-fails 0": "--fail-fast --failfast --abort-on-error",
    "--priority N (-p), where higher goes first": "--nice --qos --prio --importance",
    "--each-line FILE": "--arg-file --args-file --from-file --foreach",
    "--nul (-0), for values that end with NUL": "--null --print0 --zero",
    "--dry-run": "--dryrun --just-print --test-only --noop --dry",
    "--bar, which shows how far it is": "--progress --progressbar",
    "--detach (-d), or `yard submit`": "--background --bg --no-wait --detached --immediate",
    "-q, which prints only the number": "--parsable --print-task-id",
    "--whole-node": "--exclusive-node --one-task-per-node",
    "--preemptible, or nothing: what reports its checkpoints can be stopped at them": "--spot",
}
_SENTENCES = {
    "write :::+ before values that belong to those before it, row by row, as in ::: a b :::+ c d": "--link --xapply",
    "a task has one row of values: -N 10 takes ten for each, and `xargs` as many as fit": "-X -m --xargs --max-args",
    "there are no accounts; leave it out": "--account -A --project --reservation",
    "nothing here writes mail; `yard wait JOB; CMD` does something at its end": "--mail-type --mail-user --notify",
    "nothing starts at a time of day; use cron, or at(1), with `yard submit`": "--begin --delay-until",
    "a job cannot be held back; submit it later, or --after another one": "--hold -H --stashed",
    "`yard run` waits for the end; `yard submit` returns at once": "--wait --follow --watch --block",
    "write the command after --, as in: yard run -- 'make data | tee log'": "--wrap --command --cmd",
    "lines of several tasks are marked with their task; --cat prints them plain": "--tag --tagstring --group --ungroup",
}
OTHER_FLAGS = {flag: f"write {ours}" for ours, flags in _OURS.items() for flag in flags.split()}
OTHER_FLAGS |= {flag: sentence for sentence, flags in _SENTENCES.items() for flag in flags.split()}


def unknown_flag(flag: str, known: Iterable[str], path: str) -> str:
    """The sentence about a flag that `path`, as `yard run`, does not have."""
    if flag in OTHER_FLAGS:
        return f"no such option {flag}; {OTHER_FLAGS[flag]}"
    near = get_close_matches(flag, known, n=1, cutoff=_NEAR)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"no such option {flag}{meant}; what a script shall have goes after --, as in `{path} FILE -- {flag}`"
