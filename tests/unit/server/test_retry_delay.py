"""What people see of a task that waits after a failure, and that `yard retry` does not let it wait."""

from __future__ import annotations

import time

import pytest

from jobyard.errors import UserError
from jobyard.model.events import JobSubmitted
from jobyard.model.job import Reason
from jobyard.server.commands import retry
from jobyard.server.views import AGAIN, job_view, task_view
from jobyard.server.why_view import why_view
from jobyard.wire.requests import RetryJob
from tests.builders import a_job, a_node
from tests.unit.engine.driving import Yard


def a_failed(tasks: int = 1, *, ended: int = 1, gang: bool = False) -> tuple[Yard, str]:
    """A job of which some tasks have just failed, and may be tried again in five minutes."""
    yard = Yard(a_node(cpus=4))
    yard.now = time.time()
    spec = a_job(tasks, gang=gang, retries=2, limit=2, retry_delay_seconds=300.0)
    yard.apply(JobSubmitted("j", 1, spec, yard.now))
    job = yard.state.jobs["j"]
    yard.start(*yard.active(job))
    yard.finish(*yard.active(job)[:ended], exit_code=3)
    return yard, "j"


def test_why_and_the_reason_say_when_the_next_attempt_starts() -> None:
    yard, name = a_failed()
    view = why_view(yard.planner, yard.state.jobs[name])
    sentence, when = view.sentences
    assert view.reason is job_view(yard.planner, yard.state.jobs[name]).reason is Reason.RETRY_DELAY
    assert sentence == "attempt 1 failed: exited with code 3; it waits to be tried again"
    assert when in ("the next attempt starts in 5m00s", "the next attempt starts in 4m59s")


def test_what_followers_hear_does_not_change_while_a_task_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    yard, name = a_failed()
    before = job_view(yard.planner, yard.state.jobs[name])
    monkeypatch.setattr(time, "time", lambda: yard.now + 100)
    assert job_view(yard.planner, yard.state.jobs[name]) == before
    assert why_view(yard.planner, yard.state.jobs[name]).sentences[-1] == "the next attempt starts in 3m20s"


def test_a_job_that_still_runs_says_what_the_rest_waits_for() -> None:
    yard, name = a_failed(3, ended=2)
    view = why_view(yard.planner, yard.state.jobs[name])
    assert view.sentences[0] == "0 of 3 tasks run and 2 wait"
    assert view.sentences[1] == "2 failed tasks wait to be tried again"
    assert view.sentences[2].startswith("the next attempt starts in ")
    assert view.reason is Reason.RETRY_DELAY


def test_a_gang_says_that_one_of_its_tasks_failed() -> None:
    yard, name = a_failed(2, ended=2, gang=True)
    assert why_view(yard.planner, yard.state.jobs[name]).sentences[0] == f"one of its tasks failed; {AGAIN}"


def test_each_task_says_whether_it_waits_after_a_failure() -> None:
    yard, name = a_failed(3)
    job = yard.state.jobs[name]
    views = [task_view(job, job.task(number)) for number in range(3)]
    assert [view.reason for view in views] == [Reason.RETRY_DELAY, None, None]
    assert views[0].message == f"attempt 1 failed: exited with code 3; {AGAIN}"


@pytest.mark.parametrize("asked", [RetryJob(), RetryJob(tasks=("0",))])
def test_yard_retry_takes_a_task_that_waits(asked: RetryJob) -> None:
    yard, name = a_failed()
    events, _ = retry(name, asked)(yard.state, yard.now)
    yard.apply(*events)
    assert [attempt.number for attempt in yard.active(yard.state.jobs[name])] == [2]


def test_yard_retry_takes_a_gang_that_waits_and_not_one_that_runs() -> None:
    yard, name = a_failed(2, ended=2, gang=True)
    yard.apply(*retry(name, RetryJob())(yard.state, yard.now)[0])
    assert [attempt.number for attempt in yard.active(yard.state.jobs[name])] == [2, 2]
    with pytest.raises(UserError, match="no failed or cancelled task"):
        retry(name, RetryJob())(yard.state, yard.now)
