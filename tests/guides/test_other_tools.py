"""Other tools: does our line print what theirs does, for everyday lines of GNU parallel, sbatch and others?"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guides.rows import HYPERQUEUE, PARALLEL, TOOLS, Row, page
from tests.guides.shells import BESIDE, Shell
from tests.packages import why_lacking
from tests.waiting import PATIENCE_SECONDS
from tests.yards import ROOT, TemporaryYard

FILES = BESIDE / "other_tools"
INSTALL = ROOT / "benchmarks/hyperqueue_python.py"
PAGE = ROOT / "docs/guide/coming-from.md"
# All of them are a minute of CPU: each second one is left to `make test-all`.
ALL = [
    pytest.param(row, id=f"{tool.name}-{number}", marks=[pytest.mark.long] * (number % 2))
    for tool in TOOLS
    for number, row in enumerate(tool.rows)
]


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with TemporaryYard(JOBYARD_FAKE_GPUS="2x24GiB") as yard:
        yield Shell(yard)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An empty one with the files that lines use."""
    return Path(shutil.copytree(FILES, tmp_path / "ours"))


def output(line: str, directory: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", line],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=directory,
        env=env,
        timeout=PATIENCE_SECONDS,
    )
    return done.stdout or f"nothing but {done.stderr}"


def with_then(line: str, row: Row) -> str:
    return f"{{ {line}; }} >/dev/null\n{row.then}" if row.then else line


def compared(row: Row, said: str) -> list[str]:
    return said.splitlines() if row.is_ordered else sorted(said.splitlines())


class Theirs:
    """What other tools print, where they run here."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._hyperqueue: dict[str, str] = {}

    def output(self, row: Row) -> str:
        if row.said is not None:
            return row.said
        if row in PARALLEL.rows:
            if why := why_lacking("guides"):
                pytest.skip(why)
            return self._parallel(row)
        assert row in HYPERQUEUE.rows, "nobody says what this prints"
        return self._of_hyperqueue(row)

    def _parallel(self, row: Row) -> str:
        directory = self.scratch / f"parallel-{PARALLEL.rows.index(row)}"
        shutil.copytree(FILES, directory)
        env = {**os.environ, "PARALLEL": "--will-cite", "SHELL": shutil.which("bash") or "/bin/bash"}
        return output(with_then(row.theirs, row), directory, env)

    def _of_hyperqueue(self, row: Row) -> str:
        """All of its lines at once: its client asks for the end of jobs only once a second."""
        if not self._hyperqueue:
            lines = [each.theirs for each in HYPERQUEUE.rows if each.said is None]
            program = Path(__file__).with_name("hyperqueue_lines.py")
            scratch = self.scratch / "hyperqueue"
            scratch.mkdir(exist_ok=True)
            python = subprocess.run([sys.executable, INSTALL], stdout=subprocess.PIPE, text=True)
            if python.returncode != 0:
                pytest.skip("HyperQueue cannot be installed: there is no package registry")
            done = subprocess.run(
                [python.stdout.strip(), program, scratch, FILES],
                input=json.dumps(lines),
                stdout=subprocess.PIPE,
                text=True,
                timeout=PATIENCE_SECONDS,
            )
            assert done.returncode == 0
            self._hyperqueue = dict(zip(lines, json.loads(done.stdout), strict=True))
        return self._hyperqueue[row.theirs]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    return Theirs(tmp_path_factory.mktemp("theirs"))


@pytest.mark.parametrize("row", ALL)
def test_our_line_prints_what_theirs_does(row: Row, shell: Shell, directory: Path, theirs: Theirs) -> None:
    wanted = theirs.output(row)
    said = output(with_then(row.ours, row), directory, shell.env)
    assert compared(row, said) == compared(row, wanted), row.ours


def test_the_page_has_the_rows_that_are_run_here() -> None:
    assert len(ALL) >= 60
    assert PAGE.read_text() == page(), "run: python -m tests.guides.rows > docs/guide/coming-from.md"
