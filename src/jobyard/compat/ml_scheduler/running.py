"""Running jobs: how are the jobs of a command followed to their end, and what is printed meanwhile?"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jobyard.client.api import YardClient
from jobyard.client.events import events
from jobyard.compat.ml_scheduler.batch import Run
from jobyard.compat.ml_scheduler.console import say, tell
from jobyard.compat.ml_scheduler.story import Story
from jobyard.console import Feed, Interrupts, StreamBroken, StreamEnded
from jobyard.model.events import Event
from jobyard.model.job import State
from jobyard.wire.views import JobView, LogChunk

LOOK_SECONDS = 0.5  # so often the jobs themselves are looked at
SHORT_WAIT_SECONDS = 1.0  # a job that starts within it was not waiting
LAST_OUTPUT_SECONDS = 30.0  # after the end of a job; what has not come by then is in its results
TASKS_MOST = 1_000_000


class TerminalClosed(Exception):
    """A signal asked us to leave; the jobs go on."""

    def __init__(self, number: int) -> None:
        self.number = number


class Interrupted(Exception):
    """Ctrl-C: the jobs were cancelled, and have ended."""


def run_to_end(
    client: YardClient,
    runs: Sequence[Run],
    *,
    shows_gpus: bool,
    tells: bool = True,
    show: Callable[[LogChunk], None] | None = None,
) -> list[JobView]:
    """Submit, tell what happens, and answer with the jobs at their end. `show` gets the output of a single task.

    Ctrl-C cancels the jobs and waits for them, then raises Interrupted; twice kills them. SIGHUP raises TerminalClosed.
    """
    since = client.server().last_event
    feed = Feed()
    jobs: dict[str, Run] = {}

    def pressed(times: int) -> None:
        _cancel(client, feed, list(jobs), force=times > 1)

    with Interrupts(pressed, lambda number: feed.put(TerminalClosed(number))) as interrupts:
        # 1. Submit. A Ctrl-C during it is kept, so that what is in the journal already is cancelled too.
        for run in runs:
            if not interrupts.presses:
                view = client.submit(run.spec)
                jobs[view.id] = run
                for note in view.notes:
                    say(f"note: {note}")
        if interrupts.presses:
            pressed(1)
        # 2. Tell.
        story = Story(jobs, shows_gpus=shows_gpus)
        feed.read("events", lambda: events(client, since))
        if show is not None and len(jobs) == 1:
            feed.read("logs", lambda: client.logs(next(iter(jobs)), follow=True))
        ended = _follow(client, feed, story, tell if tells else _keep, list(jobs), show)
        # 3. What no event reported.
        for job in jobs if tells else ():
            for line in story.unreported(job, client.tasks(job, limit=TASKS_MOST)):
                tell(line)
    if interrupts.presses:
        raise Interrupted
    return ended


def _follow(
    client: YardClient,
    feed: Feed,
    story: Story,
    tell: Callable[[str], None],
    jobs: list[str],
    show: Callable[[LogChunk], None] | None,
) -> list[JobView]:
    shows_all, look_at, last_output_by = show is None, 0.0, math.inf
    waits = Waits()
    while True:
        item = feed.next(min(LOOK_SECONDS, look_at - time.monotonic()))
        match item:
            case TerminalClosed():
                raise item
            case Event():
                for line in story.hear(item):
                    tell(line)
            case LogChunk() if show is not None:
                show(item)
            case StreamEnded("logs"):
                shows_all = True
            case StreamBroken("cancel" | "logs" as source, error):
                say(f"{source}: {error}")
                shows_all = shows_all or source == "logs"
            case StreamBroken(_, error):
                raise error
        now = time.monotonic()
        if story.is_over or now >= look_at:
            look_at = now + LOOK_SECONDS
            views = [client.job(job) for job in jobs]
            waits.look(views, now)
            if all(view.state.is_final for view in views):
                last_output_by = min(last_output_by, now + LAST_OUTPUT_SECONDS)
                if shows_all or now >= last_output_by:
                    return views


class Waits:
    """Says why a job does not start, once it has waited for a while."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._said: set[str] = set()

    def look(self, views: Sequence[JobView], now: float) -> None:
        for view in views:
            if view.state is not State.PENDING or not view.message:
                self._since.pop(view.id, None)
            elif now - self._since.setdefault(view.id, now) >= SHORT_WAIT_SECONDS and view.message not in self._said:
                self._said.add(view.message)
                say(f"waiting: {view.message}")


def _keep(line: str) -> None:
    """Show nothing."""


def _cancel(client: YardClient, feed: Feed, jobs: Sequence[str], *, force: bool) -> None:
    """In a thread: a signal handler calls this, and the server may be away."""

    def cancel() -> Iterator[Any]:
        for job in jobs:
            client.cancel(job, force=force, message="cancelled by Ctrl-C")
        yield None

    feed.read("cancel", cancel)
