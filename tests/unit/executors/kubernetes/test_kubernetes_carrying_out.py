"""Plans are carried out step by step: what goes wrong with one stays with it, and late answers change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.executors.kubernetes.played_cluster import ends_told

from jobyard.executors.kubernetes import last_words
from jobyard.executors.kubernetes.carrying_out import CarryingOut
from jobyard.executors.kubernetes.held_job import HeldJob
from jobyard.executors.kubernetes.kinds import KINDS
from jobyard.executors.kubernetes.observed import Observed
from jobyard.executors.kubernetes.steps import Delete, End, Patch, Step
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import LiveAttempt
from jobyard.kubernetes.refusals import Refused
from jobyard.model.events import Event
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Slot

JOB = KINDS["Job"]
ATTEMPT = LiveAttempt(AttemptId("j", 0, 1), Slot("1", "j", 0, Placement("k/n1", Resources())), False)


class RefusingApi:
    namespace = "ns"

    def __init__(self) -> None:
        self.deleted: list[str] = []

    async def patch(self, path: str, body: object) -> object:
        raise Refused(422, "Invalid", "a webhook does not like it")

    async def delete(self, path: str) -> None:
        self.deleted.append(path.rpartition("/")[2])


def an_object(uid: str = "u1", version: str = "1", **status: Any) -> dict[str, Any]:
    metadata = {"name": "a", "uid": uid, "resourceVersion": version, "labels": {"jobyard.dev/attempt": "1"}}
    return {"metadata": metadata, "spec": {}, "status": status}


def held_job(directory: Path, looks: list[str] | None = None) -> HeldJob:
    return HeldJob("j", Mirror(directory), lambda events: None, (looks if looks is not None else []).append)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_step_that_is_refused_holds_up_no_other_and_is_told(tmp_path: Path, is_kept: bool) -> None:
    api, told = RefusingApi(), cast(list[Event], [])
    carrying = CarryingOut(told.extend, lambda job, seconds: None)
    steps: list[Step] = [Patch(JOB, "a", {}, is_kept), Delete(JOB, "b")]
    with pytest.raises(Refused, match="webhook"):
        await carrying.carry_out(cast(Any, api), held_job(tmp_path), steps)
    assert api.deleted == ["b"]


async def test_an_end_that_cannot_be_told_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("a pod that nobody understands")

    monkeypatch.setattr(last_words, "outcome_of", broken)
    looks: list[str] = []
    held = held_job(tmp_path, looks)
    pod = {"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [{"name": "task"}]}, "status": {}}
    held.last_words.begin(cast(Any, None), End(ATTEMPT, pod))
    await ends_told()
    assert looks == ["j"]
    assert ATTEMPT.attempt not in held.done.ending


def test_an_answer_that_comes_late_brings_nothing_back() -> None:
    observed = Observed()
    observed.object_changed(JOB, an_object(), True)
    observed.answered(JOB, an_object())
    assert observed.objects == {}
    # Another one of the same name is another one.
    observed.answered(JOB, an_object("u2"))
    observed.object_changed(JOB, an_object("u2", "12", active=1), False)
    observed.answered(JOB, an_object("u2", "9"))
    assert observed.objects["a"]["status"] == {"active": 1}


def test_an_object_without_pods_is_found_beside_an_older_one_that_had_some() -> None:
    observed = Observed()
    observed.object_changed(JOB, an_object(), False)
    pod = {"metadata": {"name": "p", "labels": {JOB.pods_label: "older"}}, "status": {"phase": "Failed"}}
    observed.pod_changed(pod, False)
    assert observed.without_pods() == ["a"]
