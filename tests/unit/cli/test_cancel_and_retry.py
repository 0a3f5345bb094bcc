"""Cancel, retry, wait and priority: which jobs and tasks are meant, and what is said of them?"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn, problem
from tests.unit.client.views import a_job_view

from jobyard.model.job import Reason, State
from jobyard.wire.views import (
    Counts,
    JobView,
)

ARRAY = a_job_view(State.RUNNING, counts=Counts(total=2, running=2))


def test_cancel_looks_all_jobs_up_before_it_stops_any(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view()))
    stand_in.on("GET /jobs/nojob", problem(404, "not_found", "no job 'nojob'"))
    stand_in.on("POST /cancel", Said(data=[a_job_view(State.STOPPING)]))
    assert yard("cancel", "j1", "nojob").code == 2
    assert stand_in.calls("POST /cancel") == []
    assert "job 1 (train) is stopping" in yard("cancel", "j1", "--force").out
    assert stand_in.calls("POST /cancel")[0].body == {"jobs": ["j1"], "force": True}


def test_cancel_of_what_has_ended_says_so_and_is_no_error(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.SUCCEEDED)))
    stand_in.on("POST /cancel", Said(data=[a_job_view(State.SUCCEEDED)]))
    result = yard("cancel", "j1")
    assert (result.code, result.out) == (0, "job 1 (train) had ended before (succeeded): nothing was cancelled\n")


def test_cancel_of_several_jobs_is_one_request_and_of_tasks_one_for_each_job(yard: Yard, stand_in: StandIn) -> None:
    views = [replace(a_job_view(), id=f"j{number}", number=number) for number in (1, 2, 3)]
    for view in views:
        stand_in.on(f"GET /jobs/{view.id}", Said(data=view))
    stand_in.on("POST /cancel", Said(data=[replace(view, state=State.CANCELLED) for view in views[:2]]))
    stand_in.on("POST /jobs/j3/cancel", Said(data=views[2]))
    result = yard("cancel", "j1", "j3/0", "j2", "--force")
    assert result.out.splitlines() == [
        "job 1 (train) was cancelled",
        "job 3 (train): stopping task 0",
        "job 2 (train) was cancelled",
    ]
    assert stand_in.calls("POST /cancel")[0].body == {"jobs": ["j1", "j2"], "force": True}
    assert stand_in.calls("POST /jobs/j3/cancel")[0].body == {"tasks": ["0"], "force": True}


def test_cancel_all_asks_for_every_job_that_has_not_ended(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs", Said(data=(a_job_view(),)))
    stand_in.on("POST /cancel", Said(data=[a_job_view(State.STOPPING)]))
    result = yard("cancel", "--all", "-o", "json")
    assert [job["id"] for job in json.loads(result.out)] == ["j1"]
    assert stand_in.calls("GET /jobs")[0].query == {"unfinished": "true"}


@pytest.mark.parametrize(("state", "code"), [(State.SUCCEEDED, 0), (State.FAILED, 1), (State.CANCELLED, 1)])
def test_wait_ends_with_the_job_and_its_exit_code(yard: Yard, stand_in: StandIn, state: State, code: int) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view()))
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", a_job_view(state))]))
    assert yard("wait", "j1", "--timeout", "5").code == code


def test_wait_gives_up_at_its_timeout(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view()))
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", a_job_view())]))
    result = yard("wait", "j1", "--timeout", "0.1")
    assert result.code == 124
    assert "has not ended after 0.1" in result.err


def test_retry_waits_for_a_job_that_still_stops(yard: Yard, stand_in: StandIn) -> None:
    stopping, stopped = a_job_view(State.STOPPING), a_job_view(State.CANCELLED)
    stand_in.on("GET /jobs/last", Said(data=stopping))
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", stopping), ("job", "2", stopped)]))
    stand_in.on("POST /jobs/j1/retry", Said(data=a_job_view(State.PENDING)))
    result = yard("retry", "last")
    assert (result.code, result.err) == (0, "yard: job 1 (train) still stops; it is tried again after that\n")
    asked = [asked.path for asked in stand_in.asked]
    assert asked.index("/jobs/j1/watch") < asked.index("/jobs/j1/retry")


def test_retry_does_not_wait_for_a_job_that_was_preempted(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.STOPPING, reason=Reason.PREEMPTED)))
    stand_in.on("POST /jobs/j1/retry", problem(400, "bad_request", "no failed task"))
    assert yard("retry", "j1").err == "yard: no failed task\n"


def test_cancel_takes_tasks_of_several_jobs(yard: Yard, stand_in: StandIn) -> None:
    for job in ("j1", "j2"):
        stand_in.on(f"GET /jobs/{job}", Said(data=a_job_view(State.RUNNING, id=job)))
    stand_in.on("POST /jobs/j1/cancel", Said(data=a_job_view(State.RUNNING, id="j1")))
    stand_in.on("POST /cancel", Said(data=[a_job_view(State.RUNNING, id=job) for job in ("j1", "j2")]))
    result = yard("cancel", "j1/3-7,9", "j2", "j1/12")
    assert (result.code, result.out.splitlines()) == (
        0,
        ["job 1 (train): stopping tasks 3-7, 9, 12", "job 2 (train) is running"],
    )
    assert stand_in.calls("POST /jobs/j1/cancel")[0].body == {"tasks": ["3-7", "9", "12"]}
    assert stand_in.calls("POST /cancel")[0].body == {"jobs": ["j2"]}
    assert yard("cancel", "j1/3").out == "job 1 (train): stopping task 3\n"
    assert yard("cancel", "j1", "--pending").out == "job 1 (train): stopping its tasks that wait\n"
    assert stand_in.calls("POST /cancel")[-1].body == {"jobs": ["j1"], "states": ["PENDING"]}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("j1", "j2", "--task", "3"), "--task: name exactly one job whose tasks are meant, or write JOB/TASKS as in"),
        (("j1/",), "has no task after the slash; write JOB/TASKS"),
        (("j1/3", "--checkpoint"), "--checkpoint: it is for whole jobs that you name; leave the tasks out"),
        (("j1", "--pending", "--checkpoint"), "leave --pending out"),
    ],
)
def test_tasks_that_cannot_be_meant_are_refused(
    words: tuple[str, ...], says: str, yard: Yard, stand_in: StandIn
) -> None:
    stand_in.on("GET /jobs/j1", Said(data=ARRAY))
    result = yard("cancel", *words)
    assert (result.code, result.out) == (2, "")
    assert says in result.err
    assert stand_in.calls("POST /jobs/j1/cancel") == []


def test_retry_takes_tasks_of_several_jobs_and_states(yard: Yard, stand_in: StandIn) -> None:
    for job in ("j1", "j2"):
        stand_in.on(f"GET /jobs/{job}", Said(data=a_job_view(State.FAILED, id=job)))
        stand_in.on(f"POST /jobs/{job}/retry", Said(data=a_job_view(State.PENDING, id=job)))
    assert yard("retry", "j1/3,5", "j2", "--failed", "-q").out == "1\n2\n"
    assert stand_in.calls("POST /jobs/j1/retry")[0].body == {"tasks": ["3", "5"], "states": ["FAILED"]}
    assert stand_in.calls("POST /jobs/j2/retry")[0].body == {"states": ["FAILED"]}
    assert "--follow: one job can be followed" in yard("retry", "j1", "j2", "-f").err


def test_retry_names_tasks_and_may_follow(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=ARRAY))
    stand_in.on("POST /jobs/j1/retry", Said(data=ARRAY))
    done: JobView = a_job_view(State.SUCCEEDED, counts=Counts(total=2, succeeded=2))
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", done)]))
    assert "tries again" in yard("retry", "j1", "--task", "0", "--task", "1").out
    assert stand_in.asked[-1].body == {"tasks": ["0", "1"]}
    assert yard("retry", "j1", "-f").code == 0


@pytest.mark.parametrize("number", [10, -5])
def test_priority_lets_a_job_go_earlier_or_later(yard: Yard, stand_in: StandIn, number: int) -> None:
    stand_in.on("POST /jobs/j1/priority", Said(data=a_job_view(priority=number)))
    assert yard("priority", "j1", str(number)).out == f"job 1 (train) has priority {number}\n"
    assert stand_in.calls("POST /jobs/j1/priority")[0].body == {"priority": number}
    assert json.loads(yard("priority", "j1", str(number), "-o", "json").out)["priority"] == number


def test_the_priority_of_a_job_that_has_ended_counts_if_it_is_retried(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /jobs/j1/priority", Said(data=a_job_view(State.FAILED, priority=1)))
    assert yard("priority", "j1", "1").out.endswith("; it failed, so this counts if it is retried\n")


@pytest.mark.parametrize("number", ["high", "1.5", "9" * 20, "--urgent"])
def test_a_priority_that_is_none_gets_one_sentence(yard: Yard, stand_in: StandIn, number: str) -> None:
    result = yard("priority", "j1", number)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(f"yard: priority: '{number}'")
    assert stand_in.calls("POST /jobs/j1/priority") == []
