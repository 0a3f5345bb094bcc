"""Benchmarks page: is it, with its chart, what benchmarks/report.py makes of the figures that are kept?"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.yards import ROOT


def test_the_page_and_its_chart_are_made_of_the_figures_that_are_kept(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks")
    (tmp_path / "docs").mkdir()
    subprocess.run([sys.executable, tmp_path / "benchmarks/report.py"], check=True)
    for name in ("benchmarks.md", "benchmarks.svg"):
        made = (tmp_path / "docs" / name).read_text()
        assert made == (ROOT / "docs" / name).read_text(), "run: python benchmarks/report.py"


def test_the_chart_opens_the_page_and_names_every_contestant() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    chart = (ROOT / "docs/benchmarks.svg").read_text()
    assert page.splitlines()[2].startswith("![Tasks per second")
    for name in ("xargs", "parallel", "hyperqueue", "yard"):
        assert f">{name}</text>" in chart
    assert "prefers-color-scheme: dark" in chart
