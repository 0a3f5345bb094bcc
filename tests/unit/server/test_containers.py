"""Jobs in containers: which machines they may have, and what is said where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.planner import Planner
from jobyard.engine.yard_state import YardState
from jobyard.errors import UserError
from jobyard.model import codec
from jobyard.model.container import Mount, PortMapping
from jobyard.model.events import ClusterAdded, NodeAdded
from jobyard.model.job import JobSpec, Reason
from jobyard.model.node import ClusterConfig, Node, NodeConfig
from jobyard.server.commands import checked_spec
from tests.builders import a_job, a_node, joined, submitted, with_words

BARE = replace(a_node("bare"), runtime_problem="has neither docker nor podman in its PATH")
ABLE = replace(a_node("able"), runtime="podman")


def a_state(*nodes: Node) -> YardState:
    state = YardState()
    for node in nodes:
        handle(state, joined(node))
    return state


def decide(state: YardState) -> Planner:
    planner = Planner(state)
    for event in planner.decide(0.0):
        handle(state, event)
    return planner


def a_contained_job(**other: Any) -> JobSpec:
    return a_job(on_machines=True, image="demo:1", workdir="/tmp", **other)


def refusal(state: YardState, spec: JobSpec) -> str:
    with pytest.raises(UserError) as caught:
        checked_spec(state, spec)
    return str(caught.value)


def test_a_job_in_containers_goes_only_to_machines_that_can_run_them() -> None:
    state = a_state(BARE, ABLE)
    checked_spec(state, a_contained_job())
    handle(state, submitted("j", 1, a_contained_job(tasks=8)))
    decide(state)
    assert {record.slot.placement.node for _, record in state.slots.values()} == {"able"}


def test_without_any_the_refusal_names_the_machines_and_what_they_lack() -> None:
    stopped = replace(a_node("box"), runtime_problem="has a docker that does not answer: Cannot connect")
    assert refusal(a_state(BARE, stopped), a_contained_job()) == (
        "--container: no node can run containers: bare has neither docker nor podman in its PATH, box has a docker "
        "that does not answer: Cannot connect; install or start one there, or leave --container out"
    )


def test_only_machines_that_the_job_may_have_count() -> None:
    assert "bare has neither" in refusal(a_state(BARE, ABLE), a_contained_job(on="bare"))


def test_a_machine_that_has_not_been_reached_yet_may_have_one() -> None:
    state = a_state(BARE)
    handle(state, NodeAdded(NodeConfig("gpu1", "gpu1"), 0.0))
    checked_spec(state, a_contained_job())


def test_a_job_whose_machine_lost_its_runtime_waits_and_is_told_why() -> None:
    state = a_state(BARE)
    handle(state, submitted("j", 1, a_contained_job()))
    wait = decide(state).waits["j"]
    assert wait.reason is Reason.NEVER_FITS
    assert "bare has neither docker nor podman" in wait.sentence


def test_a_container_needs_an_image_and_a_directory_that_can_be_mounted() -> None:
    state = a_state(ABLE)
    assert "--image" in refusal(state, a_job(on_machines=True, workdir="/tmp"))
    assert "begins with" in refusal(state, a_job(on_machines=True, workdir="/tmp", image="-v"))
    assert "--workdir" in refusal(state, a_job(on_machines=True, workdir="/", image="demo:1"))


def test_with_a_container_nobody_says_that_the_image_is_not_used() -> None:
    assert checked_spec(a_state(ABLE), a_contained_job()).submitter.notes == ()
    assert len(checked_spec(a_state(ABLE), with_words(a_contained_job(), on_machines=False)).submitter.notes) == 1


def test_on_a_cluster_the_flag_means_nothing_and_that_is_said() -> None:
    state = a_state(BARE)
    handle(state, ClusterAdded(ClusterConfig("lab"), 0.0))
    spec = checked_spec(state, a_contained_job(on="lab"))
    assert not spec.container.on_machines
    assert spec.submitter.notes == ("--container has no effect on a cluster: every task is in a container there",)


def test_what_a_container_has_survives_the_journal() -> None:
    spec = a_contained_job(mounts=(Mount("/a", "/custom"),), ports=(PortMapping(8080, 80),))
    assert codec.decode(JobSpec, codec.encode(spec)) == spec
    assert codec.decode(Node, codec.encode(BARE)) == BARE
