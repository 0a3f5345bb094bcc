"""Site: does the documentation build, and is a link, an anchor or a page that leads nowhere an error?"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.yards import ROOT

PARTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE",
    "mkdocs.yml",
    "docs",
    "deploy",
    "examples",
    "tools/site",
)


def build(tree: Path, site: Path) -> subprocess.CompletedProcess[str]:
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [tree / "tools/site", site], env={**os.environ, "PATH": programs}, capture_output=True, text=True
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A tree with nothing but the documentation."""
    for name in PARTS:
        source, target = ROOT / name, tmp_path / "copy" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    return tmp_path / "copy"


def test_the_site_builds_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    start = (tmp_path / "site/index.html").read_text()
    assert 'href="docs/guide/quickstart.html"' in start
    assert (tmp_path / "site/docs/display.svg").is_file()


def test_what_leads_nowhere_is_named_and_the_build_fails(copy: Path, tmp_path: Path) -> None:
    quickstart = copy / "docs/guide/quickstart.md"
    quickstart.write_text(quickstart.read_text() + "[a](nowhere.md) [b](arrays.md#nothing) [c](../nothing/)\n")
    (copy / "docs/guide/unlisted.md").write_text("# A page that nobody finds\n")
    done = build(copy, tmp_path / "site")
    assert done.returncode == 1
    for named in ("nowhere.md", "#nothing", "../nothing/", "unlisted.md"):
        assert named in done.stderr


def test_every_decision_is_listed() -> None:
    directory = ROOT / "docs/decisions"
    listed = re.findall(r"^- \[.*\]\((.*)\)$", (directory / "README.md").read_text(), re.MULTILINE)
    assert listed == sorted(path.name for path in directory.glob("0*.md"))
