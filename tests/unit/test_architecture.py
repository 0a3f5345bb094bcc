"""Architecture page: does docs/architecture.md name every package, and only files that exist?"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "jobyard"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_every_package_and_every_module_beside_them_is_in_the_table() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    modules = {path.stem for path in SOURCE.glob("[!_]*.py")}
    table = PAGE.partition("## Packages")[2].partition("Inside the agent")[0]
    named = {word for row in table.splitlines() for word in re.findall(r"`(\w+)`", row.partition(" | ")[0])}
    assert packages | modules | {"kubernetesdlprofile"} <= named


def test_every_file_that_a_walk_names_exists() -> None:
    named = re.findall(r"`([a-z_]+/[\w/]+\.py)`", PAGE)
    assert len(named) > 30
    assert not [path for path in named if not (SOURCE / path).is_file()]
