"""Does everything that an agent may have to say fit into lines that a server takes?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobyard.agent.files import shipping
from jobyard.agent_protocol.epoch_counts import HISTORY
from jobyard.agent_protocol.lines import LARGEST_LINE, MOST_VALUES, lines_of, problem
from jobyard.agent_protocol.progress_reducer import ProgressReducer

END = {"started_at": 1.5, "finished_at": 2.5, "exit_code": 1, "peak_memory_mib": 7, "message": "it, failed"}
ATTEMPTS = [f"job.{number}.1" for number in range(30_000)]


def said(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages that it comes as, each in a line that a server takes."""
    lines = lines_of(message)
    assert [problem(line, json.loads(line)) for line in lines] == [""] * len(lines)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    return [json.loads(line) for line in lines]


def reported(name: str, epochs: int = HISTORY) -> dict[str, Any]:
    """What an attempt has reported that gives as many metrics as are kept, with names that begin like this."""
    reducer = ProgressReducer()
    for done in range(1, epochs + 1):
        metrics = {f"{number}{name}": 0.123456789 for number in range(64)}
        report = {"t": "epoch", "done": done, "seconds": 1.0, "metrics": metrics}
        reducer.feed(json.dumps(report, ensure_ascii=False).encode() + b"\n")
    found = reducer.progress()
    assert found is not None
    assert found["epochs_done"] == epochs
    return found


def test_a_message_that_fits_is_one_line() -> None:
    message = {"ev": "attempts", "started": [["job.0.1", 1.5]], "finished": [["job.1.1", END]], "withdrawn": []}
    assert said(message) == [message]


def test_attempts_that_end_at_once_come_in_their_order_in_several_lines() -> None:
    parts = {
        "started": [[name, 1.5] for name in ATTEMPTS[:10_000]],
        "finished": [[name, END] for name in ATTEMPTS[10_000:20_000]],
        "withdrawn": ATTEMPTS[20_000:],
    }
    messages = said({"ev": "attempts", **parts})
    assert [message["ev"] for message in messages] == ["attempts"] * len(messages)
    for name, part in parts.items():
        assert [item for message in messages for item in message[name]] == part


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ({"ev": "reconciled", "absent": ATTEMPTS}, "absent"),
        ({"ev": "stored", "jobs": ATTEMPTS, "snapshots": []}, "jobs"),
        ({"ev": "stored", "jobs": [], "snapshots": [f"{number:064}" for number in range(30_000)]}, "snapshots"),
        ({"ev": "error", "message": "no", "ids": ATTEMPTS}, "ids"),
    ],
)
def test_a_long_list_goes_on_in_the_next_line(message: dict[str, Any], part: str) -> None:
    messages = said(message)
    assert [item for each in messages for item in each[part]] == message[part]
    assert [each.get("more", False) for each in messages] == [True] * (len(messages) - 1) + [False]


def test_what_many_attempts_use_comes_in_several_measurements() -> None:
    used = {name: {"memory_mib": 1, "gpu_memory_mib": 2, "gpu_percent": 3} for name in ATTEMPTS}
    messages = said({"ev": "measured", "load": 0.5, "devices": [{"index": 0}], "attempts": used})
    assert [(each["load"], each["devices"]) for each in messages] == [(0.5, [{"index": 0}])] * len(messages)
    assert {name: seen for each in messages for name, seen in each["attempts"].items()} == used


@pytest.mark.parametrize("name", ["loss", "x" * 96, "," * 96])
def test_all_that_one_attempt_may_report_is_said(name: str) -> None:
    message = {"ev": "progress", "attempts": {"job.0.1": reported(name)}}
    assert said(message) == [message]


@pytest.mark.parametrize("at_its_end", [False, True])
def test_of_a_history_that_is_too_large_the_newest_epochs_are_said(at_its_end: bool) -> None:
    """A task chooses the names of its metrics: it must not cost the machine its link."""
    told = reported("\N{GRINNING FACE}" * 96)
    messages = said(about(told, at_its_end))
    found = progress_in(messages, at_its_end)
    assert len(messages) == 1
    assert found["history"] == told["history"][-len(found["history"]) :]
    assert len(found["history"]) >= 2
    assert {**found, "history": ()} == {**told, "history": ()}


def about(told: dict[str, Any], at_its_end: bool) -> dict[str, Any]:
    """A message with the progress of one attempt, beside others."""
    if at_its_end:
        return {"ev": "attempts", "started": [], "finished": [("job.0.1", {**END, "progress": told})], "withdrawn": []}
    return {"ev": "progress", "attempts": {"job.0.1": told}}


def progress_in(messages: list[dict[str, Any]], at_its_end: bool) -> dict[str, Any]:
    if at_its_end:
        ((_, ended),) = messages[0]["finished"]
        progress: dict[str, Any] = ended["progress"]
        return progress
    progress = messages[0]["attempts"]["job.0.1"]
    return progress


def test_a_piece_of_output_fits() -> None:
    assert shipping._CHUNK * 4 // 3 + 1000 < LARGEST_LINE


def test_a_line_is_too_much_by_its_bytes_or_its_values() -> None:
    assert not problem(b"x" * LARGEST_LINE, {})
    assert problem(b"x" * (LARGEST_LINE + 1), {}) == "a line of more than 1 MiB"


@pytest.mark.parametrize("wrapped", [lambda inner: inner, lambda inner: {"a": inner}, lambda inner: [[], inner, [[0]]]])
def test_values_are_counted_at_any_depth(wrapped: Any) -> None:
    """Also where there is hardly a comma."""
    for size, is_too_much in [(MOST_VALUES - 10, False), (MOST_VALUES + 1, True)]:
        message = wrapped([0] * size)
        assert bool(problem(json.dumps(message).encode(), message)) is is_too_much
        message = wrapped({str(number): 0 for number in range(size)})
        assert bool(problem(json.dumps(message).encode(), message)) is is_too_much
    message = [json.loads("[" * 100 + "]" * 100)] * (MOST_VALUES // 50)
    assert problem(json.dumps(message).encode(), message)


def test_commas_in_texts_are_no_values() -> None:
    message = {"message": "," * MOST_VALUES}
    assert not problem(json.dumps(message).encode(), message)
