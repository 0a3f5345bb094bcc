"""Running executors: which places does a yard use now, and who of them carries out which effect?"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence

from jobyard.errors import Unavailable
from jobyard.executors.protocol import Executor
from jobyard.model.effects import Effect, Launch
from jobyard.model.events import AttemptsFinished, Event, Finished
from jobyard.model.job import Reason
from jobyard.model.node import place_of
from jobyard.model.task import Outcome
from jobyard.server.error_counts import ErrorCounts


class RunningExecutors:
    """Each with the tasks that run it. `observed` gets what they see; one that is not started only finds output."""

    def __init__(self, observed: Callable[[Sequence[Event]], None], errors: ErrorCounts) -> None:
        self._observed = observed
        self._errors = errors
        self._tasks: dict[Executor, list[asyncio.Task[None]]] = {}

    def __iter__(self) -> Iterator[Executor]:
        return iter(self._tasks)

    def of(self, node: str) -> Executor | None:
        """That of a machine, of a cluster, or of the cluster that a node belongs to."""
        place = place_of(node)
        return next((executor for executor in self._tasks if executor.status().node == place), None)

    # -- coming and going ----------------------------------------------------------------------------------------------

    def add(self, executor: Executor) -> None:
        self._tasks[executor] = []

    def start(self, executor: Executor) -> None:
        node = executor.status().node
        self._tasks[executor] = [
            asyncio.create_task(executor.run(), name=f"executor of {node}"),
            asyncio.create_task(self._observe(executor), name=f"observe {node}"),
        ]

    async def restart(self) -> None:
        waiting = dict(self._tasks)
        await self.stop()  # so that none runs twice
        for executor, tasks in waiting.items():
            if self._tasks.get(executor) is tasks:  # it was not removed meanwhile, and nobody else has started it
                self.start(executor)

    def remove(self, node: str) -> None:
        """Let an executor go; nothing where there is none of that node."""
        if executor := self.of(node):
            executor.dismiss()
            for task in self._tasks.pop(executor):
                task.cancel()

    async def stop(self) -> None:
        """Stop all executors; they stay known, so that they can be started again."""
        tasks: Collection[asyncio.Task[None]] = [task for own in self._tasks.values() for task in own]
        while tasks:
            for task in tasks:
                task.cancel()
            # Cancel again where a library has swallowed the cancellation, as wait_for of Python 3.11 does.
            _, tasks = await asyncio.wait(tasks, timeout=1.0)

    async def _observe(self, executor: Executor) -> None:
        async for events in executor.observations():
            self._observed(events)

    # -- acting --------------------------------------------------------------------------------------------------------

    def announce(self, is_busy: bool) -> None:
        for executor in self._tasks:
            executor.announce(is_busy)

    def reconnect(self) -> None:
        for executor in self._tasks:
            executor.reconnect()

    def dismiss(self) -> None:
        for executor in self._tasks:
            executor.dismiss()

    def perform(self, effects: Sequence[Effect]) -> None:
        """An error with one effect concerns that effect alone."""
        by_place: defaultdict[str, list[Effect]] = defaultdict(list)
        for effect in effects:
            by_place[place_of(effect.node)].append(effect)
        for executor in self._tasks:
            if own := by_place.get(executor.status().node):
                try:
                    executor.perform(own)
                except Exception:  # effects may be repeated: this time one by one, to see whose it is
                    for effect in own:
                        self._perform(executor, effect)

    def _perform(self, executor: Executor, effect: Effect) -> None:
        try:
            executor.perform([effect])
        except Exception as error:
            self._errors.note("effect", f"{effect} failed ({error!r})", error)
            if isinstance(effect, Launch) and not isinstance(error, Unavailable):
                now = time.time()
                outcome = Outcome(now, now, reason=Reason.REFUSED, message=f"it cannot be launched ({error})")
                self._observed([AttemptsFinished(tuple(Finished(each, outcome) for each in effect.attempts), now)])
