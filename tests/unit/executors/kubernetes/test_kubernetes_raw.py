"""Objects of users are sent as they are, but for a name, labels, the wait for admission and how long they stay."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.executors.kubernetes.written import body, template, written

from jobyard.errors import UserError
from jobyard.executors.kubernetes.kinds import KINDS
from jobyard.executors.kubernetes.manifest import objects_of
from jobyard.executors.kubernetes.raw import templates_of
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.job import JobSpec
from jobyard.model.training import Size

OURS = {"jobyard.dev/yard": "y1", "jobyard.dev/job": "5e7a11ce", "jobyard.dev/attempt": "2"}


def sent(spec: JobSpec, size: Size | None = None, queue: str = "") -> dict[str, Any]:
    (made,) = objects_of(SubmittedJob("5e7a11ce", 7, spec), 2, "team", size, yard_id="y1", queue=queue)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_else_is_changed(kind: str) -> None:
    made = sent(written(kind, labels={"team": "a"}, annotations={"note": "x"}, finalizers=["a/b"]))
    assert KINDS[kind].is_waiting(made)
    name = made["metadata"].pop("name")
    assert name == "mine-5e7a11ce-a2"
    own = {"jobyard.dev/object": name} if kind == "Pod" else {}  # it is its own template
    assert made["metadata"].pop("labels") == {"team": "a", **OURS, **own}
    assert made["metadata"] == {"namespace": "team", "annotations": {"note": "x"}, "finalizers": ["a/b"]}
    if kind == "Pod":
        made["spec"].pop("schedulingGates")
        assert made["spec"] == body(kind)
        return
    for each in templates_of(made):
        assert each.pop("metadata") == {"labels": {**OURS, "jobyard.dev/object": name}}
    spec = made["spec"]
    if kind == "PyTorchJob":
        assert spec.pop("runPolicy") == {"suspend": True, "ttlSecondsAfterFinished": 604800}
    else:
        assert spec.pop("suspend") is True
    if kind in ("Job", "JobSet"):
        assert spec.pop("ttlSecondsAfterFinished") == 604800
    if kind == "RayJob":  # KubeRay's own default, written out
        assert spec.pop("submitterPodTemplate")["spec"]["containers"][0]["image"] == "x"
    assert spec == body(kind)


def test_labels_and_gates_that_are_there_stay() -> None:
    pod = template(command=["x"])["spec"] | {"schedulingGates": [{"name": "mine"}]}
    made = sent(written("Pod", pod, labels={"jobyard.dev/job": "forged"}))
    assert made["spec"]["schedulingGates"] == [{"name": "mine"}, {"name": "jobyard.dev/admission"}]
    assert made["metadata"]["labels"]["jobyard.dev/job"] == "5e7a11ce"


@pytest.mark.parametrize("seconds", [0, 60, 10**6])
def test_who_says_how_long_it_stays_is_not_overruled(seconds: int) -> None:
    for kind in ("Job", "JobSet"):
        made = sent(written(kind, body(kind) | {"ttlSecondsAfterFinished": seconds}))
        assert made["spec"]["ttlSecondsAfterFinished"] == seconds
    policy = {"cleanPodPolicy": "None", "ttlSecondsAfterFinished": seconds}
    made = sent(written("PyTorchJob", body("PyTorchJob") | {"runPolicy": policy}))
    assert made["spec"]["runPolicy"] == {**policy, "suspend": True}


def test_what_is_said_to_be_nothing_is_not_said() -> None:
    made = sent(written("PyTorchJob", body("PyTorchJob") | {"runPolicy": None}))
    assert made["spec"]["runPolicy"] == {"suspend": True, "ttlSecondsAfterFinished": 604800}
    made = sent(written("Job", body("Job") | {"ttlSecondsAfterFinished": None}))
    assert made["spec"]["ttlSecondsAfterFinished"] == 604800


def test_with_kueue_the_queue_is_named_and_the_gate_is_its_own() -> None:
    assert sent(written("Job"), queue="q")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert sent(written("Job"), queue="q")["spec"]["suspend"] is True
    assert "schedulingGates" not in sent(written("Pod"), queue="q")["spec"]


def test_a_name_is_cut_to_what_the_kind_allows() -> None:
    assert len(sent(written("RayJob", name="x" * 60))["metadata"]["name"]) == 47
    assert sent(written("Pod", name="a.b.c"))["metadata"]["name"] == "a-b-c-5e7a11ce-a2"


def test_another_namespace_is_refused_in_one_sentence() -> None:
    assert sent(written("Job", namespace="team"))["metadata"]["namespace"] == "team"
    with pytest.raises(UserError, match="is for the namespace 'theirs', and the yard works in 'team' of this cluster"):
        sent(written("Job", namespace="theirs"))
    (rendered,) = objects_of(SubmittedJob("5e7a11ce", 7, written("Job", namespace="theirs")), 1)
    assert rendered["metadata"]["namespace"] == "theirs"


def a_range(kind: str, **more: Any) -> JobSpec:
    resources = {"requests": {"nvidia.com/gpu": 2, "cpu": 1}, "limits": {"nvidia.com/gpu": 4}}
    made = template("pytorch", resources=resources, **more)
    inside = {
        "Pod": made["spec"],
        "Job": {"template": made},
        "PyTorchJob": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": made}}},
    }
    return written(kind, inside[kind], annotations={"replicas": "9", "note": "x"})


@pytest.mark.parametrize("kind", ["Pod", "Job", "PyTorchJob"])
def test_a_range_of_gpus_is_written_anew_for_each_size(kind: str) -> None:
    env = [{"name": "OTHER", "value": "2"}, {"name": "NGPU", "value": "2"}]
    words = ["accelerate", "launch", "--num_processes=2 --x=2"]
    spec = a_range(kind, env=env, command=words, args=["--num_processes=2", "--num-processes", "2"])
    for size, gpus in ((Size(1, 3), "3"), (None, "2")):
        made = sent(spec, size)
        (container,) = templates_of(made)[0]["spec"]["containers"]
        assert container["resources"]["requests"] == {"nvidia.com/gpu": gpus, "cpu": 1}
        assert container["resources"]["limits"] == {"nvidia.com/gpu": gpus}
        assert container["env"] == [{"name": "OTHER", "value": "2"}, {"name": "NGPU", "value": gpus}]
        assert container["command"][2] == f"--num_processes={gpus} --x=2"
        assert container["args"] == [f"--num_processes={gpus}", "--num-processes", gpus]
        annotations = made["metadata"]["annotations"]
        assert annotations == {"note": "x", "replicas": "1", "request": "2", "limit": "4"}


def test_what_is_not_there_is_not_added() -> None:
    made = sent(a_range("Pod"), Size(1, 4))
    assert "env" not in made["spec"]["containers"][0]
    assert "command" not in made["spec"]["containers"][0]


def test_only_the_container_with_the_range_changes() -> None:
    fixed = {"name": "fixed", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    ranged = {"requests": {"nvidia.com/gpu": 2}, "limits": {"nvidia.com/gpu": 4}}
    spec = written("Pod", {"containers": [fixed, {"name": "ranged", "image": "x", "resources": ranged}]})
    assert spec.elastic is not None
    assert (spec.elastic.gpus, spec.groups[0].resources.gpus) == ((3, 5), 3)
    first, second = sent(spec, Size(1, 4))["spec"]["containers"]
    assert first == fixed
    assert second["resources"]["limits"] == {"nvidia.com/gpu": "3"}


def test_the_manifest_in_the_journal_is_json() -> None:
    assert json.loads(written("Job").kubernetes.manifest)["kind"] == "Job"
