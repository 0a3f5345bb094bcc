"""Machine: what is here, how much of it is used, and what is the server told of that?"""

from __future__ import annotations

import time
from typing import Any, Dict, Optional

from jobyard.agent.attempts.measuring import Measurer
from jobyard.agent.attempts.runner import Runner
from jobyard.agent.devices.gpus import Gpus
from jobyard.agent.execution.runtimes import Runtimes
from jobyard.agent.sharing.published import Capacity
from jobyard.agent.system import probe, processes

SAMPLE_SECONDS = 2.0
_RUNTIME_SECONDS = 5.0  # so long a server that wants to know waits at most for a container runtime


class ThisMachine:
    """Describes the machine once, and measures it as often as somebody asks."""

    def __init__(self, gpus: Gpus, capacity: Capacity, measurer: Measurer, runtimes: Runtimes, runner: Runner) -> None:
        self._gpus = gpus
        self._capacity = capacity
        self._measurer = measurer
        self._runtimes = runtimes
        self._runner = runner
        self._has_swept = False  # containers that an agent before us left

    def describe(self) -> Dict[str, Any]:
        """The part of `welcome` that is about the machine."""
        return {
            "boot_id": processes.boot_id(),
            "now": time.time(),
            "machine_id": probe.machine_id(),
            "host": probe.host(),
            "cpu_millis": self._capacity.cpu_millis,
            "memory_mib": self._capacity.memory_mib,
            "devices": [device._asdict() for device in self._gpus.devices()],
            "runtime": self._runtime(),
        }

    def measure(self) -> Dict[str, Any]:
        """The `measured` message."""
        return {**self._measurer.measure(self._runner.workload.running), "runtime": self._runtime()}

    def _runtime(self) -> Optional[Dict[str, str]]:
        found = self._runtimes.poll()
        if found is None:
            return None
        if found.kind and not self._has_swept:
            self._has_swept = True
            self._runner.remover.begin()
        return {"kind": found.kind, "problem": found.problem}

    def look_for_runtimes(self) -> None:
        """Somebody may install one, or start its engine."""
        self._runtimes.look()

    def await_runtime(self) -> None:
        """Wait until a container runtime has answered, but not for long."""
        self._runtimes.found_within(_RUNTIME_SECONDS)

    def sample(self) -> None:
        """Raise the peaks of what runs, if any of it has for a moment."""
        long_ago = time.time() - SAMPLE_SECONDS
        running = self._runner.workload.running
        if any(attempt.started_at is not None and attempt.started_at < long_ago for attempt in running):
            self._measurer.sample(running)
