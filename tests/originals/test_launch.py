"""Astera's launch: its command lines, word for word but for a flag's name, and the objects that come of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.originals.facts import launch
from tests.yards import TemporaryYard

pytestmark = pytest.mark.slow

FACTS = launch()
GPU = "nvidia.com/gpu"
Object = dict[str, Any]


@pytest.fixture(scope="module")
def lab() -> Iterator[TemporaryYard]:
    """It has no cluster, and needs none: nothing is submitted, and nothing built."""
    with TemporaryYard() as yard:
        yield yard


def translated(words: str) -> list[str]:
    return [FACTS["flags"].get(word, word) for word in shlex.split(words)]


def pods_of(made: Object) -> tuple[Object | None, Object]:
    """The pod of the head, and that of a worker."""
    if made["kind"] == "Job":
        return None, made["spec"]["template"]["spec"]
    cluster = made["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    return cluster["headGroupSpec"]["template"]["spec"], workers["template"]["spec"]


def only(pod: Object) -> Object:
    (container,) = pod["containers"]
    found: Object = container
    return found


def gpus_of(pod: Object) -> int:
    return int(only(pod)["resources"].get("limits", {}).get(GPU, 0))


def affinity_of(pod: Object) -> list[Object]:
    needed = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = pod.get("affinity", {}).get("nodeAffinity", {}).get(needed, {}).get("nodeSelectorTerms", [])
    return [each for term in terms for each in term["matchExpressions"]]


@pytest.mark.parametrize("fact", FACTS["command_lines"], ids=lambda fact: fact["words"])
def test_a_command_line_of_launch_makes_the_same_objects(lab: TemporaryYard, fact: Object) -> None:
    rendered = lab.ok("submit", "--build", "--render", *translated(fact["words"])).out
    made, *rest = yaml.safe_load_all(rendered)
    assert (made["kind"], rest) == (fact["kind"], [])
    head, worker = pods_of(made)
    assert gpus_of(worker) == fact["gpus"]
    memory = {"key": f"{GPU}.memory", "operator": "Gt", "values": [str(fact.get("gpu_memory_more_than"))]}
    assert affinity_of(worker) == ([memory] if "gpu_memory_more_than" in fact else [])
    assert made["metadata"]["name"].startswith(fact.get("name_begins", ""))
    if head is None:
        assert only(worker)["command"] == fact["runs"]
        assert_is_tried_once_and_kept(made["spec"], worker)
        return
    assert shlex.split(made["spec"]["entrypoint"]) == fact["runs"]
    assert_is_a_ray_cluster(made["spec"], head, worker, fact)


def assert_is_tried_once_and_kept(spec: Object, pod: Object) -> None:
    wanted = FACTS["job"]
    assert pod["restartPolicy"] == wanted["restartPolicy"]
    assert spec["ttlSecondsAfterFinished"] == wanted["ttlSecondsAfterFinished"]
    assert spec["backoffLimitPerIndex"] == wanted["backoffLimit"], "our Jobs are indexed"


def assert_is_a_ray_cluster(spec: Object, head: Object, worker: Object, fact: Object) -> None:
    wanted, cluster = FACTS["ray_job"], spec["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    assert (group["replicas"], gpus_of(head), affinity_of(head)) == (fact["workers"], 0, [])
    assert spec["shutdownAfterJobFinishes"] is wanted["shutdownAfterJobFinishes"]
    assert only(head)["name"] == wanted["head"]["container"]
    assert cluster["headGroupSpec"]["rayStartParams"] == wanted["head"]["rayStartParams"]
    assert only(worker)["name"] == wanted["worker"]["container"]
    assert only(worker)["lifecycle"]["preStop"]["exec"]["command"][-1] == wanted["worker"]["preStop"]
    assert only(spec["submitterPodTemplate"]["spec"])["name"] == wanted["submitter"]["container"]


@pytest.mark.parametrize("words", FACTS["refused"])
def test_what_launch_refuses_is_refused_in_one_sentence(lab: TemporaryYard, words: str) -> None:
    done = lab.run("submit", "--build", "--render", *translated(words))
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1, done.err
