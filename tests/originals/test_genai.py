"""IBM's genai-workload-manager: calls of its scripts and its Notifier, in their order, and what they are answered."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from jobyard.compat.genai.app import make_app
from jobyard.compat.genai.foreign import resized
from tests.originals.facts import genai
from tests.unit.compat.genai_world import TOKEN, FakeCluster, FakeYard, a_pytorchjob, a_service, an_object, answer_of

FACTS = genai()
KEY = "requests.nvidia.com/gpu"
QUOTA = {"metadata": {"name": "gpus"}, "status": {"hard": {KEY: "8"}, "used": {KEY: "2"}}}
Step = dict[str, Any]


class Stage:
    """A yard, a cluster with a quota, and what happens there without us."""

    def __init__(self) -> None:
        self.yard = FakeYard()
        self.yard.free = {"node-1": (8, 6)}
        self.cluster = FakeCluster(Quota=[QUOTA])
        self.app = make_app(lambda: a_service(self.yard, self.cluster), TOKEN)

    def happens(self, step: Step) -> None:
        name, gpus = step.get("job", ""), step.get("gpus", 0)
        match step["happens"]:
            case "made":
                low, high = map(str, step["range"])
                said = {"replicas": "1", "request": low, "limit": high}
                made_at = datetime.fromtimestamp(step["at"], UTC).isoformat()
                job = a_pytorchjob(name, gpus, annotations=said, creationTimestamp=made_at)
                self.cluster.objects["PyTorchJob", name] = job
            case "runs" | "succeeds" as verb:
                condition = {"runs": "Running", "succeeds": "Succeeded"}[verb]
                self._job(name)["status"] = {"conditions": [{"type": condition, "status": "True"}]}
            case "sized":
                spec = resized(self._job(name), gpus)["spec"]
                self._job(name)["spec"] = spec
            case "deleted":
                del self.cluster.objects["PyTorchJob", name]
            case "deployed":  # by our command of that name
                self.yard.put(name, gpus, tuple(step["range"]), node="node-1")
            case "ends":
                ended = next(each for each in self.yard.list if each.name == name)
                self.yard.end(ended)
                self.cluster.objects["Pod", name] = an_object(ended)
            case "full":
                self.yard.free = {"node-1": (8, 0)}
            case other:
                raise AssertionError(f"nobody knows what {other!r} is")

    def _job(self, name: str) -> dict[str, Any]:
        return self.cluster.objects["PyTorchJob", name]


async def play(stage: Stage, steps: list[Step]) -> int:
    """How many answers were right. Raises AssertionError with the first that is not."""
    count = 0
    async with stage.app.router.lifespan_context(stage.app):
        for step in steps:
            if "happens" in step:
                stage.happens(step)
                continue
            method, path = step["call"].split()
            status, body = await answer_of(stage.app, method, path, step.get("body"))
            check(stage, step, status, body)
            count += 1
    return count


def check(stage: Stage, step: Step, status: int, body: Any) -> None:
    theirs, ours = step["answer"], step.get("ours", {})
    where = f"{step['by']}: {step['call']} {step.get('body')}: {status} {body}"
    assert status == ours.get("status", theirs["status"]), where
    assert body == theirs.get("body", body), where
    assert list(body) == theirs.get("keys", list(body)), where
    if "job" in body:
        assert list(body["job"]) == FACTS["record"], where
    wanted = {**theirs.get("job", {}), **ours.get("job", {})}
    assert {key: body["job"][key] for key in wanted} == wanted, where
    if "names" in theirs:
        assert [each["job_name"] for each in body] == theirs["names"], where
    if "grows" in theirs:
        names = {job.id: job.name for job in stage.yard.list}
        assert {names[job]: gpus for job, gpus in stage.yard.scaled} == theirs["grows"], where


@pytest.mark.parametrize("title", FACTS["conversations"])
def test_a_conversation_of_the_originals_programs_goes_on_as_there(title: str) -> None:
    steps = FACTS["conversations"][title]
    assert asyncio.run(play(Stage(), steps)) == sum("call" in step for step in steps)
