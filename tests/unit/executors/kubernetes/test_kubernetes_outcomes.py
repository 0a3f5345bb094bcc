"""How pods end when it was we who ended them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from jobyard.agent_protocol import records
from jobyard.agent_protocol.stop_request import StopRequest
from jobyard.executors.kubernetes.done import Done, Now
from jobyard.executors.kubernetes.outcomes import deleted_at, outcome_of
from jobyard.executors.protocol import LiveAttempt
from jobyard.model.job import Reason
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Outcome, Slot

NOON = datetime.fromisoformat("2026-01-01T12:00:00Z").timestamp()
DELETED = {"deletionTimestamp": "2026-01-01T12:00:35Z", "deletionGracePeriodSeconds": 30}


def ended_pod(code: int, finished: str = "2026-01-01T12:00:05Z") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "startedAt": "2026-01-01T11:00:00Z", "finishedAt": finished}}
    return {
        "metadata": {"name": "p", "uid": "u", **DELETED},
        "spec": {"containers": [{"name": "task"}]},
        "status": {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "task", "state": state}],
        },
    }


def outcome(code: int, request: StopRequest | None, directory: Path) -> Outcome:
    files = records.paths(str(directory), "j.0.1")
    return outcome_of(ended_pod(code), gone=False, at=NOON + 8, reducer=None, request=request, files=files)


def a_stop_request(signalled_at: float, at_once: bool = False) -> StopRequest:
    request = StopRequest(NOON - 60, 60, 0.0)
    request.signalled_at, request.at_once = signalled_at, at_once
    return request


@pytest.mark.parametrize("code", [143, 85, 1])
def test_a_pod_that_we_deleted_at_its_deadline_was_preempted(tmp_path: Path, code: int) -> None:
    assert outcome(code, a_stop_request(NOON + 5), tmp_path).reason is Reason.PREEMPTED


def test_a_pod_that_somebody_else_deleted_was_lost(tmp_path: Path) -> None:
    for request in (None, a_stop_request(0.0)):
        assert outcome(143, request, tmp_path).reason is Reason.NODE_LOST


def test_who_ends_well_within_the_second_of_our_signal_was_ended_by_it(tmp_path: Path) -> None:
    """The cluster tells of ends in whole seconds."""
    slot = Slot("1", "j", 0, Placement("k/n1", Resources()))
    yielding = LiveAttempt(AttemptId("j", 0, 1), slot, True, is_yielding=True, at_once=True)
    done = Done()
    done.signalled([yielding], Now(NOON + 5.4, 0.0))
    assert outcome(0, done.stop_requests[yielding.attempt], tmp_path).reason is Reason.PREEMPTED


def test_what_an_earlier_server_deleted_is_known_by_the_pod(tmp_path: Path) -> None:
    assert deleted_at(ended_pod(143)) == NOON + 5
    slot = Slot("1", "j", 0, Placement("k/n1", Resources()))
    yielding = LiveAttempt(AttemptId("j", 0, 1), slot, True, is_yielding=True)
    request = Done().stop_request_of(yielding, ended_pod(143), Now(NOON, 0.0))
    assert outcome(143, request, tmp_path).reason is Reason.PREEMPTED
