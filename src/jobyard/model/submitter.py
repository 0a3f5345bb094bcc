"""Submitter: who submitted a job, from where, and what are they told?"""

from __future__ import annotations

from dataclasses import dataclass, field

from jobyard.model.limits import Line, Notes, Path, ShellEnv


@dataclass(frozen=True, slots=True)
class Submitter:
    """The person, the shell and the kind of file that a job came from."""

    user: Line = ""
    host: Line = ""  # the machine that it was submitted from
    submitted_with: Line = ""  # the id of a token; empty: over the Unix socket, by the yard's owner
    source: Line = "command"  # command, batch, native, aichor
    inherited_env: ShellEnv = field(default_factory=dict)  # of the submitting shell; never shown, never journalled
    environment: Line = ""  # the name of the file in which the server stores it instead
    notes: Notes = ()  # what the submitter should be told
    cluster_notes: Notes | None = None  # instead, if it goes to a cluster: only the server knows that
    directory: Path = ""  # of submission; empty: not known
