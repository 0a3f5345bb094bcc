"""Run policy: how urgent is a job, how long may it take, and what follows when a task fails?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jobyard.backoff import Backoff
from jobyard.model.limits import Priority, Retries, Seconds, TaskCount, TaskLimit, Timeout

RETRY_BACKOFF = Backoff(1.0, 300.0)  # between attempts at one task, unless its job says otherwise


class FailurePolicy(StrEnum):
    """What one failed task does to its siblings."""

    CONTINUE = "continue"  # the default of arrays
    STOP = "stop"  # the default of gangs


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """Limits of a job and of each attempt."""

    priority: Priority = 0
    limit: TaskLimit | None = None  # at most so many tasks of the whole job at once (`%10`)
    timeout_seconds: Timeout | None = None  # of each attempt
    deadline_seconds: Timeout | None = None  # of the whole job, from its first start
    retries: Retries = 0
    retry_delay_seconds: Seconds | None = None  # before the first retry, and twice as long each time; 0: never
    max_fails: TaskCount | None = None  # one more failed task than this stops the job
    on_failure: FailurePolicy | None = None
    grace_seconds: Seconds = 10.0
    keep: bool = False  # it does not go by itself after its end
    overcommit: bool = False  # two cores more than there are, and GPU utilisation up to 120 %, as execute_batch allows
    enough_successes: TaskLimit | None = None  # once so many tasks have succeeded, the job has, without the others
    start_delay_seconds: Seconds = 0.0  # between the starts of two attempts of the job
    lets_running_end: bool = False  # what ends the job for these reasons starts no more, and stops nothing

    def retry_delay(self, failures: int) -> float:
        """Seconds before the next attempt, after so many failures before this one. By default the first retry is at
        once: what fails by chance loses no time."""
        first, longest = self.retry_delay_seconds, RETRY_BACKOFF.longest_seconds
        if first is not None:
            return Backoff(first, max(first, longest)).pause(failures)
        return RETRY_BACKOFF.pause(failures - 1) if failures else 0.0
