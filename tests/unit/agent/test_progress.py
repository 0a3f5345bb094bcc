"""What do reports add up to, whoever wrote them and however badly?"""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.agent_protocol.epoch_counts import HISTORY
from jobyard.agent_protocol.progress_reducer import ProgressReducer
from jobyard.agent_protocol.report_lines import LONGEST_LINE
from jobyard.model import training


def lines(*reports: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(report).encode() + b"\n" for report in reports)


def reduced(*reports: dict[str, Any], started_at: float = 100.0) -> dict[str, Any]:
    it = ProgressReducer(started_at)
    it.feed(lines(*reports))
    return it.progress() or {}


HELLO = {"t": "hello", "at": 101, "epochs": 10, "done": 2, "yields": True, "resumed": True}


def epoch(done: int, seconds: float = 5.0, **more: Any) -> dict[str, Any]:
    return {"t": "epoch", "at": 1.0, "done": done, "seconds": seconds, "steps": 50, "step_seconds": 0.1, **more}


def test_every_field_is_one_of_a_progress() -> None:
    everything = reduced(
        HELLO,
        {"t": "start", "at": 107.5},
        {"t": "steps", "at": 1, "steps": 7, "step_seconds": 0.25, "metrics": {"loss": 2}},
        epoch(3),
        {"t": "saved", "at": 120.0, "done": 3, "seconds": 1.5},
        {"t": "progress", "at": 1, "percent": 30, "remaining": 60, "metrics": {}},
        {"t": "yield", "at": 121.0, "done": 3},
        {"t": 3},
    )
    # What the server leaves out of its journal is its own affair.
    assert set(everything) == {field.name for field in dataclasses.fields(training.Progress)} - {"adds_history"}
    assert set(everything["history"][0]) == {field.name for field in dataclasses.fields(training.Epoch)}
    assert everything["restart_seconds"] == 7.5
    assert everything["checkpoint_seconds"] == 1.5
    assert everything["saved_at"] == 120.0
    assert everything["metrics"] == {"loss": 2.0}
    assert HISTORY == training.HISTORY


def test_nothing_reported_is_no_progress() -> None:
    assert ProgressReducer().progress() is None
    it = ProgressReducer()
    it.feed(b"\n  \n")
    assert it.progress() is None


def test_what_was_done_before_counts_until_more_is() -> None:
    assert reduced(HELLO)["epochs_done"] == 2
    assert reduced(HELLO, {**HELLO, "done": 1})["epochs_done"] == 1  # a checkpoint knew better
    assert reduced(HELLO, epoch(3), {**HELLO, "done": 1})["epochs_done"] == 3
    assert reduced(HELLO, epoch(3))["epochs_done"] == 3


def test_an_epoch_counts_no_further_than_it_is_saved_once_saves_are_told() -> None:
    assert reduced(HELLO, epoch(3), {"t": "saved", "at": 9, "done": 3}, epoch(4), epoch(5))["epochs_done"] == 3


def test_the_epoch_time_is_the_median_and_the_last_hundred_are_remembered() -> None:
    progress = reduced(*(epoch(n, seconds=100.0 if n < 32 else 4.0) for n in range(1, 131)))
    assert progress["epoch_seconds"] == 4.0
    assert [entry["number"] for entry in progress["history"]] == list(range(31, 131))
    assert progress["steps"] == 130 * 50


def test_an_epoch_that_every_rank_tells_of_is_one() -> None:
    assert len(reduced(epoch(1), epoch(1), epoch(2), epoch(2))["history"]) == 2


def test_steps_are_the_newest_level() -> None:
    progress = reduced({"t": "steps", "at": 1, "steps": 10, "step_seconds": 0.5}, {"t": "steps", "at": 2, "steps": 20})
    assert (progress["steps"], progress["step_seconds"]) == (20, 0.5)


def test_a_metric_that_has_become_no_number_is_known_no_more() -> None:
    first = {"t": "steps", "at": 1, "steps": 1, "metrics": {"loss": 3.0, "lr": 0.1}}
    second = b'{"t":"steps","at":2,"steps":2,"metrics":{"loss":NaN}}\n'
    it = ProgressReducer()
    it.feed(lines(first) + second)
    assert (it.progress() or {})["metrics"] == {"lr": 0.1}


def test_half_a_character_does_not_get_any_further() -> None:
    it = ProgressReducer()
    it.feed(b'{"t":"steps","at":1,"steps":1,"metrics":{"loss\\ud800":3.0}}\n')
    assert (it.progress() or {})["metrics"] == {"loss?": 3.0}


def test_who_says_that_it_yields_is_believed_whatever_it_counts() -> None:
    progress = reduced({**HELLO, "epochs": 2**63 - 1})
    assert progress["can_yield"]
    assert progress["trouble"] == "line 1 of the reports was skipped: epochs must be a number"


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (b"{not json", "line 2 of the reports is not JSON"),
        (b"[1, 2]", "line 2 of the reports is not a JSON object"),
        (b"\xff\xfe", "line 2 of the reports is not JSON"),
        (b'{"at": 3}', 'line 2 of the reports has no "t"'),
        (b'{"t":"epoch","at":1}', "line 2 of the reports was skipped: done must be a number"),
        (b'{"t":"steps","at":1,"steps":"many"}', "line 2 of the reports was skipped: steps must be a number"),
        (b'{"t":"steps","at":1,"steps":true}', "line 2 of the reports was skipped: steps must be a number"),
        (b"[" * 50000, "line 2 of the reports is not JSON"),
        (b"x" * (LONGEST_LINE + 1), "line 2 of the reports is longer than 65536 bytes"),
        (b"x" * (LONGEST_LINE * 3), "line 2 of the reports is longer than 65536 bytes"),
    ],
)
def test_a_line_that_cannot_be_read_is_skipped_and_named(bad: bytes, word: str) -> None:
    it = ProgressReducer()
    data = lines(HELLO) + bad + b"\n" + lines(epoch(4)) + b"{again\n"
    for begin in range(0, len(data), 10000):
        it.feed(data[begin : begin + 10000])
    progress = it.progress() or {}
    assert progress["epochs_done"] == 4
    assert progress["trouble"].startswith(word)


def test_numbers_that_cannot_be_are_put_right_and_told() -> None:
    progress = reduced(HELLO, epoch(12))
    assert progress["epochs_done"] == 10
    assert progress["trouble"] == "line 2 of the reports tells of 12 epochs done of 10: taken as 10"
    progress = reduced({"t": "steps", "at": 1, "steps": -3})
    assert "steps" not in progress
    assert progress["trouble"] == "line 1 of the reports has a negative number in steps: -3, taken as 0"
    assert reduced({"t": "progress", "at": 1, "percent": 120})["percent"] == 100


def test_a_report_of_a_newer_kind_is_no_trouble() -> None:
    assert "trouble" not in reduced(HELLO, {"t": "weather", "at": 1})


def test_a_torn_line_waits_for_its_end() -> None:
    it = ProgressReducer()
    data = lines(HELLO, epoch(3))
    it.feed(data[:-10])
    assert (it.progress() or {})["epochs_done"] == 2
    it.feed(data[-10:])
    assert (it.progress() or {})["epochs_done"] == 3


def test_a_last_line_without_its_newline_counts_if_it_is_whole() -> None:
    it = ProgressReducer()
    it.feed(lines(HELLO, epoch(3))[:-1])
    it.close()
    assert (it.progress() or {})["epochs_done"] == 3
    torn = ProgressReducer()
    torn.feed(lines(HELLO, epoch(3))[:-9])
    torn.close()
    assert (torn.progress() or {})["trouble"].startswith("line 2")


@given(st.binary(max_size=300), st.lists(st.integers(1, 299)))
def test_the_same_bytes_add_up_to_the_same_however_they_come(noise: bytes, cuts: list[int]) -> None:
    data = lines(HELLO) + noise + b"\n" + lines(epoch(3), epoch(4, 7.0))
    whole, pieces = ProgressReducer(), ProgressReducer()
    whole.feed(data)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for begin, end in pairwise(places):
        pieces.feed(data[begin:end])
    assert whole.progress() == pieces.progress()


FIELDS = st.sampled_from(
    ["done", "epochs", "seconds", "steps", "at", "metrics", "percent", "step_seconds", "process", "gone"]
)
KINDS = st.sampled_from(["hello", "start", "steps", "epoch", "saved", "ended", "asked", "told", "yield", "progress"])
NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3))
VALUES = st.one_of(NUMBERS, st.dictionaries(st.text(max_size=2), NUMBERS))


@given(st.lists(st.tuples(KINDS, st.dictionaries(FIELDS, VALUES)), max_size=8))
def test_no_report_harms_the_reducer(reports: list[tuple[str, dict[str, Any]]]) -> None:
    progress = reduced(*({**report, "t": kind} for kind, report in reports))
    json.dumps(progress, allow_nan=False)
    assert progress.get("epochs_done", 0) >= 0


def ended(**fields: Any) -> dict[str, Any]:
    return {"t": "ended", "at": 1, **fields}


ASKED, TOLD = {"t": "asked", "at": 1}, {"t": "told", "at": 1}


def asked(process: str) -> dict[str, Any]:
    return {**ASKED, "process": process}


def test_an_epoch_of_the_original_client_counts_when_the_next_one_begins() -> None:
    over = [ended(seconds=5.0, steps=50), ended(done=3)]
    assert reduced(HELLO, *over)["epochs_done"] == 2
    progress = reduced(HELLO, *over, ASKED)
    assert (progress["epochs_done"], progress["epoch_seconds"], progress["can_yield"]) == (3, 5.0, True)
    assert progress["history"][0]["steps"] == 50


def test_the_kth_ask_of_a_process_means_that_many_epochs_less_one_are_saved() -> None:
    reports: list[dict[str, Any]] = []
    for epoch_number in range(1, 5):
        assert reduced(HELLO, *reports, asked("a"))["epochs_done"] == 2 + epoch_number - 1
        reports += [asked("a")]


def test_an_end_that_is_told_after_the_next_ask_counts_once_and_still_tells_how_long_it_took() -> None:
    reports = [asked("a")]
    for number in (1, 2, 3):
        reports += [asked("a"), ended(process="a", seconds=5.0 + number, steps=50 * number)]
    progress = reduced(HELLO, *reports)
    assert progress["epochs_done"] == 5
    assert [(e["number"], e["seconds"], e["steps"]) for e in progress["history"]] == [
        (3, 6, 50),
        (4, 7, 50),
        (5, 8, 50),
    ]


def test_an_epoch_whose_end_nobody_tells_has_no_duration() -> None:
    progress = reduced(HELLO, *[asked("a")] * 3)
    assert (progress["epochs_done"], "epoch_seconds" in progress) == (4, False)


def test_of_several_processes_the_slowest_counts() -> None:
    reports = [asked("a"), asked("b"), asked("a"), ended(process="a", seconds=5.0, steps=50), asked("a")]
    assert reduced(HELLO, *reports)["epochs_done"] == 2
    assert reduced(HELLO, *reports, asked("b"))["epochs_done"] == 3
    assert reduced(HELLO, *reports, asked("b"), asked("b"))["epochs_done"] == 4


def test_nobody_waits_for_a_process_that_is_gone() -> None:
    reports = [asked("a"), asked("b"), asked("b")]
    assert reduced(HELLO, *reports, asked("b"))["epochs_done"] == 2
    assert reduced(HELLO, *reports, {**asked("b"), "gone": ["a"]})["epochs_done"] == 4


def test_an_ask_that_was_lost_is_made_up_for_by_the_end_of_its_epoch() -> None:
    over = ended(process="a", seconds=5.0, steps=50)
    assert reduced(HELLO, asked("a"), over, over, asked("a"))["epochs_done"] == 4


def test_the_last_epoch_of_a_client_that_does_not_count_is_over_when_it_ended_well() -> None:
    it = ProgressReducer()
    it.feed(lines(HELLO, *[asked("a")] * 8, *[ended(process="a", seconds=5.0)] * 8))
    assert it.epochs_done == 9
    assert it.is_finished
    it.confirm()
    assert it.epochs_done == 10
    assert [each["number"] for each in (it.progress() or {})["history"]] == list(range(3, 11))


def test_a_client_that_never_tells_of_an_end_is_done_when_it_ended_well_by_itself() -> None:
    for by_itself, done in ((False, 9), (True, 10)):
        it = ProgressReducer()
        it.feed(lines(HELLO, *[asked("a")] * 8))
        it.confirm(by_itself=by_itself)
        assert it.epochs_done == done


def test_the_first_to_ask_in_an_epoch_decides_for_all_processes() -> None:
    it = ProgressReducer()
    it.feed(lines(HELLO, asked("a"), asked("b"), asked("a")))
    assert it.may_stop("a")
    it.feed(lines(asked("b")))
    assert not it.may_stop("b")  # the other one went on
    it.feed(lines(asked("b"), {**TOLD, "process": "b"}, asked("a")))
    assert it.may_stop("a")


def test_in_the_last_epoch_of_a_client_that_does_not_count_it_is_not_told_to_stop() -> None:
    it = ProgressReducer()
    it.feed(lines(HELLO, *[asked("a")] * 7))
    assert it.may_stop("a")
    it.feed(lines(asked("a")))
    assert not it.may_stop("a")


def test_in_the_last_epoch_nobody_is_told_to_stop() -> None:
    it = ProgressReducer()
    it.feed(lines(HELLO, ended(done=8), ASKED, TOLD))
    assert it.is_told
    it = ProgressReducer()
    it.feed(lines(HELLO, ended(done=9), ASKED, TOLD))
    assert it.is_in_last_epoch
    assert not it.is_told


@given(st.data())
def test_whenever_the_ends_of_epochs_arrive_the_asks_are_right(data: st.DataObject) -> None:
    """Threads of some processes, in any order; each asks in its own order, and its ends come late, or never."""
    names = ["a", "b", "c"][: data.draw(st.integers(1, 3))]
    asks, late = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    it = ProgressReducer()
    it.feed(lines(HELLO, *(asked(name) for name in names)))
    for _ in range(data.draw(st.integers(0, 20))):
        name = data.draw(st.sampled_from(names))
        if late[name] and data.draw(st.booleans()):
            late[name] -= 1
            if not data.draw(st.booleans()):  # or it is lost
                it.feed(lines(ended(process=name, seconds=1.0)))
        elif asks[name] < 7:
            asks[name] += 1
            late[name] += 1
            it.feed(lines(asked(name)))
        assert it.epochs_done == 2 + min(asks.values())
        numbers = [entry["number"] for entry in (it.progress() or {}).get("history", [])]
        assert numbers == list(range(3, 3 + len(numbers)))
