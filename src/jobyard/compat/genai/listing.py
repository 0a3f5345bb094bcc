"""Which of a yard's jobs are listed? Those that have not ended, and for a while those that have.

Of a job that has ended on a cluster the record is there as long as its object is: whoever deletes that deletes the
record, for everybody. Nothing is written down beside it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from jobyard.compat.genai.cluster import Cluster, Left
from jobyard.errors import NotFound, UserError, YardError
from jobyard.model.job import State
from jobyard.wire.views import JobView

KEPT_SECONDS = 86400.0  # of a job on machines; so long Kubernetes keeps the objects of those on a cluster
CLEARED_SECONDS = 3600.0  # of one whose object the yard itself may have cleared away at its end


class Listing:
    """`cluster_of` finds a cluster by the yard's name of it; it raises NotFound where the yard has it no more."""

    def __init__(self, cluster_of: Callable[[str], Cluster]) -> None:
        self._cluster_of = cluster_of
        self._gone: set[tuple[str, float | None]] = set()  # jobs, by their ends, that are listed never again

    def listed(self, jobs: Iterable[JobView]) -> list[JobView]:
        known = [job for job in jobs if (job.id, job.finished_at) not in self._gone]
        ended = [job for job in known if job.state.is_final]
        left, unseen = self._left_of_all(ended)
        now = time.time()
        gone = {job.id for job in ended if not is_listed(job, None if job.id in unseen else job.id in left, now)}
        self._gone |= {(job.id, job.finished_at) for job in ended if job.id in gone - unseen}
        return [job for job in known if job.id not in gone]

    def clear(self, jobs: Iterable[JobView]) -> list[Left]:
        """Remove what is left of jobs that have ended; what that was. Here they are listed no more in any case."""
        removed = []
        for job in jobs:
            for left in [each for kind in kinds_of(job) for each in self._left_of(job.cluster, kind, [job.id])]:
                with suppress(NotFound):  # somebody else was faster
                    self._cluster_of(job.cluster).delete(left.name, left.kind)
                removed.append(left)
            self._gone.add((job.id, job.finished_at))
        return removed

    def _left_of_all(self, ended: Iterable[JobView]) -> tuple[set[str], set[str]]:
        """Those of which an object is in a cluster; those of which that cannot be seen now."""
        asked: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for job in ended:
            for kind in kinds_of(job):
                asked[job.cluster][kind].add(job.id)
        left, unseen = set[str](), set[str]()
        for cluster, kinds in asked.items():
            for kind, ids in kinds.items():
                try:
                    left |= {each.job for each in self._left_of(cluster, kind, ids)}
                except UserError:  # we may not look at those
                    unseen |= ids
                except YardError:  # who does not answer is not asked again for each kind
                    unseen.update(*kinds.values())
                    break
        return left, unseen - left

    def _left_of(self, cluster: str, kind: str, jobs: Collection[str]) -> list[Left]:
        """Nothing where the yard has the cluster no more."""
        try:
            return self._cluster_of(cluster).left_of(kind, jobs)
        except NotFound:
            return []


def is_listed(job: JobView, is_left: bool | None, now: float) -> bool:
    """Of a job that has ended. `is_left`: an object of it is in its cluster; None: that cannot be seen."""
    if job.state is State.CANCELLED:
        return False
    age = now - (job.finished_at or 0.0)
    if not job.cluster or is_left is None:
        return age < KEPT_SECONDS
    return is_left or (age < CLEARED_SECONDS and not leaves_its_object(job))


def leaves_its_object(job: JobView) -> bool:
    """Is it sure that its end left the object where it was? The yard clears away what might go on: workers that outlive
    the first, pods that Kubernetes would begin again."""
    return job.state is State.SUCCEEDED and job.counts.total == 1


def kinds_of(job: JobView) -> tuple[str, ...]:
    """What its object may be; nothing where it leaves none."""
    if not job.cluster or job.state is State.CANCELLED:
        return ()
    if job.kind:
        return (job.kind,)
    return ("Job",) if job.counts.total == 1 else ("Job", "JobSet")
