"""Views for tests: a test names only what matters to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobyard import settings
from jobyard.model.job import Command, GroupSpec, JobSpec, State
from jobyard.model.node import NodeState
from jobyard.wire.views import (
    AgentView,
    Counts,
    DeviceView,
    FailureView,
    JobView,
    LogChunk,
    NodeView,
    ServerView,
    TaskView,
)

SERVER_PID = 2**30  # more than any system gives: nobody has it

NODE = NodeView(
    id="here",
    executor="local",
    state=NodeState.UP,
    cpu_millis=4000,
    cpu_millis_reserved=1000,
    cpu_millis_foreign=0,
    memory_mib=16384,
    memory_mib_reserved=0,
    memory_mib_foreign=512,
    tasks=1,
    devices=(DeviceView(0, "H100", 81920, 1024, 0, fake=True),),
    holders=("yard of bob",),
)


def a_job_view(state: State = State.RUNNING, **changes: Any) -> JobView:
    done = {state.value.lower(): 1}
    if digits := "".join(filter(str.isdigit, changes.get("id", ""))):
        changes.setdefault("number", int(digits))  # job j2 is number 2
    view = JobView(
        id="j1",
        number=1,
        name="train",
        user="me",
        state=state,
        reason=None,
        message="",
        priority=0,
        submitted_at=1000.0,
        started_at=1001.0,
        finished_at=1003.5 if state.is_final else None,
        counts=Counts(total=1, **done),
        command="python train.py",
        workdir="/work",
        source="command",
        gang=False,
    )
    return replace(view, **changes)


def a_failure(label: str = "7", **changes: Any) -> FailureView:
    task = TaskView(number=7, label=label, state=State.FAILED, attempt=1, exit_code=3, node="here")
    return FailureView(replace(task, **changes), last_lines=("Traceback", "ValueError: no such file"))


def a_server_view(**changes: Any) -> ServerView:
    view = ServerView(
        pid=SERVER_PID,
        build=settings.build_id(),
        version="0.1.0",
        yard="/yard",
        yard_id="y1",
        listen="unix:/run/y.sock",
        started_at=1000.0,
        jobs_active=0,
        tasks_active=0,
        database="sqlite",
        agents=(AgentView(node="here", pid=4712, build="1", connected=True),),
    )
    return replace(view, **changes)


def a_spec() -> JobSpec:
    return JobSpec(name="train", groups=(GroupSpec(Command(argv=("true",))),), workdir="/")


def a_chunk(data: str, stream: str = "out", *, final: bool = False) -> LogChunk:
    return LogChunk("0", 1, stream, data, final)
