"""Glossary: does docs/glossary.md have the words of the code, and does the code keep to them?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "jobyard"
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
ON_THE_WIRE = frozenset({"troubles"})  # names on the wire stay


def first_cells(header: str) -> list[str]:
    """The first column of the table with this header."""
    table = GLOSSARY.partition(header)[2].partition("\n\n")[0]
    return [row.split("|")[1].strip(" *") for row in table.strip().splitlines()[1:]]


WORDS = first_cells("| word | is | elsewhere called |")
PLAIN = re.findall(r"\w+", GLOSSARY.partition("mean what they mean anywhere:")[2].partition(".")[0])
KNOWN = frozenset({*PLAIN, *(part for word in WORDS for part in word.split())})
GIVEN_UP = frozenset(word for cell in first_cells("| not | but |") for word in cell.split(", "))


def parts_of(name: str) -> list[str]:
    """`JobSpec` and `job_spec` are `job` and `spec`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().strip("_").split("_")


def is_known(part: str) -> bool:
    """As it stands in the glossary, or with an ending: tasks, quarantined, drained, withdrawn."""
    return any(part.removesuffix(ending) in KNOWN for ending in ("", "s", "d", "ed", "n"))


def names_in(module: Path) -> Iterator[str]:
    """Its own, and those of its classes, functions, arguments, variables and attributes."""
    yield module.stem
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def test_the_words_are_in_order_and_each_stands_once() -> None:
    assert sorted(set(WORDS)) == WORDS


@pytest.mark.parametrize("package", sorted(path.parent.name for path in SOURCE.glob("*/__init__.py")))
def test_every_package_has_its_word(package: str) -> None:
    spelled = {"executors": "executor", "images": "image", "manifests": "manifest", "scheduling": "scheduler"}
    assert spelled.get(package, package).replace("_", " ") in WORDS


@pytest.mark.parametrize("module", sorted((SOURCE / "model").glob("*.py")), ids=lambda path: path.stem)
def test_every_class_of_the_model_has_a_name_of_known_words(module: Path) -> None:
    names = [node.name for node in ast.parse(module.read_text()).body if isinstance(node, ast.ClassDef)]
    unknown = [name for name in names if not name.startswith("_") and not all(map(is_known, parts_of(name)))]
    assert not unknown, "neither in docs/glossary.md nor plain English"


def test_no_name_has_a_word_that_was_given_up() -> None:
    names = [(name, path) for path in SOURCE.rglob("*.py") for name in names_in(path) if name not in ON_THE_WIRE]
    assert {"door", "desk", "homecoming", "hungry"} <= GIVEN_UP
    assert not [f"{path.relative_to(SOURCE)}: {name}" for name, path in names if GIVEN_UP & set(parts_of(name))]


def test_every_module_says_first_what_it_is_and_then_what_it_answers() -> None:
    """`Lease of a machine: for how long ...?`, so that a search for the noun finds it."""
    firsts = {
        path: (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0] for path in SOURCE.rglob("*.py")
    }
    asking = re.compile(r"(What|Which|How|Where|When|Why|Who|Whose|Is|In|As|May|Has|Does) ")
    assert not [f"{path.relative_to(SOURCE)}: {first}" for path, first in firsts.items() if asking.match(first)]
