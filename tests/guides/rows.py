"""Rows of docs/guide/coming-from.md: what does one write for another tool, and what for the yard?

They stand in `tools/*.yaml`. `python -m tests.guides.rows > docs/guide/coming-from.md` writes the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

HEAD = """\
# Coming from sbatch, GNU parallel, pueue or HyperQueue

Their line, ours, the same output. A test runs our column (`tests/guides/test_other_tools.py`), and theirs beside it
where that tool can be installed in a minute. `yard run --cat` prints plain output in the order of the tasks, `yard run`
alone shows the job live. Below each table stands what cannot be said to the yard, and why. A word of another tool is
answered with ours: type `yard squeue`, `yard scancel`, `yard run --ntasks 4`.
"""


@dataclass(frozen=True)
class Row:
    theirs: str
    ours: str
    said: str | None = None  # what both print; None: theirs runs beside ours, and prints it
    then: str = ""  # run after each of them, where the output is in files
    is_ordered: bool = False  # otherwise the order of lines does not count


@dataclass(frozen=True)
class Missing:
    """What cannot be said to the yard."""

    theirs: str
    why: str


@dataclass(frozen=True)
class Tool:
    name: str
    about: str
    rows: tuple[Row, ...]
    missing: tuple[Missing, ...]


def tool(name: str) -> Tool:
    found = yaml.safe_load((Path(__file__).parent / "tools" / f"{name}.yaml").read_text())
    rows = tuple(Row(**row) for row in found["rows"])
    return Tool(found["name"], found["about"], rows, tuple(Missing(**each) for each in found["missing"]))


# The page has what most people come from first.
SBATCH, PARALLEL, PUEUE, HYPERQUEUE = TOOLS = tuple(map(tool, ("sbatch", "parallel", "pueue", "hyperqueue")))


def page() -> str:
    return HEAD + "".join("\n".join(_section(tool)) for tool in TOOLS)


def _section(tool: Tool) -> Iterator[str]:
    yield f"\n## {tool.name}\n\n{tool.about}\n\n| {tool.name} | the yard |\n|---|---|"
    for row in tool.rows:
        yield f"| {_code(row.theirs)} | {_code(row.ours)} |"
    yield "\n| not said to the yard | because |\n|---|---|"
    for missing in tool.missing:
        yield f"| {_code(missing.theirs)} | {missing.why} |"
    yield ""


def _code(line: str) -> str:
    return "`" + line.replace("|", "\\|") + "`"


if __name__ == "__main__":
    print(page(), end="")
