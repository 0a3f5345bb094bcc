"""YardView: what may executors ask of the yard? Answers from the state, at any time: the loop's half of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from jobyard.engine.job_record import JobRecord
from jobyard.engine.training import resumes_at, tells_of_checkpoints, yield_seconds
from jobyard.engine.yard_state import YardState
from jobyard.errors import Rejected
from jobyard.executors.protocol import Executor, JobFacts, LiveAttempt, SubmittedJob
from jobyard.model.job import JobSpec, State
from jobyard.model.node import NodeState, place_of
from jobyard.model.task import AttemptId, Slot, Task
from jobyard.server.environments import Environments
from jobyard.server.error_counts import ErrorCounts


class StateView(ABC):
    """Reads `state` and `executors`, which its subclass has."""

    state: YardState

    def __init__(self) -> None:
        self.error_counts = ErrorCounts()
        self.environments: Environments | None = None

    @property
    @abstractmethod
    def executors(self) -> Sequence[Executor]: ...

    @property
    def is_busy(self) -> bool:
        return bool(self.state.unfinished)

    def count_error(self, what: str, sentence: str, error: Exception | None = None) -> None:
        self.error_counts.note(what, sentence, error)

    def job(self, job_id: str) -> SubmittedJob:
        record = self.state.jobs[job_id]
        return SubmittedJob(record.id, record.number, record.spec)

    def inherited_env(self, spec: JobSpec) -> Mapping[str, str]:
        if not spec.submitter.environment:
            return {}
        if self.environments is None:
            raise Rejected("this server keeps no environments")
        return self.environments.read(spec.submitter.environment)

    def live_attempts(self, node: str) -> Sequence[LiveAttempt]:
        return [
            self._live(job, task, record.slot)
            for job, record in self.state.slots.values()
            if node in (record.slot.placement.node, place_of(record.slot.placement.node))
            for number in sorted(record.tasks)
            for task in (job.tasks.known[number],)
        ]

    def _live(self, job: JobRecord, task: Task, slot: Slot) -> LiveAttempt:
        attempt = AttemptId(job.id, task.number, task.attempt)
        live = LiveAttempt(
            attempt, slot, task.state is State.STOPPING, pod=task.unit, is_running=task.started_at is not None
        )
        if not task.is_yielding:
            return live
        seconds = yield_seconds(job, self.state.trainings.profile_of(job))
        at_once = not tells_of_checkpoints(job, task.number)
        return live._replace(is_yielding=True, yield_seconds=seconds, at_once=at_once)

    def live_of(self, job_id: str) -> Sequence[LiveAttempt]:
        job = self.state.jobs.get(job_id)
        slots = job.slots.values() if job else ()
        found = [self._live(job, job.task(number), record.slot) for record in slots for number in record.tasks if job]
        return sorted(found, key=lambda live: live.attempt)

    def node_of(self, attempt: AttemptId) -> str | None:
        job = self.state.jobs.get(attempt.job)
        if job is None or not (0 <= attempt.task < job.spec.size or job.spec.elastic):
            return None
        task = job.tasks.known.get(attempt.task)
        if task is None or not task.state.is_active or attempt.number < task.attempt:
            return ""
        return task.node if attempt.number == task.attempt else None

    def facts(self, job_id: str) -> JobFacts:
        job = self.state.jobs.get(job_id)
        if job is None or job.is_final:
            return JobFacts(is_over=True, is_stopping=job is None or job.stop is not None)
        latest = job.task(0).attempt
        waiting, is_quarantined = job.tasks.counts[State.PENDING], job_id in self.state.quarantined
        return JobFacts(
            False, job.stop is not None, job.tasks.are_fresh, len(job.slots), waiting, latest, is_quarantined
        )

    def nodes_of(self, cluster: str) -> Sequence[str]:
        nodes = self.state.places.nodes_of(cluster)
        return [node.id for node in nodes if node.state is not NodeState.DOWN]

    def quarantined_jobs(self) -> Sequence[str]:
        return list(self.state.quarantined)

    def is_ended(self, job_id: str, task: int) -> bool:
        job = self.state.jobs.get(job_id)
        return job is None or job.task(task).state.is_final

    def resumes_at(self, attempt: AttemptId, node: str) -> int | None:
        job = self.state.jobs.get(attempt.job)  # None: a dry run
        return resumes_at(job, attempt.task, node) if job else None

    def gang_addresses(self, job_id: str) -> Sequence[str]:
        job = self.state.jobs.get(job_id)  # None: a dry run
        nodes = [job.task(rank).node for rank in range(job.spec.size)] if job else []
        if len(set(nodes)) < 2:
            return ()
        status = {each.node: each for each in (executor.status() for executor in self.executors)}
        seen = [each for node in dict.fromkeys(nodes) if (each := status.get(node))]
        ours = next((each.sees_us_as for each in seen if each.sees_us_as), "")
        return [(status[node].address if node in status else "") or ours for node in nodes]
