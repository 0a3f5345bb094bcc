"""Each field on each kind of executor, at submit: what the table says is what a submitter hears."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.errors import UserError
from jobyard.executors.kubernetes.manifest import objects_of
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.container import ContainerSpec
from jobyard.model.events import ClusterAdded, NodeAdded
from jobyard.model.executor_kinds import MACHINES, ExecutorKind, kind_on_cluster
from jobyard.model.field_support import FIELDS, NOT_OF_AN_EXECUTOR
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.kubernetes import KubernetesSpec
from jobyard.model.node import ClusterConfig, NodeConfig
from jobyard.model.policy import FailurePolicy, RunPolicy
from jobyard.model.resources import Resources
from jobyard.model.staging import StagingSpec
from jobyard.model.support import Asked, FieldSupport, Verdict
from jobyard.model.training import Elastic, Training
from jobyard.server.commands import checked_spec
from jobyard.server.spec_checks import check_submit
from jobyard.wire.requests import SubmitJob
from tests.builders import a_cluster_node, a_node, joined, submitted, with_words
from tests.matrix.examples import EARLIER, EXAMPLES, FAR, HERE, JOBS, LAB, with_values

ROWS = {row.at: row for row in FIELDS}
SIGNS = {Verdict.WORKS: "", Verdict.TOLD: ":", Verdict.REFUSED: ";"}  # what parts a sentence in two
# What has rows for its own fields. Other values, such as a mount or an array, are given whole.
PARTS = (Command, ContainerSpec, Elastic, GroupSpec, KubernetesSpec, Resources, RunPolicy, StagingSpec, Training)


def places_in(noun: type, before: str = "") -> Iterator[str]:
    """Where the fields of a spec are, each as `policy.retries`."""
    for name, hint in get_type_hints(noun).items():
        at = f"{before}{name}"
        part = next((each for each in (hint, *get_args(hint)) if each in PARTS), None)
        if at not in NOT_OF_AN_EXECUTOR:
            yield from places_in(part, f"{at}.") if part else [at]


def a_yard(*, with_queue: bool = False) -> YardState:
    """This machine, another one and a cluster, where there is room for all that is asked."""
    state = YardState()
    handle(state, joined(replace(a_node(HERE, gpus=2), runtime="docker")))
    handle(state, NodeAdded(NodeConfig(FAR, FAR), 0.0))
    handle(state, joined(replace(a_node(FAR, gpus=2), executor="ssh", runtime="docker")))
    handle(state, ClusterAdded(ClusterConfig(LAB, queue="team" if with_queue else ""), 0.0))
    labels = ("disk=fast", "nvidia.com/gpu.memory=80000", "nvidia.com/gpu.product=FakeGPU")
    handle(state, joined(a_cluster_node(cpus=16, gpus=4, cluster=LAB, labels=labels)))
    handle(state, submitted(EARLIER, 1))
    return state


def as_submitted(state: YardState, spec: JobSpec) -> JobSpec:
    """All that a submit asks, in its order, and last the objects that the cluster is asked about."""
    check_submit(SubmitJob(spec))
    spec = checked_spec(state, spec)
    if spec.cluster:
        objects_of(SubmittedJob("0000000b", 2, spec), 1)
    return spec


def asking(row: FieldSupport, kind: ExecutorKind) -> JobSpec:
    return EXAMPLES[row.at](JOBS[kind])


def test_every_field_of_a_job_has_a_row_and_no_row_is_of_a_field_that_is_gone() -> None:
    places = set(places_in(JobSpec))
    assert places - ROWS.keys() == set()
    assert ROWS.keys() - places == {"groups.command"}  # as a whole: placeholders may stand anywhere in it
    assert len(FIELDS) == len(ROWS)


def test_every_row_has_an_example_and_every_example_a_row() -> None:
    assert EXAMPLES.keys() == ROWS.keys()


def test_the_jobs_of_the_examples_are_of_their_kinds_and_are_told_nothing() -> None:
    for kind, job in JOBS.items():
        spec = as_submitted(a_yard(), job)
        assert spec.submitter.notes == (), kind
        if kind not in MACHINES:
            assert kind_on_cluster(spec) is kind


@pytest.mark.parametrize("kind", ExecutorKind)
@pytest.mark.parametrize("at", ROWS)
def test_what_a_cell_says_is_what_a_submitter_hears(at: str, kind: ExecutorKind) -> None:
    row = ROWS[at]
    spec, cell = asking(row, kind), row.cells[kind]
    is_kueue = cell.which == "with a queue of Kueue"
    state = a_yard(with_queue=is_kueue)
    if kind not in MACHINES and not at.startswith("kubernetes."):
        assert kind_on_cluster(spec) is kind, "the example made another kind of it"
    if cell.verdict is not Verdict.WORKS:
        assert row.is_asked(spec), "the example does not ask for it"
        assert cell.is_about(Asked(spec, has_queue=is_kueue)), "the example is none of those that the cell is about"
    if cell.verdict is Verdict.REFUSED:
        with pytest.raises(UserError) as caught:
            as_submitted(state, spec)
        assert (caught.value.field, caught.value.sentence) == (row.called, cell.told(spec))
        return
    notes = as_submitted(state, spec).submitter.notes
    assert (cell.told(spec) in notes) == (cell.verdict is Verdict.TOLD)


@pytest.mark.parametrize("row", FIELDS, ids=lambda row: row.at)
def test_a_sentence_names_a_way_out_or_says_what_happens_instead(row: FieldSupport) -> None:
    for kind, cell in row.cells.items():
        sentence = cell.told(JOBS[kind])
        assert SIGNS[cell.verdict] in sentence
        assert "{" not in sentence.replace("{#}", "")


# -- what is taken although others of its field are refused


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ExecutorKind.JOBSET, {"on_failure": FailurePolicy.STOP}),
        (ExecutorKind.JOBSET, {"max_fails": 0}),
        (ExecutorKind.JOBSET, {"limit": 2}),
        (ExecutorKind.PYTORCHJOB, {"on_failure": FailurePolicy.STOP}),
        (ExecutorKind.PYTORCHJOB, {"env": {"A": "1"}}),
        (ExecutorKind.JOB, {"priority": 5}),
        (ExecutorKind.JOB, {"retry_delay_seconds": 5.0}),
        (ExecutorKind.SSH, {"workdir": "/"}),
        (ExecutorKind.JOB, {"workdir": "/", "directory": ""}),
    ],
)
def test_values_that_a_kind_can_do_are_neither_refused_nor_told(kind: ExecutorKind, words: dict[str, Any]) -> None:
    assert as_submitted(a_yard(), with_words(JOBS[kind], **words)).submitter.notes == ()


def test_values_of_one_line_reach_the_tasks_of_a_cluster() -> None:
    for kind in (ExecutorKind.JOB, ExecutorKind.JOBSET):
        assert as_submitted(a_yard(), with_values("true {}", "a")(JOBS[kind])).submitter.notes == ()


def test_a_job_that_may_come_to_either_kind_of_machine_is_told_of_both() -> None:
    spec = with_words(JOBS[ExecutorKind.LOCAL], on="", workdir="/", no_copy=True)
    (note,) = checked_spec(a_yard(), spec).submitter.notes
    assert note.startswith("--workdir has no effect on other machines")


def test_a_note_is_told_once_however_often_a_job_is_checked() -> None:
    state, spec = a_yard(), asking(ROWS["groups.resources.gpu_memory_mib"], ExecutorKind.JOB)
    once = checked_spec(state, spec)
    assert checked_spec(state, once).submitter.notes == once.submitter.notes
    assert len(once.submitter.notes) == 1


def test_a_field_counts_as_asked_for_in_whatever_group_it_stands() -> None:
    row = ROWS["groups.resources.gpu_memory_mib"]
    job = replace(JOBS[ExecutorKind.JOB], groups=(GroupSpec(JOBS[ExecutorKind.JOB].groups[0].command, "a"),))
    assert not row.is_asked(job)
    assert row.is_asked(replace(job, groups=(*job.groups, asking(row, ExecutorKind.JOB).groups[0])))
