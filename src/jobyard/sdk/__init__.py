"""SDK for training scripts: how far is the job, where does it save, and must it stop (preemption)?

    from jobyard.sdk import yard_job

    job = yard_job()
    for epoch in job.epochs(10):
        for batch in data:
            ...
            job.step(loss=loss)
        torch.save(state, job.checkpoint_dir / "state.pt")
        job.saved()

Belongs here: what runs in the user's process. It may use nothing but the standard library, runs on Python 3.8, knows
nothing of the rest of Jobyard, and never makes training fail: without a yard around it, it does nothing at all.
`lightning`, `keras` and `huggingface` are callbacks; each imports its framework, and nothing here imports them.
"""

from __future__ import annotations

import os

from jobyard.agent_protocol.exit_codes import PREEMPTED_EXIT_CODE
from jobyard.sdk.job import YardJob, job_from_environment

__all__ = ["PREEMPTED_EXIT_CODE", "YardJob", "yard_job"]

_job: YardJob | None = None
_pid = 0


def yard_job(*, tells_saves: bool = False) -> YardJob:
    """The job of this process, the same one at each call; a forked process that asks has one of its own.

    `tells_saves` says from the start that `saved()` will be called: needed only by scripts that do not save after every
    epoch, so that the epochs before the first `saved()` are not taken for saved.
    """
    global _job, _pid
    if _job is None or _pid != os.getpid():
        _job, _pid = job_from_environment(), os.getpid()
    if tells_saves:
        _job.tell_saves()
    return _job
