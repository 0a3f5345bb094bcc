"""Recordings in README: are they pictures that need nothing else, and does the recorder draw what a terminal shows?"""

from __future__ import annotations

import os
import re
import runpy
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.yards import ROOT

SHOWN = re.findall(r"!\[[^\]]+\]\((docs/[^)]+\.svg)\)", (ROOT / "README.md").read_text())
FIRST, SECOND = r"one \033[31mred\033[0m\n", r"two <b>\n"


def test_readme_shows_the_live_view_attach_and_top() -> None:
    assert SHOWN == ["docs/display.svg", "docs/attach.svg", "docs/top.svg"]


@pytest.mark.parametrize("name", [*SHOWN, "docs/benchmarks.svg"])
def test_a_picture_is_well_formed_small_and_needs_nothing_from_elsewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert len(text) < 500_000
    assert not re.search(r"href|url\(|@import|<script", text)


def test_the_recorder_draws_each_screen_for_its_time_and_the_last_one_where_nothing_moves(tmp_path: Path) -> None:
    recorder = runpy.run_path(str(ROOT / "tools/recorder.py"))
    frames = [screen(recorder, words, tmp_path) for words in (FIRST, SECOND)]
    drawn = recorder["svg"](
        [replace(frames[0], seconds=0.0), replace(frames[1], seconds=2.0)], "recorded", before="$ sh"
    )
    first, second = (next(line for line in drawn.splitlines() if word in line) for word in ("one", "two"))
    assert 'visibility="hidden"' in first.partition(">")[0]
    assert 'keyTimes="0.0000;0.0000;0.3333"' in first
    assert f'fill="{recorder["COLOURS"]["red"]}">red</tspan>' in first
    assert 'visibility="hidden"' not in second.partition(">")[0]
    assert "two &lt;b&gt;" in second


def screen(recorder: dict[str, Any], words: str, directory: Path) -> Any:
    """The last screen of a command."""
    return recorder["record"](["printf", words], size=(20, 4), env=dict(os.environ), cwd=directory)[-1]
