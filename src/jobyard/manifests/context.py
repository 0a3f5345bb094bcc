"""Submit context: who submits, from where, and which tasks need not run?"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from jobyard.model.job import JobSpec
from jobyard.model.limits import NOTE_MOST, NOTES_MOST
from jobyard.model.submitter import Submitter


@dataclass(frozen=True, slots=True)
class SubmitContext:
    """`workdir` is absolute, and relative paths start there. `environ` becomes the job's inherited_env."""

    workdir: str
    environ: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    leave_out: tuple[Callable[[JobSpec], JobSpec], ...] = ()  # each gives the job without tasks that need not run

    def submitter(self, source: str, notes: Iterable[str] = ()) -> Submitter:
        """`source` says what kind of file or command describes the job."""
        return Submitter(
            self.user,
            source=source,
            inherited_env=dict(self.environ),
            notes=as_notes(notes),
            directory=self.workdir,
        )


def user_here() -> str:
    """The name of the account that runs this program."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def as_notes(sentences: Iterable[str]) -> tuple[str, ...]:
    """As many and as long as a job may have: the last one says how many there are beside it."""
    notes = [text if len(text) <= NOTE_MOST else f"{text[: NOTE_MOST - 1]}…" for text in sentences]
    if (left := len(notes) - NOTES_MOST + 1) > 1:
        notes[NOTES_MOST - 1 :] = [f"and {left} notes more"]
    return tuple(notes)
