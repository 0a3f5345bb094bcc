"""Fake executor: how do attempts run without a machine? In memory, where a few words of bash are known.

A command is a list of steps: `echo TEXT [>&2 | >> FILE]`, `sleep SECONDS`, `exit CODE`, `kill -SIGNAL $$`,
`trap '' TERM`, `true`, `false`. The same text run by bash does the same, so one test can ask both.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobyard.agent_protocol.exit_codes import PREEMPTED_EXIT_CODE
from jobyard.executors.environment import task_command
from jobyard.executors.protocol import AgentStatus, LiveAttempt, SubmittedJob, YardView
from jobyard.model.effects import CloseSlot, Effect, Launch, Reserve, Stop, Withdraw, Yield
from jobyard.model.events import (
    AttemptsFinished,
    AttemptsStarted,
    AttemptsWithdrawn,
    Event,
    Finished,
    NodeJoined,
    Started,
)
from jobyard.model.job import Reason
from jobyard.model.node import Device, Node
from jobyard.model.task import AttemptId, Outcome, Slot

BUILD = "fake"
Listener = Callable[[Event], None]


@dataclass(eq=False)
class _Attempt:
    """The record of one attempt; it stays when the attempt has ended."""

    id: AttemptId
    slot: str
    argv: Sequence[str]
    grace_seconds: float
    timeout_seconds: float | None
    started_at: float | None = None
    outcome: Outcome | None = None
    is_withdrawn: bool = False
    is_superseded: bool = False
    is_yielding: bool = False  # asked to stop at a checkpoint
    message: str = ""
    ignores_term: bool = False
    signals: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    @property
    def is_over(self) -> bool:
        return self.outcome is not None or self.is_withdrawn

    @property
    def runs(self) -> bool:
        return self.started_at is not None and not self.is_over


class _Killed(Exception):
    def __init__(self, number: int, reason: Reason | None = None) -> None:
        self.number = number
        self.reason = reason


class FakeMachine:
    """What outlives a connection: the attempts, their records and output. Lives in the event loop that launches."""

    build = BUILD

    def __init__(self, directory: Path, cpus: float = 4, memory_mib: int = 16384, devices: tuple[Device, ...] = ()):
        self.state_dir = directory
        self.cpu_millis = int(cpus * 1000)
        self.memory_mib = memory_mib
        self.devices = devices
        self.attempts: dict[AttemptId, _Attempt] = {}
        self.listener: Listener | None = None
        self.reachable = asyncio.Event()
        self.reachable.set()
        self.lost = asyncio.Event()  # the link that there was is gone
        self._queues: dict[str, deque[_Attempt]] = {}
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._timers: set[asyncio.Task[None]] = set()
        directory.mkdir(parents=True, exist_ok=True)

    def log_path(self, attempt: AttemptId, stream: str) -> Path:
        return self.state_dir / f"{attempt}.{stream}"

    # -- what a connection asks for

    def launch(self, slot: str, attempts: Iterable[_Attempt]) -> None:
        """Run these one after another; one that is known already is left as it is."""
        queue = self._queues.setdefault(slot, deque())
        for attempt in attempts:
            if attempt.id not in self.attempts:
                self.attempts[attempt.id] = attempt
                queue.append(attempt)
        lane = self._lanes.get(slot)
        if queue and (lane is None or lane.done()):
            self._lanes[slot] = asyncio.create_task(self._run_lane(queue), name=f"fake slot {slot}")

    def withdraw(self, ids: Iterable[AttemptId]) -> None:
        """Give back what has not started; leave the rest alone."""
        for attempt in (self.attempts.get(name) for name in ids):
            if attempt is not None and attempt.started_at is None and not attempt.is_over:
                attempt.is_withdrawn = True
                if not attempt.is_superseded:
                    self._tell(AttemptsWithdrawn((attempt.id,), time.time()))

    def stop(self, ids: Sequence[AttemptId], grace_seconds: float) -> None:
        self.withdraw(ids)
        for attempt in (self.attempts.get(name) for name in ids):
            if attempt is not None and attempt.runs:
                attempt.is_yielding = False
                self._later(self._end(attempt, grace_seconds))

    def ask_to_yield(self, ids: Sequence[AttemptId], deadline_seconds: float, grace_seconds: float) -> None:
        """What has not started never will; what runs may exit by itself, until the deadline."""
        self.withdraw(ids)
        for attempt in (self.attempts.get(name) for name in ids):
            if attempt is not None and attempt.runs and not attempt.is_yielding:
                attempt.is_yielding = True
                self._later(self._end_late(attempt, deadline_seconds, grace_seconds))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        timer = asyncio.create_task(work)
        self._timers.add(timer)
        timer.add_done_callback(self._timers.discard)

    def reconcile(self, live: Sequence[AttemptId]) -> list[AttemptId]:
        """Report on what is believed to be here, end the rest unreported; answers with what is unknown."""
        strangers = [attempt for name, attempt in self.attempts.items() if name not in live and not attempt.is_over]
        for attempt in strangers:
            attempt.is_superseded = True
            self.stop([attempt.id], attempt.grace_seconds)
        for name in live:
            if name in self.attempts:
                self._report(self.attempts[name])
        return [name for name in live if name not in self.attempts]

    def cut(self) -> None:
        """The link is gone; what runs goes on."""
        self.reachable.clear()
        self.drop()

    def drop(self) -> None:
        self.listener = None
        self.lost.set()

    async def close(self) -> None:
        tasks = [*self._lanes.values(), *self._timers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- running

    async def _run_lane(self, queue: deque[_Attempt]) -> None:
        while queue:
            attempt = queue.popleft()
            if attempt.is_withdrawn:
                continue
            attempt.started_at = time.time()
            self._tell(AttemptsStarted((Started(attempt.id, attempt.started_at),), time.time()))
            attempt.outcome = await self._run(attempt, attempt.started_at)
            if not attempt.is_superseded:
                self._report(attempt)

    async def _run(self, attempt: _Attempt, started_at: float) -> Outcome:
        code: int | None = None
        number: int | None = None
        reason: Reason | None = None
        try:
            async with asyncio.timeout(attempt.timeout_seconds):
                code = await self._run_steps(attempt)
        except TimeoutError:
            number, reason = signal.SIGTERM, Reason.TIMEOUT
        except _Killed as killed:
            number, reason = killed.number, killed.reason
        if attempt.is_yielding and (code == PREEMPTED_EXIT_CODE or (number is not None and reason is None)):
            reason = Reason.PREEMPTED
        return Outcome(started_at, time.time(), code, number, reason, attempt.message)

    async def _run_steps(self, attempt: _Attempt) -> int:
        code = 0
        for stream in ("out", "err"):
            self.log_path(attempt.id, stream).touch()
        for words in _steps(attempt.argv):
            match words:
                case ["echo", *rest]:
                    self._echo(attempt, rest)
                    code = 0
                case ["sleep", seconds]:
                    await self._sleep(attempt, float(seconds))
                    code = 0
                case ["exit", status]:
                    return int(status)
                case ["kill", number, "$$"]:
                    raise _Killed(int(number.lstrip("-")))
                case ["trap", "", "TERM"]:
                    attempt.ignores_term = True
                case ["true"] | ["false"]:
                    code = int(words == ["false"])
                case _:
                    return 127
        return code

    def _echo(self, attempt: _Attempt, words: Sequence[str]) -> None:
        path = self.log_path(attempt.id, "out")
        match words:
            case [*words, ">&2"]:
                path = self.log_path(attempt.id, "err")
            case [*words, ">>", file]:
                path = Path(file)
        with path.open("a") as output:
            output.write(" ".join(words) + "\n")

    async def _sleep(self, attempt: _Attempt, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with suppress(TimeoutError):
                number = await asyncio.wait_for(attempt.signals.get(), left)
                if number == signal.SIGKILL or not attempt.ignores_term:
                    raise _Killed(number)

    async def _end(self, attempt: _Attempt, grace_seconds: float) -> None:
        if grace_seconds > 0:
            attempt.signals.put_nowait(signal.SIGTERM)
            await asyncio.sleep(grace_seconds)
        attempt.signals.put_nowait(signal.SIGKILL)

    async def _end_late(self, attempt: _Attempt, deadline_seconds: float, grace_seconds: float) -> None:
        await asyncio.sleep(deadline_seconds)
        if attempt.is_yielding and not attempt.is_over:
            if deadline_seconds:
                late = f"did not stop at a checkpoint within {deadline_seconds:g} s"
                attempt.message = f"{late}; ended by {'SIGTERM' if grace_seconds else 'SIGKILL'}"
            await self._end(attempt, grace_seconds)

    # -- telling

    def _report(self, attempt: _Attempt) -> None:
        if attempt.outcome is not None:
            self._tell(AttemptsFinished((Finished(attempt.id, attempt.outcome),), time.time()))
        elif attempt.is_withdrawn:
            self._tell(AttemptsWithdrawn((attempt.id,), time.time()))
        elif attempt.started_at is not None:
            self._tell(AttemptsStarted((Started(attempt.id, attempt.started_at),), time.time()))

    def _tell(self, event: Event) -> None:
        if self.listener is not None:
            self.listener(event)


class FakeExecutor:
    """The promises of `protocol.Executor` on a FakeMachine. What is sent while it is cut off waits for reconcile."""

    name = "fake"

    def __init__(
        self, node: str, machine: FakeMachine, yard: YardView, yard_id: str = "", respawn: Sequence[str] = ()
    ) -> None:
        self.node = node
        self._machine = machine
        self._yard = yard
        self._seen: asyncio.Queue[list[Event]] = asyncio.Queue()

    async def run(self) -> None:
        while True:
            await self._machine.reachable.wait()
            self._machine.lost.clear()
            await self._yard.journalled()
            self._connect()
            await self._machine.lost.wait()

    def _connect(self) -> None:
        machine = self._machine
        self._seen.put_nowait([NodeJoined(node, time.time()) for node in self._nodes()])
        machine.listener = lambda event: self._seen.put_nowait([event])
        live = self._yard.live_attempts(self.node)
        absent = set(machine.reconcile([item.attempt for item in live]))
        for item in live:
            if item.is_stopping:  # the stop may never have reached the machine
                self._stop(item)
        never = tuple(item.attempt for item in live if item.attempt in absent and item.is_stopping)
        if never:
            self._seen.put_nowait([AttemptsWithdrawn(never, time.time())])
        for item in live:
            if item.attempt in absent and not item.is_stopping:
                self._launch(item.slot, [item.attempt])

    def _nodes(self) -> list[Node]:
        machine = self._machine
        return [Node(self.node, self.name, machine.cpu_millis, machine.memory_mib, machine.devices, boot_id="fake")]

    def _stop(self, item: LiveAttempt) -> None:
        grace = self._yard.job(item.attempt.job).spec.policy.grace_seconds
        if item.is_yielding:
            self._machine.ask_to_yield([item.attempt], 0.0 if item.at_once else item.yield_seconds, grace)
        else:
            self._machine.stop([item.attempt], grace)

    async def observations(self) -> AsyncIterator[Sequence[Event]]:
        while True:
            yield await self._seen.get()

    def perform(self, effects: Sequence[Effect]) -> None:
        if not self.status().is_connected:
            return
        for effect in effects:
            match effect:
                case Launch(slot=slot, attempts=attempts):
                    self._launch(slot, attempts)
                case Stop(attempts=attempts, grace_seconds=grace):
                    self._machine.stop(attempts, grace)
                case Yield(attempts=attempts, deadline_seconds=deadline, grace_seconds=grace, at_once=at_once):
                    self._machine.ask_to_yield(attempts, 0.0 if at_once else deadline, grace)
                case Withdraw(attempts=attempts):
                    self._machine.withdraw(attempts)
                case CloseSlot() | Reserve():
                    pass  # an idle lane costs nothing, and nothing is measured

    def _launch(self, slot: Slot, attempts: Sequence[AttemptId]) -> None:
        job = self._yard.job(slot.job)
        spec = job.spec
        self._machine.launch(
            slot.id,
            [
                _Attempt(a, slot.id, task_command(spec, a.task), spec.policy.grace_seconds, spec.policy.timeout_seconds)
                for a in attempts
            ],
        )

    def announce(self, is_busy: bool) -> None:
        pass  # it could not bring a server back

    async def check(self, job: SubmittedJob) -> None:
        """It refuses nothing."""

    def preview(self, job: SubmittedJob, launch: Launch) -> str:
        lines = [f"{attempt}: {shlex.join(task_command(job.spec, attempt.task))}" for attempt in launch.attempts]
        return "\n".join([f"slot {launch.slot.id} on {launch.node}", *lines])

    def log_path(self, attempt: AttemptId, stream: str) -> str:
        return str(self._machine.log_path(attempt, stream))

    async def probe(self) -> None:
        """There is nothing to measure."""

    def dismiss(self) -> None:
        """Nothing of it outlives the server anyway."""

    def reconnect(self) -> None:
        self._machine.drop()

    def status(self) -> AgentStatus:
        is_connected = self._machine.listener is not None
        return AgentStatus(self.node, None, BUILD, is_connected, "" if is_connected else "the fake machine is cut off")


def _steps(argv: Sequence[str]) -> list[list[str]]:
    """`bash -c "a; b"` is two steps, any other command is one."""
    if list(argv[:2]) != ["bash", "-c"]:
        return [list(argv)]
    lexer = shlex.shlex(argv[2], posix=True, punctuation_chars=";")
    lexer.whitespace_split = True
    steps: list[list[str]] = [[]]
    for word in lexer:
        if word == ";":
            steps.append([])
        else:
            steps[-1].append(word)
    return [step for step in steps if step]
