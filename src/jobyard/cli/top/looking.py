"""Look at the yard: which jobs and nodes does `yard top` show, by which words, and in which order?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobyard.client.api import YardClient
from jobyard.model.job import State
from jobyard.wire.views import JobView, NodeView

ROWS_MOST = 200
ORDERS: dict[str, Callable[[JobView], tuple[object, ...]]] = {
    "newest first": lambda job: (-job.number,),
    "state": lambda job: (list(State).index(job.state), -job.number),
    "failures first": lambda job: (-job.counts.failed, -job.number),
    "longest first": lambda job: (job.state.is_final, job.started_at or float("inf"), -job.number),
    "name": lambda job: (job.name, -job.number),
}


@dataclass(frozen=True)
class JobWords:
    """What a person typed to see some jobs only: a state, @user, or a part of the name."""

    state: str | None = None
    user: str | None = None
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> JobWords:
        state = user = None
        parts: list[str] = []
        for word in text.split():
            if word.upper() in State.__members__:
                state = word.upper()
            elif word.startswith("@"):
                user = word[1:] or None
            else:
                parts.append(word)
        return cls(state, user, f"*{'*'.join(parts)}*" if parts else None)

    def __str__(self) -> str:
        """As they may be typed again."""
        words = (self.state and self.state.lower(), self.user and f"@{self.user}", (self.name or "").replace("*", " "))
        return " ".join(" ".join(filter(None, words)).split())

    @property
    def are_any(self) -> bool:
        return self != JobWords()


@dataclass(frozen=True)
class Look:
    jobs: tuple[JobView, ...]
    total: int
    nodes: tuple[NodeView, ...]


def look(client: YardClient, words: JobWords) -> Look:
    """One page of jobs, chosen by the server, and all nodes."""
    jobs, total = client.first_jobs(ROWS_MOST, all=words.are_any, state=words.state, user=words.user, name=words.name)
    return Look(jobs, total, client.nodes())


def in_order(jobs: Sequence[JobView], order: str) -> list[JobView]:
    return sorted(jobs, key=ORDERS[order])
