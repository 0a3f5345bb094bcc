"""Round: what do the commands and observations of one pass of the loop do to the state, and whose fault is an error?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jobyard.engine import concerns
from jobyard.engine.blaming import Poisoned
from jobyard.engine.handling import handle
from jobyard.engine.planner import Planner
from jobyard.engine.yard_state import YardState
from jobyard.errors import Bug, YardError
from jobyard.model.effects import Effect
from jobyard.model.events import CancelRequested, Event, JobSubmitted
from jobyard.server.error_counts import ErrorCounts
from jobyard.server.ignored_events import IgnoredEvents

T = TypeVar("T")

# A command looks at the state and answers with the events that it makes and the result; it raises UserError otherwise.
Command = Callable[[YardState, float], tuple[Sequence[Event], T]]


@dataclass
class Asked:
    command: Command[Any]
    answer: asyncio.Future[Any]

    def refuse(self, error: YardError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


Item = Asked | Sequence[Event]


class Spoiled(Exception):
    """An error after the state had begun to change. It belongs to `asked`, or to `jobs`; None: not known."""

    def __init__(self, asked: Asked | None, event: Event | None, jobs: frozenset[str] | None) -> None:
        super().__init__(type(event).__name__ if event else "deciding")
        self.asked = asked
        self.event = event
        self.jobs = jobs


@dataclass
class Round:
    """What is to be journalled, carried out and answered, in this order."""

    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    answers: list[tuple[Asked, Any]] = field(default_factory=list)
    jobs: set[str] | None = field(default_factory=set)  # those that the events concern; None: the whole yard
    ends_quarantine: bool = False  # executors must report its attempts again
    made: dict[str, Asked] = field(default_factory=dict)  # jobs submitted in this round: not on disk yet


def run(planner: Planner, batch: Iterable[Item], now: float, ignored: IgnoredEvents, errors: ErrorCounts) -> Round:
    """Apply all of it, then let the engine decide. Raises Spoiled; the state must then be thrown away."""
    done, state = Round(), planner.state
    for item in batch:
        if not isinstance(item, Asked):
            _apply(state, done, None, (event for event in item if event not in ignored))
            continue
        try:
            happened, result = item.command(state, now)
        except YardError as error:
            item.refuse(error)
        except Exception as error:  # nothing has changed yet: only this caller is affected
            errors.note("command", f"a command failed ({error!r})", error)
            item.refuse(failed(error))
        else:
            _apply(state, done, item, happened)
            done.answers.append((item, result))
    try:
        _apply(state, done, None, planner.decide(now))
        done.effects.extend(planner.withdrawals(now))
    except Poisoned as error:
        raise Spoiled(done.made.get(error.job), None, frozenset((error.job,))) from error.__cause__
    except Spoiled as spoiled:
        spoiled.asked = next((done.made[job] for job in spoiled.jobs or () if job in done.made), None)
        raise
    except Exception as error:
        raise Spoiled(None, None, None) from error
    return done


def _apply(state: YardState, done: Round, asked: Asked | None, happened: Iterable[Event]) -> None:
    for event in happened:
        jobs = concerns.jobs_of(state, event)
        if isinstance(event, CancelRequested) and event.job in state.quarantined:
            done.ends_quarantine = True
        try:
            done.effects.extend(handle(state, event))
        except Exception as error:
            raise Spoiled(asked, event, jobs) from error
        if asked is not None and isinstance(event, JobSubmitted):
            done.made[event.job] = asked
        if not event.ephemeral:
            done.events.append(event)
            if jobs is None:
                done.jobs = None
            elif done.jobs is not None:
                done.jobs |= jobs


def failed(error: BaseException | None) -> Bug:
    return Bug(f"the server failed ({type(error).__name__}: {error}); its log has the details")
