"""Chart docs/benchmarks.svg: how many tasks per second, in the yard and in the tools beside it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any
from xml.sax.saxutils import escape

SSH_LINES = 200  # as benchmarks/ssh.py runs
WIDTH, LEFT, RIGHT = 760, 130, 90
ROW, BAR, HEADING, MARGIN = 30, 20, 34, 14
# It has a ground of its own, so that it can be read on whatever page it is shown.
STYLE = """\
    :root { --ground: #ffffff; --text: #1f2328; --quiet: #656d76; --ours: #0969da; --theirs: #afb8c1; }
    @media (prefers-color-scheme: dark) {
      :root { --ground: #161b22; --text: #e6edf3; --quiet: #9198a1; --ours: #4493f8; --theirs: #484f58; }
    }
    text { font: 14px system-ui, sans-serif; fill: var(--text); }
    .heading { font-weight: 600; }
    .quiet { fill: var(--quiet); }
    .ours { fill: var(--ours); }
    .theirs { fill: var(--theirs); }"""
Group = tuple[str, Sequence[tuple[str, float]]]  # what was done, and who did how many of it per second


def groups(records: Sequence[Mapping[str, Any]]) -> Iterator[Group]:
    """The newest of each kind, the quickest first."""
    figures = {record["benchmark"]: record["figures"] for record in records}
    if "throughput" in figures:
        rates = {name: median(values) for name, values in figures["throughput"].items()}
        yield "on one machine with two cores", _quickest_first(rates)
    if "ssh" in figures:
        rates = {name: SSH_LINES / median(figures["ssh"][name]) for name in ("yard", "parallel")}
        yield "on three machines over SSH", _quickest_first(rates)


def words(found: Sequence[Group]) -> str:
    """What the chart shows, for those who do not see it."""
    said = (f"{where}: " + ", ".join(f"{name} {rate:.0f}" for name, rate in rates) for where, rates in found)
    return "Tasks per second " + "; ".join(said)


def svg(found: Sequence[Group]) -> str:
    lines, y = [], MARGIN
    for where, rates in found:
        lines.append(_text(MARGIN, y + 18, f"Tasks per second {where}", "heading"))
        y += HEADING
        most = max(rate for _, rate in rates)
        for name, rate in rates:
            lines += _bar(y, name, rate, rate / most)
            y += ROW
        y += MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img">\n'
        f"  <title>{escape(words(found))}</title>\n"
        f"  <style>\n{STYLE}\n  </style>\n"
        f'  <rect width="{WIDTH}" height="{y}" rx="8" style="fill: var(--ground)"/>\n'
    )
    return head + "".join(f"  {line}\n" for line in lines) + "</svg>\n"


def _quickest_first(rates: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(rates.items(), key=lambda pair: -pair[1])


def _bar(y: int, name: str, rate: float, share: float) -> list[str]:
    length = round(share * (WIDTH - LEFT - RIGHT))
    kind = "ours" if name == "yard" else "theirs"
    return [
        _text(MARGIN, y + 15, name),
        f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{length}" height="{BAR}" rx="3"/>',
        _text(LEFT + length + 8, y + 15, f"{rate:.0f}", "quiet"),
    ]


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{attribute}>{escape(text)}</text>'
