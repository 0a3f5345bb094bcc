"""The tables in docs/compat: does the test that a row names exist?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.yards import ROOT

HEADER = re.compile(r"^\| promised by the original \| ours \| the test \|$", re.MULTILINE)
PAGES = sorted(path for path in (ROOT / "docs/compat").glob("*.md") if HEADER.search(path.read_text()))
NAMED = re.compile(r"`(?:tests/)?([\w/]+\.py)`(?:: ([^`]+))?")


def named_tests(page: str) -> Iterator[tuple[str, str]]:
    """File and, where the row says it, the beginning of a test's name; of the table's last column."""
    table = HEADER.split(page)[1].split("\n\n")[0]
    for row in table.strip().splitlines()[1:]:
        for path, words in NAMED.findall(row.split(" | ")[-1]):
            for name in words.strip(" |;").split(";"):
                yield path, re.sub(r"\W+", "_", name.strip().lower()).strip("_")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_test_that_a_table_names_is_there(page: Path) -> None:
    found = list(named_tests(page.read_text()))
    assert found
    for path, name in found:
        tests = re.findall(r"def test_(\w+)", (ROOT / "tests" / path).read_text())
        assert any(name in test for test in tests), f"{path} has no test of {name!r}"


def test_there_are_tables() -> None:
    assert {ROOT / "docs/compat/kubeprofiler.md", ROOT / "docs/compat/ml-scheduler.md"} <= set(PAGES)
