"""Training in flags and manifests: sizes that may change, epochs, and what is said about bad ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from jobyard.errors import UserError
from jobyard.manifests.batch import FLAGS
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.native import schema
from jobyard.manifests.overrides import Overrides, apply
from jobyard.manifests.training import parse_span, show_span
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.limits import Gpus, range_of
from jobyard.model.training import ALL, Elastic, Size, Training

if TYPE_CHECKING:
    from tests.unit.manifests.conftest import Load

ONE = JobSpec("job", (GroupSpec(Command(argv=("true",))),))
TWO = JobSpec("job", (GroupSpec(Command(shell="a"), "a"), GroupSpec(Command(shell="b"), "b")))

EVERYTHING = """
command: python train.py
resources: {gpus: 1..8, gpu_memory: 10GiB}
workers: 2..4
training:
  epochs: 10
  batch_size: 64
  training_set_size: 50000
  estimate: 3h
  preemptible: true
  checkpoint_deadline: 5m
  log_dir: runs/a
  idle_gpu: stop
  idle_gpu_after: 10m
"""


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("2", (2, 2)),
        ("0", (0, 0)),
        (3, (3, 3)),
        ("1..8", (1, 8)),
        (" 1 .. 8 ", (1, 8)),
        ("1..", (1, ALL)),
        ("4..4", (4, 4)),
    ],
)
def test_a_size_is_a_number_or_a_range(text: str | int, span: tuple[int, int]) -> None:
    assert parse_span(text, "--gpus", range_of(Gpus)) == span


@pytest.mark.parametrize("text", ["2", "1..8", "3.."])
def test_a_size_is_shown_as_it_was_written(text: str) -> None:
    assert show_span(parse_span(text, "--gpus", range_of(Gpus))) == text


def test_a_range_of_gpus_is_elastic_and_begins_small(context: SubmitContext) -> None:
    spec = apply(ONE, Overrides(gpus="2..8"), context)
    assert (spec.elastic, spec.training_size, spec.gang) == (Elastic(gpus=(2, 8)), Size(1, 2), False)
    assert spec.training == Training()


def test_up_to_all_has_an_open_end(context: SubmitContext) -> None:
    assert apply(ONE, Overrides(gpus="1.."), context).elastic == Elastic(gpus=(1, ALL))


def test_a_plain_number_is_as_before(context: SubmitContext) -> None:
    spec = apply(ONE, Overrides(gpus="2"), context)
    assert (spec.groups[0].resources.gpus, spec.elastic, spec.training) == (2, None, None)


def test_workers_are_a_gang(context: SubmitContext) -> None:
    spec = apply(ONE, Overrides(workers="3"), context)
    assert (spec.size, spec.gang, spec.elastic, spec.training) == (3, True, None, None)
    assert [spec.label_of(number) for number in range(3)] == ["0", "1", "2"]


def test_a_range_of_workers_is_a_gang_that_begins_small(context: SubmitContext) -> None:
    spec = apply(ONE, Overrides(workers="1..4", gpus="1"), context)
    assert (spec.elastic, spec.training_size, spec.gang) == (Elastic(workers=(1, 4)), Size(1, 1), True)


def test_both_may_be_ranges(context: SubmitContext) -> None:
    assert apply(ONE, Overrides(workers="1..4", gpus="1..2"), context).elastic == Elastic((1, 2), (1, 4))


def test_everything_that_flags_say_of_training(context: SubmitContext) -> None:
    flags = Overrides(
        epochs=10,
        batch_size=64,
        training_set_size=50_000,
        estimate="3h",
        preemptible=True,
        checkpoint_deadline="5m",
        log_dir="runs",
        idle_gpu="stop",
    )
    expected = Training(
        10, 64, 50_000, 10_800.0, preemptible=True, yield_seconds=300.0, log_dir="runs", idle_gpu_stop=True
    )
    assert apply(ONE, flags, context).training == expected


def test_a_flag_changes_only_what_it_names(context: SubmitContext) -> None:
    told = replace(ONE, training=Training(epochs=10, batch_size=64))
    assert apply(told, Overrides(epochs=20), context).training == Training(epochs=20, batch_size=64)


def test_flags_may_stand_in_a_batch_file_of_one_line(load: Load) -> None:
    spec = load("#YARD --gpus 1.. --epochs 3 --preemptible\npython train.py\n", "train.txt")
    assert (spec.elastic, spec.training) == (Elastic(gpus=(1, ALL)), Training(epochs=3, preemptible=True))


def test_every_field_of_a_manifest_arrives(load: Load) -> None:
    spec = load(EVERYTHING)
    assert (spec.elastic, spec.training_size, spec.gang) == (Elastic((1, 8), (2, 4)), Size(2, 1), True)
    assert spec.groups[0].resources.gpu_memory_mib == 10240
    assert spec.training == Training(
        10,
        64,
        50_000,
        10_800.0,
        preemptible=True,
        yield_seconds=300.0,
        log_dir="runs/a",
        idle_gpu_seconds=600.0,
        idle_gpu_stop=True,
    )


def test_an_empty_training_says_that_it_is_one(load: Load) -> None:
    assert load("command: x\ntraining:\n").training == Training()
    assert load("command: x\n").training is None


def test_the_one_group_of_a_manifest_may_be_elastic(load: Load) -> None:
    spec = load("command: x\ngang: true\ngroups: {worker: {count: 2, resources: {gpus: 1..4}}, none: {count: 0}}")
    assert (spec.elastic, spec.training_size) == (Elastic(gpus=(1, 4)), Size(2, 1))


def test_a_flag_takes_the_place_of_a_manifests_range(load: Load) -> None:
    spec = load(EVERYTHING, overrides=Overrides(gpus="2", workers="1"))
    assert (spec.elastic, spec.training_size) == (None, Size(1, 2))
    assert load("command: x\nresources: {gpus: 1..8}", overrides=Overrides(gpus="2..3")).elastic == Elastic(gpus=(2, 3))


def test_a_flag_may_put_a_contradiction_right(load: Load) -> None:
    text = "command: x\narray: 0-3\nresources: {gpus: 1..8}"
    assert load(text, overrides=Overrides(gpus="1")).size == 4


def test_the_schema_accepts_training() -> None:
    document = yaml.safe_load(EVERYTHING)
    jsonschema.validate(document, schema())
    for value in ("8..x", "x", -1, 1.5, True):
        document["resources"]["gpus"] = value
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, schema())


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"gpus": "x"}, "--gpus: cannot read 'x' as a number or a range; write 2, 1..8, or 1.."),
        ({"gpus": "1-8"}, "--gpus: cannot read '1-8'"),
        ({"gpus": "8..1"}, "--gpus: '8..1' runs backwards; write 1..8"),
        ({"gpus": "0..4"}, "--gpus: '0..4' begins with none; the smallest size is at least one: write 1..4"),
        ({"gpus": "-1"}, "--gpus: -1 is out of range"),
        ({"gpus": "1..8", "array": "0-3"}, "--gpus: 1..8 is for one training, and this job has 4 tasks"),
        ({"gpus": "1..8", "whole_node": True}, "--gpus: 1..8 on a whole node, which has all its GPUs anyway"),
        ({"workers": "0"}, "--workers: 0 is out of range"),
        ({"workers": "4..2"}, "--workers: '4..2' runs backwards; write 2..4"),
        ({"workers": "2", "array": "0-3"}, "--workers: the job's tasks come from an array or from lines already"),
        ({"workers": "2", "limit": 1}, "--workers: the workers start together, and limit would not let them"),
        ({"epochs": 0}, "--epochs: 0 is out of range; write a whole number from 1"),
        ({"batch_size": -1}, "--batch-size: -1 is out of range"),
        ({"training_set_size": 0}, "--training-set-size: 0 is out of range"),
        ({"estimate": "0"}, "--estimate: '0' must be more than 0"),
        ({"estimate": "soon"}, "--estimate: cannot read 'soon' as a duration"),
        ({"checkpoint_deadline": "0s"}, "--checkpoint-deadline: '0s' must be more than 0"),
        ({"log_dir": " "}, "--log-dir: ' ' is not a directory"),
        ({"idle_gpu": "explode"}, "--idle-gpu: unknown value 'explode'; write warn or stop"),
    ],
)
def test_a_bad_flag_gets_one_sentence(flags: dict[str, Any], says: str, context: SubmitContext) -> None:
    with pytest.raises(UserError) as caught:
        apply(ONE, Overrides(**flags), context)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"gpus": "1..8"}, "--gpus: 1..8 needs a job with one kind of worker; this one has a, b"),
        ({"workers": "2"}, "--workers: the job has groups, whose count says how many"),
    ],
)
def test_several_kinds_of_workers_have_one_size(flags: dict[str, Any], says: str, context: SubmitContext) -> None:
    with pytest.raises(UserError, match=says):
        apply(TWO, Overrides(**flags), context)


def test_lines_and_workers_do_not_go_together(load: Load) -> None:
    with pytest.raises(UserError, match="come from an array or from lines already"):
        load("echo a\n", "x.txt", Overrides(workers="2"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("resources: {gpus: 8..1}", "line 2: resources.gpus: '8..1' runs backwards; write 1..8"),
        ("resources: {gpus: many}", "line 2: resources.gpus: cannot read 'many' as a number or a range"),
        (
            "resources: {gpus: true}",
            "line 2: resources.gpus: must be a number, a range such as 1..8, or a kind and one of",
        ),
        ("resources:\n  gpus: 1..8\narray: 0-3", "line 3: resources.gpus: 1..8 is for one training"),
        ("groups: {a: {resources: {gpus: 1..2}}, b: }", "groups.a.resources.gpus: 1..2 needs a job with one kind"),
        (
            "groups: {a: {count: 3, resources: {gpus: 1..2}}}",
            "groups.a.resources.gpus: 1..2 with 3 tasks needs them to",
        ),
        ("workers: 0", "line 2: workers: 0 is out of range"),
        ("workers: 2\ngroups: {a: }", "line 2: workers: the job has groups, whose count says how many; leave it out"),
        ("workers: 2\narray: 0-3", "line 2: workers: the job's tasks come from an array or from lines already"),
        ("workers: 2\nlimit: 1", "line 2: workers: the workers start together, and limit would not let them"),
        ("training: 3", "training: must be a mapping of epochs, batch_size"),
        ("training: {epoch: 3}", "unknown key 'epoch' in training; did you mean 'epochs'?"),
        ("training:\n  epochs: 0", "line 3: training.epochs: 0 is out of range; write a whole number from 1"),
        ("training: {estimate: 0}", "training.estimate: '0' must be more than 0"),
        ("training: {idle_gpu: explode}", "training.idle_gpu: unknown value 'explode'; known: warn, stop"),
        ("training: {log_dir: ''}", "training.log_dir: '' is not a directory"),
        ("training: {preemptible: maybe}", "training.preemptible: must be true or false, not the text 'maybe'"),
    ],
)
def test_a_bad_manifest_gets_one_sentence_with_its_line(text: str, says: str, load: Load) -> None:
    with pytest.raises(UserError) as caught:
        load(f"command: x\n{text}")
    assert says in str(caught.value)
    assert str(caught.value).startswith("job.yaml: line ")
    assert "\n" not in str(caught.value)


def test_what_the_yard_sets_for_training_cannot_be_set_by_hand(context: SubmitContext) -> None:
    with pytest.raises(UserError, match="YARD_STOP_FILE is set by the yard itself"):
        apply(ONE, Overrides(env=("YARD_STOP_FILE=x",)), context)


def test_flags_of_training_are_spelled_as_on_the_command_line() -> None:
    assert FLAGS["--checkpoint-deadline"] == "checkpoint_deadline"
    assert FLAGS["--training-set-size"] == "training_set_size"
