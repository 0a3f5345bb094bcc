"""Prints docs/states.md from the engine's own table: `python tools/print_states.py > docs/states.md`."""

from __future__ import annotations

from collections.abc import Iterator

from jobyard.engine.lifecycle import MEANING, MOVES
from jobyard.model.job import State

HEAD = """\
<!-- Printed by tools/print_states.py from engine/lifecycle.py; a test compares. Change it there. -->
# States of a task

A task is in one of these states, with a reason and a sentence. A job's state is what its tasks amount to: it runs while
one of them runs, and has ended when all have. Then it is `CANCELLED` if a person or a failed dependency stopped it,
`FAILED` if a task failed or its deadline passed, `CANCELLED` if a task was, and
`SUCCEEDED` if all tasks did: the first of these that is true.
"""
TAIL = """\
Every arrow is made by `advance` in `engine/lifecycle.py`; tests hold the drawing and the behaviour together.
An attempt number is taken on the way from `PENDING` to `STARTING` and never used again: words about an older attempt
change nothing.
"""


def page() -> str:
    return "\n".join([HEAD, *_table(), "", *_diagram(), "", TAIL.rstrip("\n")]) + "\n"


def _table() -> Iterator[str]:
    yield "| state | means | moved on by | may become |"
    yield "|---|---|---|---|"
    for state, (means, who) in MEANING.items():
        drawn = ", ".join(f"`{after}`" for after in _drawn(state)) or "-"
        yield f"| `{state}` | {means} | {who} | {drawn} |"


def _diagram() -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {State.PENDING}"
    for state in MOVES:
        for after in _drawn(state):
            yield f"    {state} --> {after}"
    yield "```"


def _drawn(state: State) -> list[State]:
    return [after for after in State if after in MOVES[state]]


if __name__ == "__main__":
    print(page(), end="")
