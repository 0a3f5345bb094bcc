"""Played yard: what may an executor ask of a yard, where there is none? A `YardView` in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobyard.executors.protocol import JobFacts, LiveAttempt, SubmittedJob
from jobyard.model.job import JobSpec
from jobyard.model.task import AttemptId


class PlayedYard:
    """Jobs, and the attempts that are believed to be on its one node. Nothing is ever on its way to a disk here."""

    def __init__(self, node: str = "here", **jobs: JobSpec) -> None:
        self.node = node
        self.jobs = {name: SubmittedJob(name, number, spec) for number, (name, spec) in enumerate(jobs.items(), 1)}
        self.live: dict[AttemptId, LiveAttempt] = {}
        self.held: tuple[str, ...] = ()  # in quarantine
        self.errors: list[str] = []

    def believe(self, *attempts: LiveAttempt) -> None:
        self.live |= {item.attempt: item for item in attempts}

    def job(self, job_id: str) -> SubmittedJob:
        return self.jobs[job_id]

    def inherited_env(self, spec: JobSpec) -> Mapping[str, str]:
        return spec.submitter.inherited_env

    def live_attempts(self, node: str) -> Sequence[LiveAttempt]:
        return list(self.live.values()) if node == self.node else []

    def live_of(self, job_id: str) -> Sequence[LiveAttempt]:
        return [item for item in self.live.values() if item.attempt.job == job_id]

    def node_of(self, attempt: AttemptId) -> str | None:
        return self.node if attempt in self.live else ""

    def facts(self, job_id: str) -> JobFacts:
        return JobFacts(is_over=False)

    def nodes_of(self, cluster: str) -> Sequence[str]:
        return ()

    def quarantined_jobs(self) -> Sequence[str]:
        return self.held

    def is_ended(self, job_id: str, task: int) -> bool:
        return False

    def resumes_at(self, attempt: AttemptId, node: str) -> int | None:
        return None

    def gang_addresses(self, job_id: str) -> Sequence[str]:
        return ()

    @property
    def is_busy(self) -> bool:
        return bool(self.live)

    async def journalled(self) -> None: ...

    def count_error(self, what: str, sentence: str, error: Exception | None = None) -> None:
        self.errors.append(sentence)
