"""Kept and removed: what does a server say of jobs that have ended, and of those that go?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LeavingJob:
    """One that goes soon, with results that nobody has fetched."""

    id: str
    number: int
    name: str
    goes_at: float


@dataclass(frozen=True)
class KeptView:
    """What the yard keeps of jobs that have ended, when it last looked."""

    jobs: int
    bytes: int  # on the server's disk
    bytes_most: int  # more than this, and the oldest go
    leaving: tuple[LeavingJob, ...] = ()  # the next one first


@dataclass(frozen=True)
class RemovedJob:
    """One that has left the yard, or would leave it."""

    id: str
    number: int
    name: str
    finished_at: float | None = None
    bytes: int | None = None  # on the server's disk; None: not measured
    why: str = ""


@dataclass(frozen=True)
class RemovalView:
    jobs: tuple[RemovedJob, ...]
