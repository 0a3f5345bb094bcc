"""Agent: how do the server's messages, the lanes' reports and the clock meet in one loop?"""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Callable, Dict

from jobyard.agent.attempts.measuring import Measurer
from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.attempts.runner import Runner
from jobyard.agent.devices.gpus import Gpus
from jobyard.agent.execution.runtimes import Runtimes
from jobyard.agent.execution.task_environment import TaskEnvironment
from jobyard.agent.files.packer import Packer
from jobyard.agent.files.staging import Staging
from jobyard.agent.forgetting import Forgetter
from jobyard.agent.machine import SAMPLE_SECONDS, ThisMachine
from jobyard.agent.reporting.report_endpoint import ReportEndpoint
from jobyard.agent.requests import Requests
from jobyard.agent.session import ServerSession
from jobyard.agent.sharing.published import Capacity
from jobyard.agent.sharing.reservations import Reservations
from jobyard.agent.system import probe
from jobyard.agent.system.entrance import Entrance
from jobyard.agent.system.forking import Background
from jobyard.agent.system.loop import Loop
from jobyard.agent_protocol import disk_groups, sdk_files

_MEASURE_SECONDS = 5.0
_LEFTOVERS_SECONDS = 3600.0
_LOOK_SECONDS = 15.0  # until a container runtime that does not answer is asked again
_FIRST_LOOK_SECONDS = 2.0  # not at once: whoever starts a yard waits for its first task


class Agent:
    """One agent: one thread, one loop, one server at a time. When it ends, running attempts go on."""

    def __init__(
        self,
        state_dir: str,
        listener: socket.socket,
        gpus: Gpus,
        build: str,
        idle_seconds: float,
        log: Callable[[str], None],
    ) -> None:
        self.loop = loop = Loop()
        self._state_dir = state_dir
        self._listener = listener
        self._build = build
        self._idle_seconds = idle_seconds
        self._log = log
        capacity = _capacity(gpus)
        self._reservations = Reservations(capacity)
        background = Background(loop.selector, loop.timers)
        self._forgetter = Forgetter(background, state_dir)
        self._sdk = sdk_files.unpack(state_dir, log)
        self._report_endpoint = ReportEndpoint(loop.selector, loop.timers, state_dir, log)
        environment = TaskEnvironment(self._sdk, self._report_endpoint.address, self._report_endpoint.token_file)
        outbox, staging, runtimes = Outbox(loop.timers), Staging(state_dir), Runtimes(os.environ)
        packer = Packer(background, loop.timers, state_dir, log)
        self._runner = Runner(
            loop, outbox, self._reservations, state_dir, gpus, background, staging, environment, runtimes, packer
        )
        attempts = self._runner.workload.attempts
        packer.needed = lambda: outbox.untold().union(attempts)
        outbox.on_told = packer.told
        measurer = Measurer(gpus, self._reservations, state_dir)
        self._machine = ThisMachine(gpus, capacity, measurer, runtimes, self._runner)
        requests = Requests(self._runner, self._machine, outbox, staging, self._forgetter, loop.timers, state_dir)
        self._session = ServerSession(
            loop, requests, outbox, self._runner.workload, self._reservations, self._about_us, log
        )
        self._is_displaced: Callable[[], bool] = lambda: False
        self._quiet_since = time.monotonic()

    def _about_us(self) -> Dict[str, Any]:
        own = {"build": self._build, "state_dir": self._state_dir, "report_address": self._report_endpoint.address}
        return {**own, **self._machine.describe()}

    def run(self) -> None:
        """Serve until told to leave, or until nobody has needed us for long enough."""
        attempts = self._runner.workload.attempts
        disk_groups.spread(self._state_dir + "/jobs")
        self._runner.adopt_all()
        if not attempts:
            sdk_files.remove_others(self._state_dir, self._sdk)
        self._forgetter.empty_trash()
        self._report_endpoint.open(attempts, self._runner.spools)
        Entrance(self.loop.selector, self.loop.timers, self._listener, self._session.welcome)
        self.loop.every(_LEFTOVERS_SECONDS, self._runner.pack_leftovers)
        self.loop.every(_MEASURE_SECONDS, self._tell_measured)
        self.loop.every(SAMPLE_SECONDS, self._machine.sample)
        self.loop.every(_LOOK_SECONDS, self._look_for_runtimes, first_after=_FIRST_LOOK_SECONDS)
        self.loop.every(min(1.0, max(0.05, self._idle_seconds / 4)), self._leave_if_unused, first_after=0.1)
        self.loop.run()
        self._runner.let_go()
        self._reservations.release_all()

    def leave_when(self, is_displaced: Callable[[], bool]) -> None:
        """Leave when this becomes true; asked about once a second."""
        self._is_displaced = is_displaced

    # The clock

    def _tell_measured(self) -> None:
        if self._session.server is not None:
            self._session.server.send(self._machine.measure())

    def _look_for_runtimes(self) -> None:
        if self._session.server is not None:
            self._machine.look_for_runtimes()

    def _leave_if_unused(self) -> None:
        self._session.leave_if_done()
        if self._is_displaced():
            self._log("the lock or the socket of this agent is gone: leaving to whoever comes")
            self.loop.leave()
        if self._session.server is not None or self._runner.workload.attempts:
            self._quiet_since = time.monotonic()
        elif time.monotonic() - max(self._quiet_since, self._session.lost_at) > self._idle_seconds:
            self._log("nobody has needed this agent for %.0f seconds: leaving" % self._idle_seconds)
            self.loop.leave()


def _capacity(gpus: Gpus) -> Capacity:
    return Capacity(
        probe.cpu_millis(),
        probe.memory().total_mib,
        {device.index: device.memory_mib for device in gpus.devices()},
        (os.cpu_count() or 1) * 1000,
        probe.machine_memory_mib(),
    )
