"""A cluster without Kubernetes: nodes `<cluster>/a` and `<cluster>/b`, pods on a fake machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from jobyard.errors import UserError
from jobyard.executors.fake import FakeExecutor, FakeMachine
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import AgentStatus, SubmittedJob, YardView
from jobyard.model.events import AttemptsStarted, Event
from jobyard.model.node import ClusterConfig, Device, Node


class FakeCluster(FakeExecutor):
    name = "kubernetes"
    machine: ClassVar[FakeMachine | None] = None  # set: it outlives the executor
    refusal: ClassVar[str] = ""
    problem: ClassVar[str] = ""

    def __init__(self, config: ClusterConfig, yard: YardView, yard_id: str, mirror: Mirror) -> None:
        machine = self.machine or FakeMachine(Path(mirror.directory) / "fake", cpus=4)
        super().__init__(config.id, machine, yard)
        self.checked: list[SubmittedJob] = []

    def _nodes(self) -> list[Node]:
        gpus = (Device(0, "H100", 1024), Device(1, "H100", 1024))
        return [Node(f"{self.node}/{name}", self.name, 2000, 8192, gpus) for name in ("a", "b")]

    async def run(self) -> None:
        if not self.problem:
            await super().run()

    async def check(self, job: SubmittedJob) -> None:
        self.checked.append(job)
        if self.refusal:
            raise UserError(self.refusal)

    async def observations(self) -> AsyncIterator[Sequence[Event]]:
        async for events in super().observations():
            yield [_with_pods(event) for event in events]

    def status(self) -> AgentStatus:
        told = replace(super().status(), address="https://fake:6443")
        return replace(told, problem=self.problem if not told.is_connected else "")


def _with_pods(event: Event) -> Event:
    if isinstance(event, AttemptsStarted):
        items: Any = (item._replace(unit=f"pod-{item.attempt.task}-{item.attempt.number}") for item in event.items)
        return replace(event, items=tuple(items))
    return event
