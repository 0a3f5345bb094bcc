from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.errors import NotFound
from jobyard.model.job import ArrayRange, Command, GroupSpec, JobSpec, State
from jobyard.model.lines import Lines
from jobyard.model.policy import FailurePolicy
from jobyard.model.task import AttemptId
from jobyard.model.training import Training
from tests.builders import a_group, a_job

texts = st.text(st.characters(codec="utf-8", exclude_characters="\n"))


@given(st.lists(texts))
@settings(deadline=None)
def test_lines_are_what_was_put_in(lines: list[str]) -> None:
    packed = Lines.of(lines)
    assert list(packed) == lines
    assert len(packed) == len(lines)
    assert packed == Lines(packed.text)
    assert hash(packed) == hash(Lines(packed.text))
    for index in (-1, len(lines)):
        with pytest.raises(IndexError):
            packed[index]


@st.composite
def array_ranges(draw: st.DrawFn) -> ArrayRange:
    """Pieces that do not overlap, in any order."""
    pieces, low = [], 0
    for _ in range(draw(st.integers(1, 4))):
        first = low + draw(st.integers(0, 5))
        low = first + draw(st.integers(0, 9)) + 1
        pieces.append((first, low - 1, draw(st.integers(1, 4))))
    return ArrayRange(tuple(draw(st.permutations(pieces))))


@given(array_ranges())
@settings(deadline=None)
def test_array_ids_and_ordinals_are_inverse(ids: ArrayRange) -> None:
    plain = [n for first, last, step in ids.pieces for n in range(first, last + 1, step)]
    assert [ids.id_of(ordinal) for ordinal in range(len(ids))] == plain
    assert [ids.ordinal_of(number) for number in plain] == list(range(len(plain)))
    assert (ids.lowest, ids.highest) == (min(plain), max(plain))
    assert ids.ordinal_of(max(plain) + 1) is None
    with pytest.raises(IndexError):
        ids.id_of(len(plain))


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    def group(name: str) -> GroupSpec:
        if draw(st.booleans()):
            ids = draw(array_ranges())
            return GroupSpec(Command(shell="true"), name, completions=len(ids), array=ids)
        return a_group(name, draw(st.integers(0, 4)), draw(st.integers(1, 4)))

    names = draw(st.sampled_from([[""], ["w"], ["b", "a"], ["worker", "", "x/y"]]))
    return JobSpec("job", tuple(group(name) for name in names))


@given(specs().filter(lambda spec: spec.size > 0))
@settings(deadline=None)
def test_labels_and_numbers_are_inverse(spec: JobSpec) -> None:
    labels = [spec.label_of(number) for number in range(spec.size)]
    assert len(set(labels)) == spec.size
    assert [spec.number_of(label) for label in labels] == list(range(spec.size))


@given(specs())
@settings(deadline=None)
def test_places_count_through_groups_replicas_and_completions(spec: JobSpec) -> None:
    expected = [
        (index, replica, completion)
        for index, group in enumerate(spec.groups)
        for replica in range(group.count)
        for completion in range(group.completions)
    ]
    assert [tuple(spec.place_of(number)) for number in range(spec.size)] == expected


def test_the_obvious_may_be_left_out_of_a_label() -> None:
    assert a_job(groups=(a_group("w", completions=3),)).number_of("w/2") == 2
    assert a_job(groups=(a_group("w", count=3),)).number_of("2") == 2
    assert a_job(groups=(a_group("w", count=2, completions=2),)).number_of("1.0") == 2


@pytest.mark.parametrize("label", ["", "9", "-1", "x", "w/0", "1.5", "1.", ".1", "²", "٣", "1/", "9" * 5000, "0.0.0"])
def test_a_task_that_is_not_there_is_named(label: str) -> None:
    with pytest.raises(NotFound, match=r"job 'job' has no task .* its tasks are 0 to 2"):
        a_job(3).number_of(label)


def test_groups_are_numbered_in_order_of_their_names() -> None:
    spec = a_job(groups=(a_group("b", count=2), a_group("a", count=3)))
    assert [spec.label_of(number) for number in range(5)] == ["a/0", "a/1", "a/2", "b/0", "b/1"]


def test_what_one_failure_does_has_a_default() -> None:
    assert a_job().failure_policy is FailurePolicy.CONTINUE
    assert a_job(gang=True).failure_policy is FailurePolicy.STOP
    assert a_job(gang=True, on_failure=FailurePolicy.CONTINUE).failure_policy is FailurePolicy.CONTINUE


def test_final_and_active_states_are_apart() -> None:
    assert {state for state in State if state.is_final} == {State.SUCCEEDED, State.FAILED, State.CANCELLED}
    assert {state for state in State if state.is_active} == {State.STARTING, State.RUNNING, State.STOPPING}


@given(st.from_regex(r"[a-z0-9.-]{1,20}", fullmatch=True), st.integers(0, 10**9), st.integers(1, 10**6))
@settings(deadline=None)
def test_attempt_ids_are_read_as_they_are_written(job: str, task: int, number: int) -> None:
    attempt = AttemptId(job, task, number)
    assert AttemptId.parse(str(attempt)) == attempt


@pytest.mark.parametrize(
    ("spec", "steps"),
    [
        ({"gpus": 0}, 125),
        ({"gpus": 1}, 125),
        ({"gpus": 2}, 62),
        ({"gpus": 2, "tasks": 2, "gang": True}, 31),
        ({"tasks": 2, "gang": True}, 62),
        ({"tasks": 2}, 125),
        ({"gpus": 8, "tasks": 100, "gang": True}, 1),
    ],
)
def test_batch_and_set_size_give_the_steps_of_an_epoch(spec: dict[str, int], steps: int) -> None:
    job = a_job(training=Training(batch_size=8, training_set_size=1000), **spec)  # type: ignore[arg-type]
    assert job.steps_per_epoch == steps


@pytest.mark.parametrize("training", [None, Training(batch_size=8), Training(training_set_size=1000)])
def test_without_batch_or_set_size_nobody_knows_the_steps_of_an_epoch(training: Training | None) -> None:
    assert a_job(training=training).steps_per_epoch is None


def test_a_job_of_one_task_is_told_in_the_singular() -> None:
    with pytest.raises(NotFound, match=r"has no task '5'; its only task is 0$"):
        a_job().number_of("5")
    assert str(Command(lines=Lines.of(["echo 1"]))) == "echo 1"
    assert str(Command(lines=Lines.of(["echo 1", "echo 2"]))) == "2 lines, first: echo 1"


@pytest.mark.parametrize("word", ["{}", "x{}", "{lr}", "--lr={1/.}", "{//}", "{%}", "{}{}"])
def test_a_command_shows_a_placeholder_as_it_was_typed(word: str) -> None:
    assert str(Command(argv=("echo", word))) == f"echo {word}"


@pytest.mark.parametrize("word", ["{1..3}", "{a,b}", "{", "a {}", "$x{}", "{}*", ""])
def test_what_bash_would_read_otherwise_is_quoted(word: str) -> None:
    assert str(Command(argv=("echo", word))) == f"echo {shlex.quote(word)}"
    assert shlex.quote(word) != word
