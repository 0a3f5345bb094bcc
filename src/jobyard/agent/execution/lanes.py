"""Lane handle: how does the agent fork a lane, keep it fed and notice its death?"""

from __future__ import annotations

import gc
import json
import os
import selectors
import socket
import sys
import traceback
from contextlib import suppress
from typing import Any, Callable, Dict, Optional

from jobyard.agent.execution.lane import Lane
from jobyard.agent.execution.task_environment import TaskEnvironment
from jobyard.agent.sharing.reservations import device_indices
from jobyard.agent.system import processes
from jobyard.agent.system.connection import Connection
from jobyard.agent.system.forking import let_go

_FIRST_DEPTH, _DEEPEST = 4, 64


class LaneHandle:
    """A lane process. Closing its inbox makes it leave after the attempt that it runs."""

    def __init__(self, pid: int, inbox: Connection) -> None:
        self.pid = pid
        self.start_time = processes.start_time(pid)
        self.pending: Dict[str, None] = {}  # handed over and not ended, in order
        self.depth = _FIRST_DEPTH
        self.ended_since_fed = 0
        self.has_ended_any = False
        self.entered: Any = None  # the slot whose job it was told about
        self._inbox = inbox

    def enter(self, slot: Any, job: Dict[str, Any], container: Optional[Dict[str, Any]] = None) -> None:
        """Tell the lane what the items that follow share; once per slot."""
        if self.entered is not slot:
            self.entered = slot
            message = {**job, "job": slot.job, "slot": slot.id, "reserve": slot.reserve}
            message["env"] = {**job["env"], **_device_env(slot.reserve), "YARD_SLOT": str(slot.number)}
            message["container"] = container
            self._inbox.send(message)

    def adapt(self) -> None:
        """Keep the lane as far ahead as it got through since the last look, so that quick tasks leave no gap."""
        if self.ended_since_fed * 2 > self.depth:
            self.depth = min(self.ended_since_fed * 2, _DEEPEST)
        self.ended_since_fed = 0

    def hand(self, items: "list[Dict[str, Any]]") -> None:
        lines = []
        for item in items:
            self.pending[item["id"]] = None
            lines.append(json.dumps(item, separators=(",", ":")))
        lines.append("")
        self._inbox.send_bytes("\n".join(lines).encode())

    def note_end(self, attempt_id: str) -> None:
        """It is done with this one."""
        self.pending.pop(attempt_id, None)
        self.ended_since_fed += 1
        self.has_ended_any = True

    def close(self) -> None:
        self._inbox.close()

    def reap(self) -> None:
        """Let go of the dead process; one that has not quite gone yet is awaited for a moment."""
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _device_env(reserve: Dict[str, Any]) -> Dict[str, str]:
    """A task sees the devices that its slot holds, and no others; without any, an empty list."""
    indices = device_indices(reserve)
    env = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, indices))}
    return {**env, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if indices else env  # NVML counts in this order, CUDA may not


def start_lane(
    selector: selectors.BaseSelector,
    state_dir: str,
    reports: int,
    base_env: Dict[str, str],
    environment: TaskEnvironment,
    on_death: Callable[[LaneHandle], None],
) -> LaneHandle:
    """Fork a lane. The agent must have no other thread, so that the child finds every lock open."""
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _become_lane(state_dir, theirs, reports, base_env, environment)
    theirs.close()
    handle: LaneHandle
    inbox = Connection(selector, ours, lambda line: None, lambda: on_death(handle))
    handle = LaneHandle(pid, inbox)
    return handle


def _become_lane(
    state_dir: str, inbox: socket.socket, reports: int, base_env: Dict[str, str], environment: TaskEnvironment
) -> None:
    """The child's side of the fork; never returns."""
    try:
        let_go({0, 1, 2, inbox.fileno(), reports})
        gc.freeze()  # no use walking, and so copying, what the agent had
        Lane(state_dir, inbox, reports, base_env, environment).run()
        os._exit(0)
    except BaseException:
        try:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(70)
