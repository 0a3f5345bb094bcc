"""How do the server's messages, the lanes' reports and the clock meet in one loop?"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import time
import traceback
from typing import Any, Callable, ClassVar, Dict, List, Optional

from jobyard.agent.attempts.measuring import Measurer
from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.attempts.runner import Runner
from jobyard.agent.devices.gpus import Gpus
from jobyard.agent.execution.runtimes import Runtimes
from jobyard.agent.execution.task_environment import TaskEnvironment
from jobyard.agent.files.shipping import Shipper
from jobyard.agent.files.staging import Staging
from jobyard.agent.forgetting import Forgetter
from jobyard.agent.reporting.report_endpoint import ReportEndpoint
from jobyard.agent.respawn import Respawner
from jobyard.agent.sharing.published import Capacity
from jobyard.agent.sharing.reservations import Reservations
from jobyard.agent.system import probe, processes
from jobyard.agent.system.connection import Connection
from jobyard.agent.system.entrance import Entrance
from jobyard.agent.system.forking import Background
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import messages, sdk_files

PROTOCOL = 1
_MEASURE_SECONDS = 5.0
_SAMPLE_SECONDS = 2.0
_RUNTIME_SECONDS = 5.0  # so long a server that wants to know waits at most for a container runtime
_LOOK_SECONDS = 15.0  # until one that does not answer is asked again
_FIRST_LOOK_SECONDS = 2.0  # not at once: whoever starts a yard waits for its first task


class Agent:
    """One agent: one thread, one loop, one server at a time. Leaving it harms nothing that runs."""

    def __init__(
        self,
        state_dir: str,
        listener: socket.socket,
        gpus: Gpus,
        build: str,
        idle_seconds: float,
        log: Callable[[str], None],
    ) -> None:
        self._state_dir = state_dir
        self._listener = listener
        self._gpus = gpus
        self._build = build
        self._idle_seconds = idle_seconds
        self._log = log
        self._runtimes = Runtimes(os.environ)
        self._selector = selectors.DefaultSelector()
        self._timers = Timers()
        self._outbox = Outbox(self._timers)
        devices = gpus.devices()
        self._capacity = Capacity(
            probe.cpu_millis(),
            probe.memory().total_mib,
            {device.index: device.memory_mib for device in devices},
            (os.cpu_count() or 1) * 1000,
            probe.machine_memory_mib(),
        )
        self._reservations = Reservations(self._capacity)
        self._staging = Staging(state_dir)
        background = Background(self._selector, self._timers)
        self._forgetter = Forgetter(background, state_dir)
        self._measurer = Measurer(gpus, self._reservations, state_dir)
        self._sdk = sdk_files.unpack(state_dir, log)
        self._door = ReportEndpoint(self._selector, self._timers, state_dir, log)
        self._runner = Runner(
            self._selector,
            self._timers,
            self._outbox,
            self._reservations,
            state_dir,
            gpus,
            background,
            self._staging,
            TaskEnvironment(self._sdk, self._door.address, self._door.token_file),
            self._runtimes,
        )
        self._respawner = Respawner(self._timers, self._needs_server, log)
        self._server: Optional[Connection] = None
        self._is_quitting = False
        self._is_leaving = False
        self._has_swept = False  # containers that an agent before us left
        self._ships = False  # the server does not share this disk
        self._is_displaced: Callable[[], bool] = lambda: False
        self._is_work_pending = False  # the server has work that we know nothing of
        self._quiet_since = time.monotonic()

    def run(self) -> None:
        """Serve until told to leave, or until nobody has needed us for long enough."""
        self._runner.adopt_all()
        if not self._runner.workload.attempts:
            sdk_files.remove_others(self._state_dir, self._sdk)
        self._forgetter.empty_trash()
        self._door.open(self._runner.workload.attempts, self._runner.spools)
        Entrance(self._selector, self._timers, self._listener, self._welcome_server)
        self._timers.after(_MEASURE_SECONDS, self._measure_regularly)
        self._timers.after(_SAMPLE_SECONDS, self._sample_regularly)
        self._timers.after(_FIRST_LOOK_SECONDS, self._look_for_runtimes)
        self._timers.after(0.1, self._leave_if_unused)
        while not self._is_leaving:
            for key, events in self._selector.select(self._timers.seconds_to_next()):
                if (
                    self._selector.get_map().get(key.fd) is key
                ):  # an earlier call may have dropped it, and reused the number
                    key.data(events)
            self._timers.run_due()
        self._runner.let_go()
        self._reservations.release_all()

    def leave(self) -> None:
        """Leave at the next turn of the loop; what runs goes on."""
        self._is_leaving = True

    def leave_when_readable(self, stream: socket.socket) -> None:
        """Leave when something comes over this stream: how a signal handler reaches the loop."""
        self._selector.register(stream, selectors.EVENT_READ, lambda events: self.leave())

    def leave_when(self, is_displaced: Callable[[], bool]) -> None:
        """Leave when this becomes true; asked about once a second."""
        self._is_displaced = is_displaced

    # Connections

    def _welcome_server(self, stream: socket.socket, peer: Any) -> None:
        uid = struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if uid not in (0, os.getuid()):
            stream.close()
            return
        connection: Connection
        connection = Connection(
            self._selector, stream, lambda line: self._on_line(connection, line), lambda: self._lost(connection)
        )

    def _lost(self, connection: Connection) -> None:
        if connection is not self._server:
            return
        self._server = None
        self._outbox.close()
        self._quiet_since = time.monotonic()
        self._log("connection lost; %d attempts here" % len(self._runner.workload.attempts))
        self._respawner.begin()

    def _on_line(self, connection: Connection, line: bytes) -> None:
        """One bad message is refused, and is nobody else's matter."""
        message: Any = None
        try:
            message = json.loads(line)
            op = message["op"]
            if op != "hello" and connection is not self._server:
                raise ValueError("say hello first")
            handler = self._HANDLERS.get(op)
            if handler is None:
                raise ValueError("no such op: %r" % (op,))
            handler(self, connection, message)
        except Exception as error:
            self._log(traceback.format_exc())
            what = "missing %s" % error if isinstance(error, KeyError) else str(error) or repr(error)
            said = "%s (in %s)" % (what, line[:120].decode("utf-8", "replace"))
            connection.send({"ev": "error", "message": said, "ids": self._not_begun(message)})
        self._outbox.flush()

    def _not_begun(self, message: Any) -> List[str]:
        """The attempts of a launch that failed and that are not here: of the others their ends will be told."""
        if not isinstance(message, dict) or message.get("op") != "launch":
            return []
        items = message.get("items")
        named = [item.get("id") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        return [name for name in named if isinstance(name, str) and name not in self._runner.workload.attempts]

    # Messages

    def _hello(self, connection: Connection, message: Dict[str, Any]) -> None:
        if message["protocol"] != PROTOCOL:
            raise ValueError("this agent speaks protocol %d, not %r" % (PROTOCOL, message["protocol"]))
        command = messages.strings(message.get("respawn") or [], "respawn")
        environment = messages.environment(message.get("respawn_env") or {}, "respawn_env")
        if self._server is not None and self._server is not connection:
            self._log("a new server replaces the old one")
            self._server.close()
        self._outbox.close()
        self._server = connection
        self._respawner.end()
        self._ships = bool(message.get("ship"))
        self._respawner.command = [] if self._ships else command  # it is a command of the server's own machine
        self._respawner.environment = {} if self._ships else environment
        self._reservations.yard = str(message.get("yard", ""))
        self._is_quitting = False
        self._is_work_pending = bool(message.get("pending"))
        connection.send(self._welcome())

    def _welcome(self) -> Dict[str, Any]:
        return {
            "ev": "welcome",
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "build": self._build,
            "boot_id": processes.boot_id(),
            "now": time.time(),
            "machine_id": probe.machine_id(),
            "host": probe.host(),
            "state_dir": self._state_dir,
            "report_address": self._door.address,
            "cpu_millis": self._capacity.cpu_millis,
            "memory_mib": self._capacity.memory_mib,
            "devices": [device._asdict() for device in self._gpus.devices()],
            "runtime": self._runtime(),
        }

    def _runtime(self) -> Optional[Dict[str, str]]:
        found = self._runtimes.poll()
        if found is None:
            return None
        if found.kind and not self._has_swept:
            self._has_swept = True
            self._runner.sweeper.begin()
        return {"kind": found.kind, "problem": found.problem}

    def _measured(self) -> Dict[str, Any]:
        return {**self._measurer.measure(self._runner.workload.running), "runtime": self._runtime()}

    def _reconcile(self, connection: Connection, message: Dict[str, Any]) -> None:
        live, have = messages.attempt_ids(message["live"]), messages.have(message.get("have") or {})
        self._outbox.close()
        self._open_outbox(connection, have)
        absent = self._runner.reconcile(live, set(messages.strings(message.get("held") or [], "held")))
        self._outbox.send_now()
        connection.send({"ev": "reconciled", "absent": absent})
        self._runner.spools.tell_all()
        waiting = {slot.job for slot in self._runner.workload.slots.values() if slot.queue}
        self._runner.feed_jobs(self._staging.ask_again(waiting, connection))

    def _open_outbox(self, connection: Connection, have: Dict[str, Dict[str, int]]) -> None:
        shipper = None
        if self._ships:
            shipper = Shipper(connection, self._timers, self._state_dir, have, self._outbox.deliver)
        self._outbox.open(connection, shipper)

    def _job(self, connection: Connection, message: Dict[str, Any]) -> None:
        job = messages.job(message)
        job["collects"] = self._ships or bool(job["snapshot"])
        self._runner.workload.jobs[message["job"]] = job
        self._staging.check(message["job"], job, connection)

    def _launch(self, connection: Connection, message: Dict[str, Any]) -> None:
        slot, job, reserve, items = messages.launch(message)
        if job not in self._runner.workload.jobs:
            raise ValueError("launch of job %s, which no `job` message has described" % job)
        self._listen(connection)
        self._staging.check(job, self._runner.workload.jobs[job], connection)
        refusal = self._runner.launch(slot, job, reserve, items)
        if refusal is not None:
            connection.send({"ev": "refused", "slot": slot, "message": refusal})

    def _listen(self, connection: Connection) -> None:
        """A server that launches without having reconciled wants to hear all the same."""
        if not self._outbox.is_open:
            self._open_outbox(connection, {})

    def _close(self, connection: Connection, message: Dict[str, Any]) -> None:
        self._runner.close(messages.strings(message["slots"], "slots"))

    def _withdraw(self, connection: Connection, message: Dict[str, Any]) -> None:
        ids = messages.attempt_ids(message["ids"])
        self._listen(connection)
        self._runner.withdrawals.withdraw(ids)

    def _stop(self, connection: Connection, message: Dict[str, Any]) -> None:
        ids, grace = messages.attempt_ids(message["ids"]), messages.seconds(message.get("grace", 10), "grace")
        self._listen(connection)
        self._runner.withdrawals.stop(ids, grace)

    def _yield(self, connection: Connection, message: Dict[str, Any]) -> None:
        ids, grace = messages.attempt_ids(message["ids"]), messages.seconds(message.get("grace", 10), "grace")
        deadline = messages.seconds(message.get("deadline", 600), "deadline")
        self._listen(connection)
        self._runner.withdrawals.ask_to_stop(ids, deadline, grace, bool(message.get("at_once")))

    def _reserve(self, connection: Connection, message: Dict[str, Any]) -> None:
        slot, reserve = messages.reserve(message)
        self._runner.reserve(slot, reserve)

    def _staged(self, connection: Connection, message: Dict[str, Any]) -> None:
        snapshot, trouble = messages.snapshot_id(message["snapshot"]), message.get("trouble")
        if trouble:
            self._runner.fail_jobs(self._staging.give_up(snapshot), str(trouble))
        else:
            self._runner.feed_jobs(self._staging.staged(snapshot, connection))

    def _forget(self, connection: Connection, message: Dict[str, Any]) -> None:
        jobs, unneeded = messages.forget(message)
        for job in self._forgetter.forget(
            jobs, unneeded, self._runner.workload.jobs, self._runner.workload.attempts.values()
        ):
            self._runner.workload.jobs.pop(job, None)

    def _pending(self, connection: Connection, message: Dict[str, Any]) -> None:
        self._is_work_pending = bool(message["value"])

    def _probe(self, connection: Connection, message: Dict[str, Any]) -> None:
        if message.get("runtime"):
            self._runtimes.settle(_RUNTIME_SECONDS)
        connection.send(self._measured())

    def _quit(self, connection: Connection, message: Dict[str, Any]) -> None:
        self._is_quitting = True
        self._leave_if_done()

    _HANDLERS: ClassVar[Dict[str, Callable[["Agent", Connection, Dict[str, Any]], None]]] = {
        "hello": _hello,
        "reconcile": _reconcile,
        "job": _job,
        "launch": _launch,
        "close": _close,
        "withdraw": _withdraw,
        "stop": _stop,
        "yield": _yield,
        "reserve": _reserve,
        "staged": _staged,
        "forget": _forget,
        "pending": _pending,
        "probe": _probe,
        "quit": _quit,
    }

    # The clock

    def _measure_regularly(self) -> None:
        self._timers.after(_MEASURE_SECONDS, self._measure_regularly)
        if self._server is not None:
            self._server.send(self._measured())

    def _look_for_runtimes(self) -> None:
        """Somebody may install one, or start its engine."""
        self._timers.after(_LOOK_SECONDS, self._look_for_runtimes)
        if self._server is not None:
            self._runtimes.look()

    def _sample_regularly(self) -> None:
        self._timers.after(_SAMPLE_SECONDS, self._sample_regularly)
        long_ago = time.time() - _SAMPLE_SECONDS
        running = self._runner.workload.running
        if any(attempt.started_at is not None and attempt.started_at < long_ago for attempt in running):
            self._measurer.sample(running)

    def _needs_server(self) -> bool:
        return self._is_work_pending or bool(self._runner.workload.attempts) or self._outbox.has_undelivered

    def _leave_if_done(self) -> None:
        is_sent = self._server is None or self._server.is_flushed
        if self._is_quitting and not self._runner.workload.attempts and self._outbox.is_settled and is_sent:
            self.leave()

    def _leave_if_unused(self) -> None:
        self._timers.after(min(1.0, max(0.05, self._idle_seconds / 4)), self._leave_if_unused)
        self._leave_if_done()
        if self._is_displaced():
            self._log("the lock or the socket of this agent is gone: leaving to whoever comes")
            self.leave()
        if self._server is not None or self._runner.workload.attempts:
            self._quiet_since = time.monotonic()
        elif time.monotonic() - self._quiet_since > self._idle_seconds:
            self._log("nobody has needed this agent for %.0f seconds: leaving" % self._idle_seconds)
            self.leave()
