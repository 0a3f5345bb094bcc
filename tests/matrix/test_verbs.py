"""Verbs that change a job, on each kind of executor: is refused what the table of verbs refuses, and nothing else?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.errors import UserError
from jobyard.model.executor_kinds import ExecutorKind
from jobyard.model.job import JobSpec
from jobyard.model.support import Verdict
from jobyard.model.training import Elastic
from jobyard.model.verb_support import VERBS
from jobyard.server.commands import cancel, retry
from jobyard.server.rounds import Command
from jobyard.server.training_commands import scale_job
from jobyard.wire.requests import CancelJob, RetryJob, ScaleJob
from tests.builders import submitted
from tests.matrix.examples import JOBS, within
from tests.matrix.test_submit import a_yard, as_submitted

JOB = "0000000b"
CELLS = {row.verb: row.cells for row in VERBS}


def a_yard_with(spec: JobSpec) -> YardState:
    state = a_yard()
    handle(state, submitted(JOB, 2, as_submitted(state, spec)))
    return state


def carry_out(state: YardState, command: Command[Any]) -> None:
    events, _ = command(state, 1.0)
    assert events
    for event in events:
        handle(state, event)


def cancel_task(kind: ExecutorKind) -> None:
    spec = JOBS[kind]
    carry_out(a_yard_with(spec), cancel(JOB, CancelJob(tasks=(spec.label_of(0),))))


def retry_task(kind: ExecutorKind) -> None:
    spec = JOBS[kind]
    state = a_yard_with(spec)
    carry_out(state, cancel(JOB, CancelJob()))
    assert state.jobs[JOB].is_final
    carry_out(state, retry(JOB, RetryJob(tasks=(spec.label_of(0),))))


def scale(kind: ExecutorKind) -> None:
    """Its GPUs, where a submit takes a range of them."""
    spec = JOBS[kind] if kind is ExecutorKind.RAYJOB else within(Elastic(gpus=(1, 2)))(JOBS[kind])
    carry_out(a_yard_with(spec), scale_job(JOB, ScaleJob(gpus=2)))


@pytest.mark.parametrize("kind", ExecutorKind)
@pytest.mark.parametrize(
    ("verb", "ask"), [("cancel --task", cancel_task), ("retry --task", retry_task), ("scale", scale)]
)
def test_a_verb_is_refused_where_the_table_says_so(
    verb: str, ask: Callable[[ExecutorKind], None], kind: ExecutorKind
) -> None:
    if CELLS[verb][kind].verdict is Verdict.REFUSED:
        with pytest.raises(UserError, match=r"gang|one size"):
            ask(kind)
    else:
        ask(kind)
