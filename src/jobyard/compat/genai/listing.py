"""Job list: which of a yard's jobs are listed? Those that have not ended, and for a while those that have.

A job that ended on a cluster is listed as long as its object exists: whoever deletes the object deletes the record,
for everybody. A deletion from here is written on the job in the yard, so that every process sees it at once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from jobyard.compat.genai.cluster import Left, NamespaceApi
from jobyard.errors import NotFound, UserError, YardError
from jobyard.model.job import Reason, State
from jobyard.wire.views import JobView

KEPT_SECONDS = 86400.0  # of a job on machines, and of one whose cluster cannot be asked
CLEARED_SECONDS = 3600.0  # of one whose object the yard itself may have cleared away at its end
SEEN_SECONDS = 15.0  # how long the answer of a cluster is reused
DELETED = "jobyard.dev/deleted"  # an annotation: the end of the job at which it was deleted
End = tuple[str, float | None]  # of a job that may run again: its id, and when it ended


class LeftObjects(NamedTuple):
    """Objects that clusters still have of jobs; and why that is not known, by cluster and kind."""

    left: list[Left]
    refused: dict[tuple[str, str], YardError]

    def refusals(self, job: JobView) -> list[YardError]:
        keys = [(job.cluster, kind) for kind in kinds_of(job)]
        return [self.refused[key] for key in keys if key in self.refused]


class Seen(NamedTuple):
    """A cached answer: for which jobs, and when (monotonic)."""

    answer: LeftObjects
    ends: frozenset[End]
    at: float


class Listing:
    """`cluster_of` finds a cluster by the yard's name of it; it raises NotFound where the yard has it no more.
    `annotate` writes on a job of the yard."""

    def __init__(
        self, cluster_of: Callable[[str], NamespaceApi], annotate: Callable[[str, dict[str, str]], object]
    ) -> None:
        self._cluster_of = cluster_of
        self._annotate = annotate
        self._gone: set[End] = set()  # jobs that are never listed again
        self._seen: Seen | None = None  # replaced as a whole: several threads look

    def listed(self, jobs: Iterable[JobView]) -> list[JobView]:
        known = [job for job in jobs if _end_of(job) not in self._gone and not is_deleted(job)]
        ended = [job for job in known if job.state.is_final]
        answer = self._recently_left([job for job in ended if kinds_of(job)])
        left = {each.job for each in answer.left}
        unseen = {job.id for job in ended if job.id not in left and answer.refusals(job)}
        now = time.time()
        gone = {job.id for job in ended if not is_listed(job, None if job.id in unseen else job.id in left, now)}
        self._gone |= {_end_of(job) for job in ended if job.id in gone - unseen}
        return [job for job in known if job.id not in gone]

    def clear(self, jobs: Iterable[JobView]) -> list[Left]:
        """Remove what is left of jobs that have ended; what that was. They are listed no more, by any process.

        Raises YardError, at the end, where something of one of them stays.
        """
        known = [job for job in jobs if _end_of(job) not in self._gone and not is_deleted(job)]
        answer = self._left_of_all(known)
        removed, problems = list[Left](), list[YardError]()
        for job in known:
            try:
                left = self._remove(job, answer)
                removed += left
                if left or is_listed(job, None, time.time()):  # otherwise no process lists it anyway
                    self._annotate(job.id, {DELETED: str(job.finished_at)})
            except YardError as error:
                problems.append(error)
            else:
                self._gone.add(_end_of(job))
        self._seen = None
        if problems:
            raise problems[0]
        return removed

    def _remove(self, job: JobView, answer: LeftObjects) -> list[Left]:
        """Where it may be of several kinds, a kind that we may not read is skipped."""
        refusals = answer.refusals(job)
        if refusals and (len(refusals) == len(kinds_of(job)) or not all(isinstance(e, UserError) for e in refusals)):
            raise refusals[0]
        left = [each for each in answer.left if each.job == job.id]
        for each in left:
            with suppress(NotFound):  # it is gone already
                self._cluster_of(job.cluster).delete(each.name, each.kind)
        return left

    def _recently_left(self, ended: Collection[JobView]) -> LeftObjects:
        """Asked again after a while, and when more jobs have ended; not for each request."""
        seen, now, ends = self._seen, time.monotonic(), frozenset(map(_end_of, ended))
        if seen and ends <= seen.ends and now - seen.at < SEEN_SECONDS:
            return seen.answer
        answer = self._left_of_all(ended)
        is_whole = all(isinstance(error, UserError) for error in answer.refused.values())
        self._seen = Seen(answer, ends, now) if is_whole else None  # an incomplete answer is not cached
        return answer

    def _left_of_all(self, ended: Iterable[JobView]) -> LeftObjects:
        """One question for each kind of each cluster."""
        asked: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for job in ended:
            for kind in kinds_of(job):
                asked[job.cluster][kind].add(job.id)
        answer = LeftObjects([], {})
        for cluster, kinds in asked.items():
            for kind, ids in kinds.items():
                try:
                    answer.left.extend(self._left_of(cluster, kind, ids))
                except UserError as error:  # we may not read that kind
                    answer.refused[cluster, kind] = error
                except YardError as error:  # a cluster that does not answer is not asked again for each kind
                    answer.refused.update({(cluster, each): error for each in kinds})
                    break
        return answer

    def _left_of(self, cluster: str, kind: str, jobs: Collection[str]) -> list[Left]:
        """Nothing where the yard has the cluster no more."""
        try:
            return self._cluster_of(cluster).left_of(kind, jobs)
        except NotFound:
            return []


def _end_of(job: JobView) -> End:
    return job.id, job.finished_at


def is_deleted(job: JobView) -> bool:
    """Was it deleted: is it being stopped for that, or annotated so? A job that ran again is listed."""
    is_leaving = job.state is State.STOPPING and job.reason is Reason.CANCELLED
    return is_leaving or (job.state.is_final and job.annotations.get(DELETED) == str(job.finished_at))


def is_listed(job: JobView, is_left: bool | None, now: float) -> bool:
    """Of a job that has ended. `is_left`: an object of it is in its cluster; None: that cannot be seen."""
    if job.state is State.CANCELLED:
        return False
    age = now - (job.finished_at or 0.0)
    if not job.cluster or is_left is None:
        return age < KEPT_SECONDS
    return is_left or (age < CLEARED_SECONDS and not leaves_its_object(job))


def leaves_its_object(job: JobView) -> bool:
    """Does its object certainly exist after its end? The yard deletes objects that could go on: workers that outlive
    the first, pods that Kubernetes would restart."""
    return job.state is State.SUCCEEDED and job.counts.total == 1


def kinds_of(job: JobView) -> tuple[str, ...]:
    """What its object may be; nothing where it leaves none."""
    if not job.cluster or job.state is State.CANCELLED:
        return ()
    if job.kind:
        return (job.kind,)
    return ("Job",) if job.counts.total == 1 else ("Job", "JobSet")
