"""Steps of a plan: what can be done for a job of a cluster? Each may be done twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobyard.executors.kubernetes.kinds import Kind
from jobyard.executors.kubernetes.object_keys import ObjectKey
from jobyard.executors.protocol import LiveAttempt
from jobyard.model.events import Event
from jobyard.model.job import JobSpec
from jobyard.model.task import Outcome

Object = dict[str, Any]


@dataclass(frozen=True)
class Tell:
    """The yard what was seen."""

    events: Sequence[Event]


@dataclass(frozen=True)
class Follow:
    """The output of `writer`, and the reports of `pod`: they are the attempt's."""

    live: LiveAttempt
    pod: Object
    writer: Object


@dataclass(frozen=True)
class End:
    """Tell how an attempt ended once all its output is here. Without an outcome its pod tells. `asks`: the object
    was heard of first, and its pod may be about to end."""

    live: LiveAttempt
    pod: Object | None
    outcome: Outcome | None = None
    asks: bool = False


@dataclass(frozen=True)
class Apply:
    """Make the first of these, and then what belongs to it, which goes with it; if it is there, only the rest."""

    kind: Kind
    objects: Sequence[Object]
    attempts: Sequence[LiveAttempt]
    spec: JobSpec
    is_there: bool


@dataclass(frozen=True)
class Patch:
    """`is_kept`: it is what the object should look like for as long as it stands."""

    kind: Kind
    name: str
    body: Object
    is_kept: bool = True


@dataclass(frozen=True)
class Delete:
    kind: Kind
    name: str


@dataclass(frozen=True)
class DeletePod:
    name: str
    grace_seconds: int | None = None  # None: its own


@dataclass(frozen=True)
class AskToStop:
    """At its next checkpoint."""

    live: LiveAttempt
    pod: Object


@dataclass(frozen=True)
class Signal:
    """These are ended now: by the deletions that follow."""

    attempts: Sequence[LiveAttempt]


@dataclass(frozen=True)
class LookAgain:
    """After so long. `what` is what is waited for; empty: nothing that must be remembered."""

    what: ObjectKey | str
    seconds: float


Step = Tell | Follow | End | Apply | Patch | Delete | DeletePod | AskToStop | Signal | LookAgain
