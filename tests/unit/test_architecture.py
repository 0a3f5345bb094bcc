"""Architecture: does docs/architecture.md name every package and only files that exist, and do routes only ask?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "jobyard"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def names_in(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def test_every_package_and_every_module_beside_them_is_in_the_table() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    modules = {path.stem for path in SOURCE.glob("[!_]*.py")}
    table = PAGE.partition("## Packages")[2].partition("Inside the agent")[0]
    named = {word for row in table.splitlines() for word in re.findall(r"`(\w+)`", row.partition(" | ")[0])}
    assert packages | modules | {"kubernetesdlprofile"} <= named


def test_every_package_within_a_package_is_in_a_table() -> None:
    inner = [path.parent.relative_to(SOURCE) for path in SOURCE.glob("*/*/**/__init__.py")]
    rows = [row for row in PAGE.splitlines() if row.startswith("|")]
    assert not [path for path in inner if not any(re.search(rf"\b{path.name}\b", row) for row in rows)]


def test_every_file_that_a_page_names_exists() -> None:
    pages = {page: re.findall(r"`([a-z_]+/[\w/]+\.py)`", page.read_text()) for page in (ROOT / "docs").rglob("*.md")}
    assert sum(map(len, pages.values())) > 100
    places = (SOURCE, ROOT / "src", ROOT, ROOT / "tests")
    named = {(page.name, path) for page, paths in pages.items() for path in paths}
    assert not [each for each in named if not any((place / each[1]).is_file() for place in places)]


def test_every_class_and_function_that_a_walk_names_exists() -> None:
    """`CancelJobs`, and with its module `job_events.cancel`; a field too, as `policy.retries`."""
    named = {name.rpartition(".")[2] for name in re.findall(r"`([A-Z][a-z]+[A-Z]\w+|\w+\.\w+)`", PAGE)} - {"py", "json"}
    assert named >= {"CancelJobs", "cancel", "CheckpointStop"}
    known = {path.parent.name for path in SOURCE.rglob("*.py")}
    for path in SOURCE.rglob("*.py"):
        known |= {path.stem, *names_in(path)}
    assert named - known == set()


def test_routes_pass_the_state_on_and_never_look_into_it() -> None:
    """The loop changes it at any time. Functions that are given it answer with what stays as it is."""
    for path in (SOURCE / "server" / "routes").glob("*.py"):
        tree = ast.parse(path.read_text())
        handed_on = {id(each) for call in ast.walk(tree) if isinstance(call, ast.Call) for each in call.args}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node).endswith((".loop.state", ".loop.planner")):
                assert id(node) in handed_on, f"{path.name}: {ast.unparse(node)}"


def test_only_the_python_api_unpickles() -> None:
    """Reading a pickle runs it: nothing that a server, an agent or a verb reads may be one."""
    users = {path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py") if "import pickle" in path.read_text()}
    assert users == {"python_api"}
