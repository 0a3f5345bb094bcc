"""Guide pages: which commands does a page show, what does it say that they print, and which of them cannot be run here?

What a reader does not need stands in a comment above the block: `not run: WHY`, `not compared: WHY` (of what is
printed), `exits: 1`, `before: WHAT IS RUN BEFORE`; with a command in backquotes before it where only those of the block
are meant that begin so. `file: NAME` says that the block is that file; one that begins with `# NAME: ` says so itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.yards import ROOT

BLOCK = re.compile(r"(?P<notes>(?:^<!-- [^\n]* -->\n)*)^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"<!-- (?P<what>not run|not compared|exits|before|file): (?:`(?P<command>[^`]+)`: )?(?P<text>.+) -->")
VARYING = re.compile(r"(\b[0-9a-f]{8,}\b|\d+(?:\.\d+)?|\.\.\.)")
NAMED = re.compile(r"# ([\w./-]+\.\w+): ")


@dataclass(frozen=True)
class Note:
    """What a comment above a block says of its commands, or of those that begin so."""

    what: str
    command: str
    text: str


@dataclass(frozen=True)
class Command:
    line: int
    text: str
    shown: str  # what the page says that it prints
    notes: tuple[Note, ...]

    def note(self, what: str) -> str:
        """The first of that kind that concerns this command; empty where none does."""
        return next(iter(self.every(what)), "")

    def every(self, what: str) -> list[str]:
        return [note.text for note in self.notes if note.what == what]


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    def commands(self) -> Iterator[Command]:
        text = self.path.read_text()
        for found in BLOCK.finditer(text):
            if found["kind"] == "console":
                notes = _notes(found["notes"])
                for line, command, shown in _prompts(found["body"]):
                    concerned = tuple(note for note in notes if command.startswith(note.command))
                    yield Command(text.count("\n", 0, found.start("body")) + 1 + line, command, shown, concerned)

    def files(self) -> Iterator[tuple[str, str]]:
        """What stands in files that the page shows."""
        for found in BLOCK.finditer(self.path.read_text()):
            names = [note.text for note in _notes(found["notes"]) if note.what == "file"]
            if found["kind"] != "console" and (said := NAMED.match(found["body"])):
                names.append(said[1])
            yield from ((name, found["body"]) for name in names)

    def idle_notes(self) -> list[Note]:
        """Notes that concern no command: it was renamed, or is gone."""
        said = {note for found in BLOCK.finditer(self.path.read_text()) for note in _notes(found["notes"])}
        heeded = {note for command in self.commands() for note in command.notes}
        return [note for note in said - heeded if note.what != "file"]


def all_pages() -> list[Page]:
    """Those with commands."""
    guides = sorted((ROOT / "docs/guide").glob("*.md"))
    paths = [ROOT / "README.md", *guides, ROOT / "docs/skills/jobyard/SKILL.md", ROOT / "examples/README.md"]
    return [page for page in map(Page, paths) if any(page.commands())]


def pattern(shown: str) -> str:
    """What output must hold that is shown so: the same words in the same order, with other numbers, ids and times."""
    words = (r"[\s\S]*?" if word == "..." else _like(word) for word in shown.split())
    return r"\s+".join(words).replace(r"\s+[\s\S]*?\s+", r"\s[\s\S]*?")


def _like(word: str) -> str:
    return "".join(_part(part) for part in VARYING.split(word))


def _part(part: str) -> str:
    if re.fullmatch("[0-9a-f]{8,}", part):
        return "[0-9a-f]{8,}"
    return r"\S*" if part == "..." else r"[\d.]+" if part[:1].isdigit() else re.escape(part)


def _notes(comments: str) -> list[Note]:
    return [Note(found["what"], found["command"] or "", found["text"]) for found in NOTE.finditer(comments)]


def _prompts(body: str) -> Iterator[tuple[int, str, str]]:
    """Each command with its line in the block, its further lines joined, and what is printed below it."""
    for part in re.finditer(r"^\$ (?P<command>(?:.*\\\n)*.*)\n(?P<shown>(?:(?!\$ ).*\n)*)", body, re.MULTILINE):
        yield body.count("\n", 0, part.start()), part["command"].replace("\\\n", " "), part["shown"].strip()
