"""Page of executors: what does docs/executors.md say? Written by `python -m jobyard.manifests.support_page`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from jobyard.model.executor_kinds import MACHINES, ExecutorKind
from jobyard.model.field_support import SECTIONS
from jobyard.model.support import Cell, FieldSupport, Verdict
from jobyard.model.verb_support import VERBS

_BEGIN = """# What works where

Each field of a job and each verb, by where the job runs: as plain processes of this machine or of others over SSH, in
[containers on machines](guide/containers.md) (`--container`), or as objects of [Kubernetes](guide/kubernetes.md); the
last column is an object that you wrote yourself.

| word | means |
|---|---|
| yes | it works |
| told | the job is taken, and a note at submit says what happens instead |
| no | the submit is refused, with one sentence that names the field and the way out; of verbs: the verb is |
| partly | of verbs: what it does there |

Nothing that a job asks for is dropped without a word: a field without a row fails a test. `tests/matrix` takes an
example for every cell through all checks of a submit, makes the objects that a cluster would get, and compares what its
submitter hears. What *yes* means for tasks is held by the tests of each kind of executor, not yet row by row.

This page is made from `model/field_support.py`, which the server asks at each submit, and `model/verb_support.py`.
"""
_OF_FIELDS = {Verdict.WORKS: "yes", Verdict.TOLD: "told", Verdict.REFUSED: "no"}
_OF_VERBS = {**_OF_FIELDS, Verdict.TOLD: "partly"}
Words = Mapping[Verdict, str]
_HEAD = f"| | {' | '.join(ExecutorKind)} |\n|---|{'---|' * len(ExecutorKind)}"
Row = tuple[str, Mapping[ExecutorKind, Cell]]


def page() -> str:
    fields = [(title, [(_named(row), row.cells) for row in rows]) for title, rows in SECTIONS]
    sections = [_section(title, rows, _OF_FIELDS) for title, rows in fields]
    sections.append(_section("Verbs", [(f"`yard {row.verb}`", row.cells) for row in VERBS], _OF_VERBS))
    return "\n".join((_BEGIN, *("\n".join(lines) for lines in sections)))


def _section(title: str, rows: Iterable[Row], words: Words) -> Iterator[str]:
    """A table, and below it what its cells say, each sentence once."""
    sentences: dict[str, int] = {}
    yield f"## {title}\n\n{_HEAD}"
    for named, cells in rows:
        shown = (_shown(words[cell.verdict], _told(cell, cells), sentences) for cell in cells.values())
        yield f"| {named} | {' | '.join(shown)} |"
    yield ""
    for sentence, number in sentences.items():
        yield f"{number}. {sentence}"
    if sentences:
        yield ""


def _shown(word: str, told: str, sentences: dict[str, int]) -> str:
    return f"{word} ({sentences.setdefault(told, len(sentences) + 1)})" if told else word


def _told(cell: Cell, cells: Mapping[ExecutorKind, Cell]) -> str:
    """The sentence, and before it which values it is about."""
    kinds = [kind for kind, other in cells.items() if other == cell and kind not in MACHINES]
    sentence = cell.sentence.format(image="IMAGE", kind=" or ".join(kinds) or "PyTorchJob")
    return f"{cell.which}: {sentence}" if cell.which else sentence


def _named(row: FieldSupport) -> str:
    """By its flag or key, and by its place in a spec, as REST has it."""
    is_same = row.called == row.at.rpartition(".")[2] or row.called == row.at
    return f"`{row.at}`" if is_same else f"`{row.called}` `{row.at}`"


if __name__ == "__main__":
    print(page(), end="")
