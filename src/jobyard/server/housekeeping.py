"""Housekeeping: what goes by itself, and how do its files go? What is stored is compared with what is known.

Nothing is remembered of what is still to be deleted. So it is safe to repeat, a server that dies in the middle leaves
nothing behind, and a machine that was away gets its turn when it is back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from jobyard.engine.forgetting import why_it_stays
from jobyard.engine.retention import EndedJob, GoingJob, RetentionRules, choose_going, goes_at, unfetched_soon
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import CanForget
from jobyard.model.effects import Forget
from jobyard.model.units import show_seconds
from jobyard.server.loop import YardLoop
from jobyard.server.removing import forget, removable, removed_view
from jobyard.server.rights import Caller
from jobyard.server.stored_files import EndedFiles, Measured, StoredFiles
from jobyard.settings import KeepKnobs
from jobyard.staging.tree_snapshot import prune, store_of
from jobyard.wire.kept import KeptView, LeavingJob, RemovedJob

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0  # is there a machine that was not looked at since it was connected?
EVERY_SECONDS = 3600.0  # between two times that old jobs go, also over the life of several servers
START_SECONDS = 20.0  # first a server that was just started does what it was started for
ANNOUNCED_SECONDS = 14 * 86400.0  # before results go that nobody has fetched
LEAVING_MOST = 100  # that are named
AT_ONCE = 100  # jobs that are forgotten in one go; nobody waits for more than that


class Housekeeping:
    """Of one yard. `run` lets old jobs go each hour, and looks after each machine that was connected."""

    def __init__(self, loop: YardLoop, directory: Path, mirror: Mirror, rules: RetentionRules) -> None:
        self._loop = loop
        self.before_removal: Callable[[Iterable[str]], Awaitable[None]] | None = None  # while their files are copied
        self._store = store_of(directory)
        self._mirror = mirror
        self._rules = rules
        self.files = StoredFiles(directory)
        self.kept: KeptView | None = None
        self._one_at_a_time = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._seen: frozenset[tuple[str, int | None]] = frozenset()  # machines with the agents that were looked at
        ahead = min(EVERY_SECONDS, self.files.looked_at + EVERY_SECONDS - time.time())  # the clock may have been ahead
        self._due = time.monotonic() + max(START_SECONDS, ahead)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    async def remove_named(self, selectors: Sequence[str], caller: Caller) -> tuple[RemovedJob, ...]:
        """All of these jobs, or none: raises UserError where one is still needed."""
        views = {job.id: removed_view(job) for job in removable(self._loop.state, selectors, caller)}
        return tuple(views[job] for job in await self.remove(list(views), caller.name))

    async def collect(self, by: str, *, dry_run: bool) -> tuple[RemovedJob, ...]:
        """What would go within the hour goes now, or is only named."""
        going = await self.going()
        known = self._loop.state.jobs
        views = {
            each.job: removed_view(known[each.job], measured.bytes, each.why)
            for each, measured in going
            if each.job in known
        }
        return tuple(views[job] for job in (list(views) if dry_run else await self.remove(list(views), by)))

    async def remove(self, jobs: Sequence[str], by: str = "") -> tuple[str, ...]:
        """Forget those of these jobs that nothing needs, and say which; their files go soon after."""
        gone: list[str] = []
        for begin in range(0, len(jobs), AT_ONCE):
            some = jobs[begin : begin + AT_ONCE]
            if self.before_removal is not None:
                await self.before_removal(some)
            await self._loop.remember(some)  # first: it tells their files from those of jobs that were never here
            gone += await self._loop.ask(forget(some, by))
        if gone:
            self._wanted.set()
        return tuple(gone)

    async def going(self) -> list[tuple[GoingJob, Measured]]:
        """The jobs that would go now by their age, number or size, and what they take."""
        state = self._loop.state
        ended = [job for job in state.jobs.values() if job.is_final]
        needed = {job.id for job in ended if job.spec.policy.keep or why_it_stays(state, job)}
        files = [
            EndedFiles(job.id, job.times.finished_at or job.times.submitted_at, bool(job.spec.staging.results_dir))
            for job in ended
        ]
        async with self._one_at_a_time:
            measured = await asyncio.to_thread(self.files.measure, files)
        found = [
            EndedJob(job, each.finished_at, each.bytes, each.has_results, job in needed)
            for job, each in measured.items()
        ]
        self.kept = self._kept(found)
        return [(each, measured[each.job]) for each in choose_going(found, self._rules, time.time())]

    def notes_on(self, job: str) -> list[str]:
        """For people: that it goes soon, with results that nobody has fetched."""
        leaving = [each for each in self.kept.leaving if each.id == job] if self.kept else []
        days = [show_seconds(max(0.0, each.goes_at - time.time())) for each in leaving]
        return [
            f"it has results that are only in the yard, and goes in {each}; fetch or copy them before" for each in days
        ]

    def _kept(self, ended: Sequence[EndedJob]) -> KeptView:
        jobs = self._loop.state.jobs
        leaving = tuple(
            LeavingJob(each.job, jobs[each.job].number, jobs[each.job].spec.name, goes_at(each, self._rules))
            for each in unfetched_soon(ended, self._rules, time.time() + ANNOUNCED_SECONDS)
            if each.job in jobs
        )
        return KeptView(len(ended), sum(each.bytes for each in ended), self._rules.bytes, leaving[:LEAVING_MOST])

    # -- by itself -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._something_to_do()
                await self._do_it()
        finally:
            self.files.stop()  # a thread that measures holds up the end of the process

    async def _do_it(self) -> None:
        try:
            if time.monotonic() >= self._due and not self._loop.read_only:
                self._due = time.monotonic() + EVERY_SECONDS
                if gone := await self.remove([each.job for each, _ in await self.going()]):
                    log.info("%d jobs went: too old, too many or too large", len(gone))
            await self.delete_forgotten()
            await self._pack()
        except Exception as error:  # the next look repeats it
            self._loop.count_error("housekeeping", f"what nobody needs could not be removed ({error!r})", error)

    async def _something_to_do(self) -> None:
        while not self._wanted.is_set() and self._connected() <= self._seen and time.monotonic() < self._due:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wanted.wait()
            except TimeoutError:
                continue
        self._wanted.clear()
        self._seen = self._connected()

    def _connected(self) -> frozenset[tuple[str, int | None]]:
        statuses = (each.status() for each in self._loop.executors if isinstance(each, CanForget))
        return frozenset((status.node, status.pid) for status in statuses if status.is_connected)

    # -- files ---------------------------------------------------------------------------------------------------------

    async def delete_forgotten(self) -> None:
        """Remove what is stored of jobs that were forgotten. What this yard has never heard of is left alone."""
        if self._loop.read_only:
            return
        here = await asyncio.to_thread(self._mirror.jobs)
        gone = await self._loop.forgotten(here)
        await asyncio.to_thread(self._mirror.forget, gone)
        for executor in self._loop.executors:
            if isinstance(executor, CanForget):
                await self._delete_on_machine(executor)
        if all(damage.is_accepted for damage in self._loop.damages):  # otherwise jobs may be missing that need them
            await self._delete_here()

    async def _pack(self) -> None:
        """Of jobs that have ended, output that came from other machines."""

        def has_ended(job: str) -> bool:
            known = self._loop.state.jobs.get(job)
            return known is not None and known.is_final

        if not self._loop.read_only:
            here = await asyncio.to_thread(self._mirror.jobs)
            await asyncio.to_thread(self._mirror.pack, [job for job in here if has_ended(job)], has_ended)

    async def _delete_on_machine(self, executor: CanForget) -> None:
        stored = await executor.stored()
        if stored is None:
            return
        jobs = sorted(await self._loop.forgotten(stored.jobs))
        trees = self._unneeded(stored.snapshots)
        node = executor.status().node
        for begin in range(0, max(len(jobs), 1), AT_ONCE):
            some, trees = jobs[begin : begin + AT_ONCE], () if begin else trees
            if some or trees:
                executor.perform([Forget(node, tuple(some), trees)])

    async def _delete_here(self) -> None:
        """Trees of files, and variables of shells, that belong to no job any more."""
        needed = self._trees()
        await asyncio.to_thread(prune, self._store, needed)
        if self._loop.environments is not None:
            self._loop.environments.delete_unneeded(self._loop.state, time.time(), orphans=not self._loop.damages)

    def _unneeded(self, trees: Iterable[str]) -> tuple[str, ...]:
        if not all(damage.is_accepted for damage in self._loop.damages):
            return ()
        return tuple(sorted(set(trees) - self._trees()))

    def _trees(self) -> set[str]:
        return {job.spec.staging.snapshot for job in self._loop.state.jobs.values()}


def rules_of(knobs: KeepKnobs) -> RetentionRules:
    return RetentionRules(
        knobs.keep_seconds,
        knobs.keep_unfetched_seconds,
        knobs.keep_least_seconds,
        knobs.keep_jobs,
        knobs.keep_mib << 20,
    )
