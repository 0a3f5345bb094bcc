"""How do attempts run on machines? Through the agent there: one connection of JSON lines, reconciled once made."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from jobyard.agent_protocol import faults, records
from jobyard.errors import Rejected, Unavailable, YardError
from jobyard.executors.arrivals import Arrivals, Homecoming
from jobyard.executors.environment import job_environment, task_command, task_environment
from jobyard.executors.heard import LARGEST_LINE, Heard, welcome_problem
from jobyard.executors.measurement import Measurements
from jobyard.executors.protocol import AgentStatus, LiveAttempt, SubmittedJob, YardView
from jobyard.executors.reports import Reports, progress_of, used
from jobyard.model.effects import CloseSlot, Effect, Launch, Reserve, Stop, Withdraw, Yield
from jobyard.model.events import (
    AttemptsFinished,
    AttemptsStarted,
    AttemptsWithdrawn,
    Event,
    Finished,
    NodeJoined,
    NodeLost,
    NodeWentAway,
    Started,
)
from jobyard.model.job import JobSpec, Reason
from jobyard.model.node import Device, Node
from jobyard.model.resources import Resources
from jobyard.model.task import AttemptId, Outcome, Slot

PROTOCOL = 1
RECONNECT_SECONDS = (0.05, 0.2, 1.0, 2.0, 5.0)
WELCOME_SECONDS = 20.0
PROBE_SECONDS = 5.0
CLOCK_SECONDS = 1.0  # clocks that differ by less count as the same
REFUSED_SECONDS = 0.25  # before another try at room that other yards hold

log = logging.getLogger(__name__)


class Transport(Protocol):
    """A way to reach one machine's agent."""

    build: str
    address: str  # by which other machines reach it, once connected; empty: not known
    sees_us_as: str  # by which it would reach this machine

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises Unavailable with a sentence."""

    async def send_snapshot(self, snapshot: str, tar: Path) -> None:
        """Bring a tree to the machine. Raises Unavailable, or Rejected when it cannot be put there.

        Never asked of a machine that shares our disk.
        """


class MachineExecutor:
    """One machine, through its agent. What is sent while nobody is connected is settled by the next reconcile."""

    def __init__(
        self,
        name: str,
        node: str,
        transport: Transport,
        yard: YardView,
        hello: Mapping[str, Any],
        files: Path,
        home: Homecoming | None = None,
        *,
        owner_only: bool = False,
        shares_disk: bool = False,
    ) -> None:
        """`shares_disk`, with `home`: tasks find their directory where it is, though what they write is sent.
        `files` is where attempts' output is found on this disk; without `home` the agent writes it there itself."""
        self.name = name
        self.node = node
        self._transport = transport
        self._yard = yard
        self._files = files
        self._home = home
        self._owner_only = owner_only
        self._shares_disk = shares_disk or home is None
        self._hello = {"op": "hello", "protocol": PROTOCOL, "ship": home is not None, **hello}
        self._lease: asyncio.TimerHandle | None = None
        self._ahead_seconds = 0.0  # of its clock before ours
        self._sending: dict[str, asyncio.Task[None]] = {}  # snapshots on their way
        self._seen: asyncio.Queue[list[Event]] = asyncio.Queue()
        self._arrivals = Arrivals(node, home, yard, self._seen.put_nowait, self.reconnect) if home else None
        self._writer: asyncio.StreamWriter | None = None
        self._known_jobs: dict[str, int] = {}  # with as many tasks as they had
        self._described: Node | None = None
        self._pid: int | None = None
        self._build = ""
        self._problem = ""
        self._announced = False
        self._measured = asyncio.Event()
        self._measurements = Measurements(node)
        self._reports = Reports()
        self._heard = Heard(node, yard)
        self._joining: list[Event] = []  # what is said with the first measurement after a connection was made
        self._refused: list[Event] | None = None  # what was given back, until we know who holds the room

    # -- being connected -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        arriving = asyncio.create_task(self._arrivals.run()) if self._arrivals else None
        try:
            await self._stay_connected()
        finally:
            for task in (arriving, *self._sending.values()):
                if task is not None:
                    task.cancel()

    async def _stay_connected(self) -> None:
        failures = 0
        self._go_away()  # what ran there when the last server ended has a lease as well
        while True:
            try:
                reader, writer = await self._transport.connect()
                try:
                    await self._converse(reader, writer)
                    failures = 0
                finally:
                    self._writer = None
                    self._pid = None
                    writer.close()
                self._problem = "the connection to the agent was lost"
            except (Unavailable, OSError, ValueError, TimeoutError) as error:
                self._problem = str(error) or type(error).__name__
                log.warning("agent of %s: %s", self.node, self._problem)
            except Exception as error:  # a bug of ours must not leave the yard deaf: reconcile, and it goes on
                self._problem = f"{type(error).__name__}: {error}"
                log.exception("agent of %s", self.node)
            self._go_away()
            await asyncio.sleep(RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)])
            failures += 1

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._announced = self._yard.is_busy
        asked_at = time.time()
        writer.write(_line({**self._hello, "pending": self._announced}))
        async with asyncio.timeout(WELCOME_SECONDS):  # not wait_for: in Python 3.11 it may swallow a cancellation
            welcome = await _read(reader)
        if welcome is None or welcome.get("ev") != "welcome" or welcome.get("protocol") != PROTOCOL:
            raise Unavailable(f"the agent answers in another language: {str(welcome)[:100]}")
        if wrong := welcome_problem(welcome):
            raise Unavailable(f"the agent says of its machine what cannot be: {wrong}")
        self._compare_clocks(welcome, asked_at)
        if self._lease is not None:
            self._lease.cancel()  # before we wait for anything: it must not run out while we reconcile
            self._lease = None
        await self._forgotten()
        # What is not on disk yet must not be named: the agent would be asked to start it.
        await self._yard.settled()
        live = self._yard.live_attempts(self.node)
        if welcome["build"] != self._transport.build and not live:
            # An agent of another build. What it runs has been given up; without that it leaves, and the next is ours.
            writer.write(_line({"op": "reconcile", "live": []}) + _line({"op": "quit"}))
            async with asyncio.timeout(WELCOME_SECONDS):
                while await reader.read(1 << 16):
                    pass  # until it has left; whatever it says meanwhile
            return
        self._pid, self._build, self._problem = welcome["pid"], welcome["build"], ""
        before, described = self._described, _node(self.node, self.name, welcome, self._owner_only)
        if before is not None:
            described = replace(described, runtime=before.runtime, runtime_problem=before.runtime_problem)
        self._described = _with_runtime(described, welcome)
        # It joins together with its first measurement: before that nobody knows what others leave of it.
        self._joining = [NodeJoined(self._described, time.time())]
        writer.write(_line({"op": "probe"}))
        if self._arrivals is not None:
            self._arrivals.is_lost = False
        self._known_jobs = {}
        self._refused = None  # reconcile tells of them anew
        self._reports.forget()
        # From here on effects go straight out: the list of live attempts and the first effect after it have no gap.
        self._writer = writer
        faults.point("server-reconciling")
        have = self._home.mirror.have(item.attempt for item in live) if self._home else {}
        ids, held = [str(item.attempt) for item in live], list(self._yard.held_jobs())
        self._send({"op": "reconcile", "live": ids, "have": have, "held": held})
        self._stop_again(live)
        self.announce(self._yard.is_busy)
        while (message := await _read(reader)) is not None:
            try:
                if (checked := self._heard.checked(message)) is not None:
                    self._hear(checked)
            except Exception as error:  # what one message breaks, the next connection would break again
                self._yard.trouble("message", f"the agent of {self.node} said {str(message)[:100]}: {error!r}", error)
            if self._arrivals is not None:
                await self._arrivals.room()

    def _hear(self, message: dict[str, Any]) -> None:
        match message["ev"]:
            case "attempts":
                faults.point("server-finishing" if message.get("finished") else "server-running")
                events = self._without_refused(_attempt_events(message, self._ahead_seconds))
                self._reports.ended(AttemptId.parse(name) for name, _ in message.get("finished", ()))
                if self._arrivals is None or not message.get("finished"):
                    self._seen.put_nowait(events)
                else:
                    self._arrivals.ended(events, message["finished"])
            case "progress":
                self._seen.put_nowait(self._reports.read(message, self._ahead_seconds, time.time()))
            case "output" if self._arrivals is not None:
                self._arrivals.output(message)
            case "missing" if self._home is not None:
                self._send_snapshot(message["snapshot"])
            case "measured":
                now = time.time()
                measured = self._measurements.read(message, self._devices_in_use(), now)
                ours = [found] if (found := used(message, now)) else []
                self._notice_runtime(message, now)
                self._seen.put_nowait([*self._joining, measured, *ours, *(self._refused or ())])
                self._joining, self._refused = [], None
                self._measured.set()  # last: who waits for it finds it among the observations
            case "reconciled":
                self._launch_absent(message["absent"])
            case "refused":
                log.info("slot %s was refused: %s", message["slot"], message["message"])
                # Learn who holds the room before we ask again, or we would ask fifty times a second.
                if self._refused is None:
                    self._refused = []
                    asyncio.get_running_loop().call_later(REFUSED_SECONDS, self._send, {"op": "probe"})
            case "error":
                sentence = f"the agent of {self.node} refused it: {message['message']}"
                self._yard.trouble("message", sentence)
                if ids := message.get("ids"):
                    self._refuse([AttemptId.parse(name) for name in ids], sentence)

    def _notice_runtime(self, message: dict[str, Any], now: float) -> None:
        """An engine was started, or stopped: the node has changed."""
        assert self._described is not None
        found = _with_runtime(self._described, message)
        if found != self._described:
            self._described = found
            self._joining = [NodeJoined(found, now)]

    def _devices_in_use(self) -> set[int]:
        live = self._yard.live_attempts(self.node)
        return {piece.index for item in live for piece in item.slot.placement.devices}

    def _without_refused(self, events: list[Event]) -> list[Event]:
        """While a slot was refused, what is given back waits for the next measurement."""
        if self._refused is None:
            return events
        self._refused += [event for event in events if isinstance(event, AttemptsWithdrawn)]
        return [event for event in events if not isinstance(event, AttemptsWithdrawn)]

    # -- what a machine with a disk of its own needs ----------------------------------------------------------------

    def _compare_clocks(self, welcome: dict[str, Any], asked_at: float) -> None:
        """Its clock may be hours off; what it tells is told by ours. A small difference may be the link's and stays."""
        now = time.time()
        ahead = welcome.get("now", now) - (asked_at + now) / 2
        self._ahead_seconds = ahead if self._home and abs(ahead) > CLOCK_SECONDS + now - asked_at else 0.0

    def _go_away(self) -> None:
        """There is no link. For the length of the lease what runs there is believed to run on."""
        if self._home is None or self._lease is not None:
            return
        self._seen.put_nowait([NodeWentAway(self.node, time.time(), self._problem)])
        self._lease = asyncio.get_running_loop().call_later(self._home.lease_seconds, self._give_up)

    def _give_up(self) -> None:
        assert self._home is not None
        assert self._arrivals is not None
        self._arrivals.is_lost = True
        message = f"node {self.node} has not answered for {self._home.lease_seconds:g} s"
        self._seen.put_nowait([NodeLost(self.node, time.time(), message)])

    async def _forgotten(self) -> None:
        """Returns when the yard has heard that the node was lost: what it gave up must not be named as live."""
        async with asyncio.timeout(WELCOME_SECONDS):
            while self._arrivals and self._arrivals.is_lost and self._yard.live_attempts(self.node):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def _send_snapshot(self, snapshot: str) -> None:
        wanted = {self._yard.job(item.attempt.job).spec.snapshot for item in self._yard.live_attempts(self.node)}
        if snapshot not in wanted:
            return  # of a job that ended meanwhile, or nothing of ours
        if snapshot not in self._sending or self._sending[snapshot].done():
            self._sending[snapshot] = asyncio.create_task(self._bring_snapshot(snapshot))

    async def _bring_snapshot(self, snapshot: str) -> None:
        assert self._home is not None
        trouble = ""
        for pause in RECONNECT_SECONDS:
            try:
                await self._transport.send_snapshot(snapshot, self._home.snapshots / f"{snapshot}.tar")
                self._send({"op": "staged", "snapshot": snapshot})
                return
            except (Unavailable, Rejected, OSError) as error:
                self._problem = str(error)
                trouble = "" if isinstance(error, Unavailable) else self._problem
                log.warning("node %s: the tree cannot be sent: %s", self.node, error)
                await asyncio.sleep(pause)
        if trouble:  # a full disk, say: what waits for the tree fails, as anything that cannot start there
            self._send({"op": "staged", "snapshot": snapshot, "trouble": trouble})
        else:
            self.reconnect()

    def _stop_again(self, live: Iterable[LiveAttempt]) -> None:
        """The stop may never have reached an agent."""
        held = set(self._yard.held_jobs())
        for item in live:
            if item.attempt.job in held:
                continue
            grace = self._yard.job(item.attempt.job).spec.grace_seconds
            if item.is_yielding:
                self._yield((item.attempt,), item.yield_seconds, grace, at_once=item.at_once)
            elif item.is_stopping:
                self._send({"op": "stop", "ids": [str(item.attempt)], "grace": grace})

    def _launch_absent(self, absent: Iterable[str]) -> None:
        """What the agent has no record of starts now, or never, if it was asked to stop meanwhile."""
        held = set(self._yard.held_jobs())
        missing = {attempt for text in absent if (attempt := AttemptId.parse(text)).job not in held}
        by_slot: defaultdict[Slot, list[AttemptId]] = defaultdict(list)
        withdrawn = []
        for item in self._yard.live_attempts(self.node):
            if item.attempt in missing and item.is_stopping:
                withdrawn.append(item.attempt)
            elif item.attempt in missing:
                by_slot[item.slot].append(item.attempt)
        if withdrawn:
            self._seen.put_nowait([AttemptsWithdrawn(tuple(withdrawn), time.time())])
        self.perform([Launch(self.node, slot, tuple(sorted(attempts))) for slot, attempts in by_slot.items()])

    async def observations(self) -> AsyncIterator[Sequence[Event]]:
        while True:
            yield await self._seen.get()

    # -- doing -----------------------------------------------------------------------------------------------------

    def perform(self, effects: Sequence[Effect]) -> None:
        if self._writer is None:
            return
        for effect in effects:
            match effect:
                case Launch(slot=slot, attempts=attempts):
                    try:
                        self._launch(slot, attempts)
                    except Unavailable as error:  # the next reconcile tries again
                        log.warning("job %s on %s: %s", slot.job, self.node, error)
                    except Exception as error:
                        self._cannot_launch(attempts, error)
                case Stop(attempts=attempts, grace_seconds=grace):
                    self._send({"op": "stop", "ids": [str(attempt) for attempt in attempts], "grace": grace})
                case Yield(attempts=attempts, deadline_seconds=deadline, grace_seconds=grace, at_once=at_once):
                    self._yield(attempts, deadline, grace, at_once=at_once)
                case Reserve(slot=slot):
                    self._send({"op": "reserve", "slot": slot.id, "reserve": _reserve(slot)})
                case Withdraw(attempts=attempts):
                    self._send({"op": "withdraw", "ids": [str(attempt) for attempt in attempts]})
                case CloseSlot(slot=slot_id):
                    self._send({"op": "close", "slots": [slot_id]})

    def _yield(self, attempts: Sequence[AttemptId], deadline: float, grace: float, *, at_once: bool) -> None:
        ids = [str(attempt) for attempt in attempts]
        self._send({"op": "yield", "ids": ids, "deadline": deadline, "grace": grace, "at_once": at_once})

    def announce(self, is_busy: bool) -> None:
        if self._writer is not None and is_busy != self._announced:
            self._announced = is_busy
            self._send({"op": "pending", "value": is_busy})

    async def check(self, job: SubmittedJob) -> None:
        """A machine refuses nothing: what it has is known, and the yard compares. Only of containers it is asked."""
        if job.spec.container and self._writer is not None:
            await self._ask({"op": "probe", "runtime": True})

    def _launch(self, slot: Slot, attempts: Sequence[AttemptId]) -> None:
        job = self._yard.job(slot.job)
        if self._owner_only and job.spec.submitted_with:
            # Placed when this machine ran tasks as another user. Under the server's own account it must not start.
            self._seen.put_nowait([AttemptsWithdrawn(tuple(attempts), time.time())])
            return
        launch = _line(self._launch_message(job, slot, attempts))
        assert self._writer is not None
        if self._known_jobs.get(slot.job) != job.spec.size:  # of an elastic job it may be another one
            self._writer.write(_line(self._job_message(job)))
            self._known_jobs[slot.job] = job.spec.size
        faults.point("server-launching")
        self._writer.write(launch)

    def _cannot_launch(self, attempts: Sequence[AttemptId], error: Exception) -> None:
        """Nothing of it was sent, and nothing ever can be: that ends these attempts, and nobody else's."""
        told = str(error) if isinstance(error, YardError) else f"{type(error).__name__}: {error}"
        sentence = f"it cannot be launched ({told})"
        self._yard.trouble("launch", f"job {attempts[0].job} on {self.node}: {sentence}", error)
        self._refuse(attempts, sentence)

    def _refuse(self, attempts: Sequence[AttemptId], sentence: str) -> None:
        now = time.time()
        outcome = Outcome(now, now, reason=Reason.REFUSED, message=sentence)
        self._seen.put_nowait([AttemptsFinished(tuple(Finished(attempt, outcome) for attempt in attempts), now)])

    def _job_message(self, job: SubmittedJob) -> dict[str, Any]:
        if self._home is None and not job.spec.container:
            spec = replace(job.spec, inherited_env=self._yard.inherited_env(job.spec))
            env = job_environment(job.id, job.number, spec)
            return {"op": "job", "job": job.id, "env": env, "workdir": job.spec.workdir, "gang": job.spec.gang}
        # The submitting shell's PATH and HOME mean nothing on another machine, or in an image.
        spec = replace(job.spec, inherited_env={})
        tree = {"snapshot": spec.snapshot, "subdir": spec.subdir, "copy_back": list(spec.copy_back)}
        env = job_environment(job.id, job.number, spec)
        message = {"op": "job", "job": job.id, "env": env, "workdir": "", "gang": spec.gang}
        if spec.container:
            message["container"] = _container(spec)
        if self._shares_disk:
            return {**message, "workdir": spec.workdir}
        return {**message, **tree} if spec.snapshot else message

    def _launch_message(self, job: SubmittedJob, slot: Slot, attempts: Sequence[AttemptId]) -> dict[str, Any]:
        items = [self._item(job, slot, attempt) for attempt in attempts]
        return {"op": "launch", "job": job.id, "slot": slot.id, "reserve": _reserve(slot), "items": items}

    def _item(self, job: SubmittedJob, slot: Slot, attempt: AttemptId) -> dict[str, Any]:
        spec = job.spec
        env = task_environment(
            job.id,
            spec,
            attempt.task,
            attempt.number,
            slot.placement,
            self._described,
            addresses=self._yard.gang_addresses(job.id) if spec.gang else (),
            resumes_at=self._yard.resumes_at(attempt, self.node),
        )
        item = {"id": str(attempt), "argv": task_command(spec, attempt.task), "env": env, "grace": spec.grace_seconds}
        if spec.timeout_seconds is not None:
            item["timeout"] = spec.timeout_seconds
        return item

    def preview(self, job: SubmittedJob, launch: Launch) -> str:
        # The submitting shell's environment goes along as well; it is long, private, and not ours to print.
        job = job._replace(spec=replace(job.spec, inherited_env={}, environment=""))
        shared = self._job_message(job)
        messages = [shared, self._launch_message(job, launch.slot, launch.attempts)]
        return "\n".join(json.dumps(message, indent=2) for message in messages)

    def _send(self, message: dict[str, Any]) -> None:
        if self._writer is not None:
            self._writer.write(_line(message))

    # -- looking ---------------------------------------------------------------------------------------------------

    def log_path(self, attempt: AttemptId, stream: str) -> str:
        paths = records.paths(str(self._files), str(attempt))
        return str(paths.out if stream == "out" else paths.err)

    async def probe(self) -> None:
        if self._writer is not None:
            await self._ask({"op": "probe"})

    async def _ask(self, question: dict[str, Any]) -> None:
        self._measured.clear()
        self._send(question)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._measured.wait(), PROBE_SECONDS)

    def dismiss(self) -> None:
        # What the yard no longer believes in is stopped first.
        self._send({"op": "reconcile", "live": [str(item.attempt) for item in self._yard.live_attempts(self.node)]})
        self._send({"op": "quit"})

    def reconnect(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        elif self._arrivals and self._arrivals.is_lost:  # whoever forgot everything else forgot that too
            self._give_up()

    def status(self) -> AgentStatus:
        transport, is_connected = self._transport, self._writer is not None
        problem = self._problem or self._heard.problem
        return AgentStatus(
            self.node, self._pid, self._build, is_connected, problem, transport.address, transport.sees_us_as
        )


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


async def _read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    try:
        line = await reader.readline()
    except ValueError:
        raise ValueError(f"the agent sent a line of more than {LARGEST_LINE >> 20} MiB") from None
    if not line.endswith(b"\n"):
        return None
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError(f"the agent said {line[:100]!r}") from None
    if not isinstance(message, dict):
        raise ValueError(f"the agent said {line[:100]!r}")
    return message


def _reserve(slot: Slot) -> dict[str, Any]:
    ask = slot.placement.resources
    return {
        "cpu_millis": ask.cpu_millis,
        "memory_mib": ask.memory_mib,
        **_memory_limit(ask),
        "devices": {str(piece.index): piece.memory_mib for piece in slot.placement.devices},
        "device_percent": {str(piece.index): ask.gpu_percent for piece in slot.placement.devices if ask.gpu_percent},
        "whole_devices": [] if ask.shares_gpus else [piece.index for piece in slot.placement.devices],
    }


def _memory_limit(ask: Resources) -> dict[str, int]:
    """Only what was said: a container without a word has its reservation as a limit, a process has none."""
    return {} if ask.memory_limit is None else {"memory_limit_mib": ask.memory_mib if ask.memory_limit else 0}


def _container(spec: JobSpec) -> dict[str, Any]:
    return {
        "image": spec.image,
        "shm_mib": max(group.shm_mib for group in spec.groups),
        "mounts": [[mount.source, mount.target, mount.read_only] for mount in spec.mounts],
        "ports": [[port.outside, port.inside] for port in spec.ports],
    }


def _with_runtime(node: Node, seen: dict[str, Any]) -> Node:
    """`seen` is a message of the agent's, which may not have asked yet; what was known stays known then."""
    runtime = seen.get("runtime")
    return replace(node, runtime=runtime["kind"], runtime_problem=runtime["problem"]) if runtime else node


def _node(name: str, executor: str, welcome: dict[str, Any], owner_only: bool) -> Node:
    devices = tuple(
        Device(seen["index"], seen["name"], seen["memory_mib"], seen.get("uuid", ""), bool(seen.get("fake")))
        for seen in welcome["devices"]
    )
    cpu_millis, memory_mib, boot_id = welcome["cpu_millis"], welcome["memory_mib"], welcome["boot_id"]
    return Node(name, executor, cpu_millis, memory_mib, devices, boot_id=boot_id, owner_only=owner_only)


def _attempt_events(message: dict[str, Any], ahead: float) -> list[Event]:
    """In the time of our own clock, if theirs is `ahead` of it."""
    now = time.time()
    events: list[Event] = []
    if started := message.get("started"):
        events.append(AttemptsStarted(tuple(Started(AttemptId.parse(name), at - ahead) for name, at in started), now))
    if finished := message.get("finished"):
        items = tuple(Finished(AttemptId.parse(name), _outcome(seen, ahead)) for name, seen in finished)
        events.append(AttemptsFinished(items, now))
    if withdrawn := message.get("withdrawn"):
        events.append(AttemptsWithdrawn(tuple(AttemptId.parse(name) for name in withdrawn), now))
    return events


def _outcome(seen: dict[str, Any], ahead: float) -> Outcome:
    reason = seen.get("reason")
    started_at = seen["started_at"] - ahead
    return Outcome(
        started_at,
        max(started_at, seen["finished_at"] - ahead),  # its clock may have been set back meanwhile
        seen.get("exit_code"),
        seen.get("signal"),
        Reason(reason) if reason else None,
        seen.get("message") or "",
        seen.get("peak_memory_mib") or 0,
        seen.get("peak_gpu_memory_mib") or 0,
        progress_of(seen["progress"], ahead) if seen.get("progress") else None,
    )
