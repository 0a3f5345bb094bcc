"""Requests: what does the server ask for, message by message, and what is it answered?"""

from __future__ import annotations

from typing import Any, Callable, ClassVar, Dict, List

from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.attempts.runner import Runner
from jobyard.agent.files.shipping import Shipper
from jobyard.agent.files.staging import Staging
from jobyard.agent.forgetting import Forgetter
from jobyard.agent.machine import ThisMachine
from jobyard.agent.system.connection import Connection
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import messages


class Requests:
    """Checks what a message says, and has it carried out."""

    def __init__(
        self,
        runner: Runner,
        machine: ThisMachine,
        outbox: Outbox,
        staging: Staging,
        forgetter: Forgetter,
        timers: Timers,
        state_dir: str,
    ) -> None:
        self._runner = runner
        self._workload = runner.workload
        self._machine = machine
        self._outbox = outbox
        self._staging = staging
        self._forgetter = forgetter
        self._timers = timers
        self._state_dir = state_dir
        self.ships = False  # the server does not share this disk, it says so in its hello

    def answer(self, connection: Connection, message: Dict[str, Any]) -> None:
        """Raises what is wrong with the message, or OSError where it cannot be carried out."""
        handler = self._HANDLERS.get(message["op"])
        if handler is None:
            raise ValueError("no such op: %r" % (message["op"],))
        handler(self, connection, message)

    def not_begun(self, message: Any) -> List[str]:
        """The attempts of a launch that failed and that are not here: of the others their ends will be told."""
        if not isinstance(message, dict) or message.get("op") != "launch":
            return []
        items = message.get("items")
        named = [item.get("id") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        return [name for name in named if isinstance(name, str) and name not in self._workload.attempts]

    def _reconcile(self, connection: Connection, message: Dict[str, Any]) -> None:
        live, have = messages.attempt_ids(message["live"]), messages.have(message.get("have") or {})
        self._outbox.close()
        self._open_outbox(connection, have)
        absent = self._runner.reconcile(live, set(messages.strings(message.get("held") or [], "held")))
        self._outbox.send_now()
        connection.send({"ev": "reconciled", "absent": absent})
        self._runner.spools.tell_all()
        waiting = {slot.job for slot in self._workload.slots.values() if slot.queue}
        self._runner.feed_jobs(self._staging.ask_again(waiting, connection))

    def _open_outbox(self, connection: Connection, have: Dict[str, Dict[str, int]]) -> None:
        shipper = None
        if self.ships:
            shipper = Shipper(connection, self._timers, self._state_dir, have, self._outbox.deliver)
        self._outbox.open(connection, shipper)

    def _job(self, connection: Connection, message: Dict[str, Any]) -> None:
        job = messages.job(message)
        job["collects"] = self.ships or bool(job["snapshot"])
        self._workload.jobs[message["job"]] = job
        self._staging.check(message["job"], job, connection)

    def _launch(self, connection: Connection, message: Dict[str, Any]) -> None:
        slot, job, reserve, items = messages.launch(message)
        if job not in self._workload.jobs:
            raise ValueError("launch of job %s, which no `job` message has described" % job)
        self._listen(connection)
        self._staging.check(job, self._workload.jobs[job], connection)
        self._runner.launch(slot, job, reserve, items)

    def _listen(self, connection: Connection) -> None:
        """A server that launches before it has reconciled gets reports too."""
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
        for job in self._forgetter.forget(jobs, unneeded, self._workload.jobs, self._workload.attempts.values()):
            self._workload.jobs.pop(job, None)

    def _stored(self, connection: Connection, message: Dict[str, Any]) -> None:
        connection.send({"ev": "stored", **self._forgetter.stored()})

    def _probe(self, connection: Connection, message: Dict[str, Any]) -> None:
        if message.get("runtime"):
            self._machine.await_runtime()
        connection.send(self._machine.measure())

    _HANDLERS: ClassVar[Dict[str, Callable[["Requests", Connection, Dict[str, Any]], None]]] = {
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
        "stored": _stored,
        "probe": _probe,
    }
