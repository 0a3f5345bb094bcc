"""Machine executor: how do attempts run on machines? Through the agent there: JSON lines, reconciled once connected."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobyard.agent_protocol import faults, records
from jobyard.errors import Unavailable
from jobyard.executors import agent_messages
from jobyard.executors.agent_link import BACKOFF, WELCOME_SECONDS, AgentLink, Transport, line, read
from jobyard.executors.agent_messages import LaunchMessages
from jobyard.executors.agent_questions import AgentQuestions
from jobyard.executors.heard import Heard
from jobyard.executors.launches import Launches
from jobyard.executors.lease import Lease
from jobyard.executors.machine_room import MachineRoom
from jobyard.executors.observations import Observations
from jobyard.executors.protocol import AgentStatus, LiveAttempt, Stored, SubmittedJob, YardView
from jobyard.executors.result_collector import RemoteFiles, ResultCollector
from jobyard.executors.snapshot_sending import SnapshotSending
from jobyard.model.effects import CloseSlot, Effect, Forget, Launch, Reserve, Stop, Withdraw, Yield
from jobyard.model.events import Event
from jobyard.model.task import AttemptId

PROBE_SECONDS = 5.0
STORED_SECONDS = 30.0  # a slow disk with a hundred thousand directories
REFUSED_SECONDS = 0.25  # before another try at room that other yards hold

log = logging.getLogger(__name__)


class MachineExecutor:
    """One machine, through its agent. What could not be sent is repaired by the next reconcile."""

    def __init__(
        self,
        name: str,
        node: str,
        transport: Transport,
        yard: YardView,
        hello: Mapping[str, Any],
        files: Path,
        remote: RemoteFiles | None = None,
        *,
        owner_only: bool = False,
        shares_disk: bool = False,
    ) -> None:
        """`shares_disk`, with `remote`: tasks find their directory where it is, though what they write is sent.
        `files` is where attempts' output is found on this disk; without `remote` the agent writes it there itself."""
        self.name = name
        self.node = node
        self._transport = transport
        self._yard = yard
        self._files = files
        self._link = link = AgentLink({"ship": remote is not None, **hello})
        self._room = MachineRoom(node, name, owner_only=owner_only)
        self._seen: asyncio.Queue[list[Event]] = asyncio.Queue()
        tell = self._seen.put_nowait
        self._lease = lease = Lease(node, remote.lease_seconds if remote else None, tell)
        self._collector: ResultCollector | None = None
        self._snapshots: SnapshotSending | None = None
        if remote is not None:
            self._collector = ResultCollector(node, remote, yard, tell, self.reconnect, lambda: lease.is_lost)
            self._snapshots = SnapshotSending(node, remote.snapshots, transport, link, yard, self.reconnect)
        self._heard = Heard(node, yard)
        self._observations = Observations(self._room, tell, self._collector)
        self._questions = AgentQuestions(link)
        messages = LaunchMessages(yard, inherits_shell=remote is None, shares_disk=shares_disk or remote is None)
        self._launches = Launches(self._room, yard, link, messages, tell)

    # -- being connected -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        collecting = asyncio.create_task(self._collector.run()) if self._collector else None
        try:
            await self._stay_connected()
        finally:
            if collecting is not None:
                collecting.cancel()
            if self._snapshots is not None:
                self._snapshots.cancel()

    async def _stay_connected(self) -> None:
        failures, link = 0, self._link
        self._lease.begin(link.problem)  # attempts of an earlier server have a lease too
        while True:
            try:
                reader, writer = await self._transport.connect()
                try:
                    await self._converse(reader, writer)
                    failures = 0
                finally:
                    link.closed()
                    writer.close()
                link.problem = "the connection to the agent was lost"
            except (Unavailable, OSError, ValueError, TimeoutError) as error:
                link.problem = str(error) or type(error).__name__
                if isinstance(error, ValueError):  # a line that cannot be read; the link may be up again soon
                    self._heard.ignore(link.problem)
                log.warning("agent of %s: %s", self.node, link.problem)
            except Exception as error:  # a bug of ours must not end the connection for good
                link.problem = f"{type(error).__name__}: {error}"
                log.exception("agent of %s", self.node)
            self._lease.begin(link.problem)
            await asyncio.sleep(BACKOFF.pause(failures))
            failures += 1

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from the greeting to its end."""
        # 1. Who is there?
        asked_at = time.time()
        welcome = await self._link.greet(reader, writer, is_busy=self._yard.is_busy)
        self._observations.connected(welcome, asked_at)
        self._lease.end()  # before we wait for anything
        # 2. What do we believe of it? Only what is on disk may be named: the agent may start it.
        await self._lease.forgotten(self._yard)
        await self._yard.journalled()
        live = self._yard.live_attempts(self.node)
        if welcome["build"] != self._transport.build and not live:
            await _send_away(reader, writer)
            return
        # 3. Compare, and 4. go on from there.
        self._reconcile(writer, welcome, live)
        await self._listen(reader)

    def _reconcile(self, writer: asyncio.StreamWriter, welcome: dict[str, Any], live: Sequence[LiveAttempt]) -> None:
        """Nothing here waits, so that no effect falls between the list of live attempts and the open link."""
        self._room.welcome(welcome, time.time())
        writer.write(line({"op": "probe"}))
        self._lease.regain()
        self._launches.forget_jobs()
        self._link.open(writer, welcome)
        faults.point("server-reconciling")
        have = self._collector.have(item.attempt for item in live) if self._collector else {}
        ids, held = [str(item.attempt) for item in live], list(self._yard.quarantined_jobs())
        self._link.send({"op": "reconcile", "live": ids, "have": have, "held": held})
        self._stop_again(live)
        self.announce(self._yard.is_busy)

    def _stop_again(self, live: Iterable[LiveAttempt]) -> None:
        """The stop may never have reached an agent."""
        held = set(self._yard.quarantined_jobs())
        for item in live:
            if item.attempt.job in held:
                continue
            grace, asked = self._yard.job(item.attempt.job).spec.policy.grace_seconds, (item.attempt,)
            if item.is_yielding:
                self._link.send(agent_messages.yield_(asked, item.yield_seconds, grace, at_once=item.at_once))
            elif item.is_stopping:
                self._link.send(agent_messages.stop(asked, grace))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Until the connection ends."""
        while (message := await read(reader)) is not None:
            try:
                if (checked := self._heard.checked(message)) is not None:
                    self._hear(checked)
            except Exception as error:  # what one message breaks, the next connection would break again
                self._yard.count_error(
                    "message", f"the agent of {self.node} said {str(message)[:100]}: {error!r}", error
                )
            if self._collector is not None:
                await self._collector.room()
            await asyncio.sleep(0)  # others have their turn, however much there is to read

    def _hear(self, message: dict[str, Any]) -> None:
        match message["ev"]:
            case "attempts":
                faults.point("server-finishing" if message.get("finished") else "server-running")
                self._observations.attempts(message)
            case "progress":
                self._observations.progress(message)
            case "output" if self._collector is not None:
                self._collector.output(message)
            case "missing" if self._snapshots is not None:
                self._snapshots.send(message["snapshot"])
            case "measured":
                self._observations.measured(message, self._devices_in_use())
                self._questions.answered(message)  # last: whoever waits for it then finds the observation
            case "stored":
                self._questions.answered(message, "jobs", "snapshots")
            case "reconciled":
                self._launches.launch_absent(message["absent"])
            case "refused":
                log.info("slot %s was refused: %s", message["slot"], message["message"])
                # Measure who holds the room before asking again: otherwise we would ask fifty times a second.
                if self._room.refused():
                    asyncio.get_running_loop().call_later(REFUSED_SECONDS, self._link.send, {"op": "probe"})
            case "error":
                sentence = f"the agent of {self.node} refused it: {message['message']}"
                self._yard.count_error("message", sentence)
                if ids := message.get("ids"):
                    self._launches.refuse([AttemptId.parse(name) for name in ids], sentence)

    def _devices_in_use(self) -> set[int]:
        live = self._yard.live_attempts(self.node)
        return {piece.index for item in live for piece in item.slot.placement.devices}

    async def observations(self) -> AsyncIterator[Sequence[Event]]:
        while True:
            yield await self._seen.get()

    # -- doing -----------------------------------------------------------------------------------------------------

    def perform(self, effects: Sequence[Effect]) -> None:
        if not self._link.is_up:
            return
        addresses = self._launches.addresses()
        for effect in effects:
            match effect:
                case Launch(slot=slot, attempts=attempts):
                    self._launches.launch(slot, attempts, addresses)
                case Stop(attempts=attempts, grace_seconds=grace):
                    self._link.send(agent_messages.stop(attempts, grace))
                case Yield(attempts=attempts, deadline_seconds=deadline, grace_seconds=grace, at_once=at_once):
                    self._link.send(agent_messages.yield_(attempts, deadline, grace, at_once=at_once))
                case Reserve(slot=slot):
                    self._link.send(agent_messages.reserve(slot))
                case Withdraw(attempts=attempts):
                    self._link.send(agent_messages.withdraw(attempts))
                case CloseSlot(slot=slot_id):
                    self._link.send(agent_messages.close(slot_id))
                case Forget(jobs=jobs, snapshots=snapshots):
                    self._link.send(agent_messages.forget(jobs, snapshots))

    def announce(self, is_busy: bool) -> None:
        self._link.announce(is_busy)

    async def check(self, job: SubmittedJob) -> None:
        """A machine refuses no job: the yard knows what it has. Only its container runtime is asked for."""
        if job.spec.container.on_machines:
            await self._questions.ask({"op": "probe", "runtime": True}, "measured", PROBE_SECONDS)

    def preview(self, job: SubmittedJob, launch: Launch) -> str:
        return self._launches.preview(job, launch)

    # -- looking ---------------------------------------------------------------------------------------------------

    def log_path(self, attempt: AttemptId, stream: str) -> str:
        paths = records.paths(str(self._files), str(attempt))
        return str(paths.out if stream == "out" else paths.err)

    async def probe(self) -> None:
        await self._questions.ask({"op": "probe"}, "measured", PROBE_SECONDS)

    async def stored(self) -> Stored | None:
        if self._link.build != self._transport.build:
            return None  # an older agent, which runs something: it does not know the question
        answer = await self._questions.ask({"op": "stored"}, "stored", STORED_SECONDS)
        return Stored(answer["jobs"], answer["snapshots"]) if answer else None

    def dismiss(self) -> None:
        # First the agent stops what is not live any more.
        live = [str(item.attempt) for item in self._yard.live_attempts(self.node)]
        self._link.send({"op": "reconcile", "live": live})
        self._link.send({"op": "quit"})

    def reconnect(self) -> None:
        if self._link.is_up:
            self._link.drop()
        elif self._lease.is_lost:  # report it again: the yard may have forgotten it
            self._lease.give_up()

    def status(self) -> AgentStatus:
        link, transport = self._link, self._transport
        problem = link.problem or self._heard.problem
        return AgentStatus(
            self.node, link.pid, link.build, link.is_up, problem, transport.address, transport.sees_us_as
        )


async def _send_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An agent of another build. Nothing that counts runs there: it stops the rest and quits, and we start our own."""
    writer.write(line({"op": "reconcile", "live": []}) + line({"op": "quit"}))
    async with asyncio.timeout(WELCOME_SECONDS):
        while await reader.read(1 << 16):
            pass  # until it has quit
