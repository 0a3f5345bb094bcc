"""Submit context: who submits, and from where?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobyard.model.submitter import Submitter


@dataclass(frozen=True, slots=True)
class SubmitContext:
    """`workdir` is absolute, and relative paths start there. `environ` becomes the job's inherited_env."""

    workdir: str
    environ: Mapping[str, str] = field(default_factory=dict)
    user: str = ""

    def submitter(self, source: str, notes: tuple[str, ...] = ()) -> Submitter:
        """`source` says what kind of file or command describes the job."""
        return Submitter(self.user, source=source, inherited_env=dict(self.environ), notes=notes)
