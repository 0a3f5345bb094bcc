from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.errors import UserError
from jobyard.model import effects as effect_kinds
from jobyard.model import events as event_kinds
from jobyard.model.codec import decode, encode
from jobyard.model.events import AttemptsStarted, CancelRequested, Event, JobSubmitted, Started
from jobyard.model.job import ArrayRange, Command, JobSpec, Reason
from jobyard.model.lines import Lines
from jobyard.model.node import Foreign, Node
from jobyard.model.policy import FailurePolicy
from jobyard.model.task import AttemptId, Outcome
from tests.builders import a_job, a_node, one_column

KINDS = [
    kind
    for _, kind in inspect.getmembers(event_kinds, inspect.isclass)
    if issubclass(kind, Event) and kind is not Event
]
EFFECTS = [
    kind
    for _, kind in inspect.getmembers(effect_kinds, inspect.isclass)
    if issubclass(kind, effect_kinds.Effect) and kind is not effect_kinds.Effect
]
st.register_type_strategy(Lines, st.lists(st.text("ab {}"), max_size=3).map(Lines.of))
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


def through_json(kind: type[Any], value: Any, **how: Any) -> Any:
    return decode(kind, json.loads(json.dumps(encode(value, **how))))


@pytest.mark.parametrize("kind", [*KINDS, JobSpec, Node, Outcome, Foreign])
@given(data=st.data())
@settings(deadline=None)
def test_every_noun_comes_back_as_it_was(kind: type[Any], data: st.DataObject) -> None:
    value = data.draw(st.from_type(kind))
    assert through_json(kind, value) == value
    assert through_json(kind, value, defaults=True) == value


def test_defaults_are_left_out_unless_asked_for() -> None:
    event = CancelRequested("j", 1.0)
    assert encode(event) == {"job": "j", "at": 1.0}
    assert encode(event, defaults=True) == {
        "job": "j",
        "at": 1.0,
        "tasks": [],
        "ranges": [],
        "force": False,
        "message": "cancelled by the user",
        "by": "",
    }


def test_a_million_lines_are_one_string() -> None:
    spec = a_job()
    command = Command(lines=Lines.of(["a", "b"]))
    assert encode(command) == {"lines": "a\nb\n"}
    assert through_json(JobSpec, spec) == spec


def test_what_an_older_yard_wrote_of_a_start_is_read_with_what_it_did_not_know_left_empty() -> None:
    attempt = AttemptId("j", 1, 2)
    assert decode(AttemptsStarted, {"items": [[["j", 1, 2], 4.5]], "at": 5.0}).items == (Started(attempt, 4.5, ""),)
    assert through_json(Started, Started(attempt, 4.5, "pod-1")).unit == "pod-1"


def test_lines_of_an_older_yard_are_rows_of_one_column() -> None:
    written = {"argv": ["cat", "{}"], "entries": "a\nb\n"}
    assert decode(Command, written) == Command(("cat", "{}"), inputs=one_column(Lines.of(["a", "b"])))


def test_values_keep_their_kinds() -> None:
    spec = a_job(on_failure=FailurePolicy.STOP)
    assert through_json(JobSpec, spec).policy.on_failure is FailurePolicy.STOP
    assert through_json(ArrayRange, ArrayRange(((0, 9, 1), (20, 30, 2)))).pieces == ((0, 9, 1), (20, 30, 2))
    assert through_json(Outcome, Outcome(0, 1, reason=Reason.UNKNOWN)).reason is Reason.UNKNOWN
    assert isinstance(decode(AttemptId, ["j", 1, 2]), AttemptId)
    assert isinstance(decode(Outcome, {"started_at": 1, "finished_at": 2}).started_at, float)


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (CancelRequested, {"job": "j"}, "CancelRequested: missing at"),
        (CancelRequested, {"job": "j", "at": 1.0, "when": 2}, "CancelRequested: unknown field 'when'; known: job, at"),
        (CancelRequested, {"job": 7, "at": 1.0}, "CancelRequested.job: expected str, got 7"),
        (CancelRequested, {"job": "j", "at": "now"}, "CancelRequested.at: expected float, got 'now'"),
        (CancelRequested, {"job": "j", "at": 1.0, "force": 1}, "CancelRequested.force: expected bool, got 1"),
        (CancelRequested, {"job": "j", "at": 1.0, "tasks": [True]}, "CancelRequested.tasks[0]: expected int, got True"),
        (CancelRequested, [], "CancelRequested: expected dict, got []"),
        (AttemptId, ["j", 1], "AttemptId: expected 3 items, got 2"),
        (AttemptsStarted, {"items": [[["j", 1, "x"], 1.0]], "at": 1.0}, "AttemptsStarted.items[0][0][2]: expected int"),
        (
            Outcome,
            {"started_at": 0.0, "finished_at": 1.0, "reason": "Bored"},
            "Outcome.reason: 'Bored' is none of Resources",
        ),
        (
            JobSubmitted,
            {"job": "j", "number": 1, "at": 0.0, "spec": {"name": "x"}},
            "JobSubmitted.spec: missing groups",
        ),
        (Command, {"lines": ["a"]}, "Command.lines: expected str"),
    ],
)
def test_what_does_not_fit_is_named(kind: type[Any], data: Any, words: str) -> None:
    with pytest.raises(UserError) as caught:
        decode(kind, data)
    assert words in str(caught.value)


def test_a_whole_number_may_be_written_with_a_point_as_json_has_one_kind_of_number() -> None:
    found = decode(AttemptId, ["j", 1.0, 2])
    assert (found, type(found.task)) == (AttemptId("j", 1, 2), int)
    for odd in (1.5, 1e300, float("nan"), float("inf")):
        with pytest.raises(UserError, match="expected int"):
            decode(AttemptId, ["j", odd, 2])


def test_a_mistake_of_ours_is_not_called_a_missing_field() -> None:
    @dataclass(frozen=True)
    class Odd:
        number: int = 0

        def __post_init__(self) -> None:
            raise TypeError("ours")

    with pytest.raises(TypeError, match="ours"):
        decode(Odd, {"number": 1})


def test_what_is_no_noun_cannot_be_encoded() -> None:
    with pytest.raises(TypeError, match="cannot encode object"):
        encode(object())
    assert encode(a_node())["id"] == "here"
