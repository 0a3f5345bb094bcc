"""Tables of promises in the docs: does the test that a row names exist?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.yards import ROOT

HEADER = re.compile(r"^\| promised by the original \| ours \| the test \|$", re.MULTILINE)
PAGES = sorted(path for path in (ROOT / "docs/compat").glob("*.md") if HEADER.search(path.read_text()))
NAMED = re.compile(r"`(?:tests/)?([\w/]+\.py)`(?:: ([^`]+))?")


def rows_of(page: str) -> list[str]:
    table = HEADER.split(page)[1].split("\n\n")[0]
    return table.strip().splitlines()[1:]


def named_tests(page: str) -> Iterator[tuple[str, str]]:
    """File and, where the row says it, the beginning of a test's name; of the table's last column."""
    for row in rows_of(page):
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


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_promise_has_a_test_or_says_why_not(page: Path) -> None:
    for row in rows_of(page.read_text()):
        cell = row.rstrip(" |").rsplit(" | ", 1)[-1]
        assert NAMED.search(cell) or cell.startswith("not: "), row


def test_every_page_has_one_table_of_promises() -> None:
    assert sorted((ROOT / "docs/compat").glob("*.md")) == PAGES
    assert [len(HEADER.findall(page.read_text())) for page in PAGES] == [1] * len(PAGES)


PROMISES = [ROOT / "docs/reliability.md", ROOT / "docs/security.md"]
PROMISED = re.compile(r"`([\w/]*test_\w+\.py)`((?::?,? \*[^*]+\*)*)")


@pytest.mark.parametrize("page", PROMISES, ids=lambda path: path.stem)
def test_every_test_that_a_promise_names_is_there(page: Path) -> None:
    named = PROMISED.findall(page.read_text())
    assert len(named) > 20
    for path, sentences in named:
        (file,) = [each for each in (ROOT / "tests").rglob(path.rpartition("/")[2]) if str(each).endswith(f"/{path}")]
        tests = re.findall(r"def test_(\w+)", file.read_text())
        for sentence in re.findall(r"\*([^*]+)\*", sentences):
            name = re.sub(r"\W+", "_", sentence.lower().replace("'", "")).strip("_")
            assert any(name in test for test in tests), f"{path} has no test of {sentence!r}"
