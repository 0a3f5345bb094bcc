"""Slot containers: what must a lane know of the containers that its slot's attempts run in?"""

from __future__ import annotations

from typing import Any, Dict

from jobyard.agent.devices.gpus import Gpus
from jobyard.agent.execution.runtimes import Runtimes
from jobyard.agent.sharing.reservations import Reservations, device_indices

_RUNTIME_SECONDS = 5.0  # that a container may wait for an agent which has not asked its runtime yet


class SlotContainers:
    """Adds what this machine has and what a slot holds of it to what the job asked of its container."""

    def __init__(self, gpus: Gpus, runtimes: Runtimes, reservations: Reservations) -> None:
        self._gpus = gpus
        self._runtimes = runtimes
        self._reservations = reservations

    def describe(self, container: Dict[str, Any], reserve: Dict[str, Any]) -> Dict[str, Any]:
        held = set(device_indices(reserve))
        devices = [device for device in self._gpus.devices() if device.index in held and not device.fake]
        return {
            **container,
            "runtime": list(self._runtimes.found_within(_RUNTIME_SECONDS)),
            "yard": self._reservations.yard,
            "cpu_millis": reserve.get("cpu_millis") or 0,
            "memory_mib": reserve.get("memory_limit_mib", reserve.get("memory_mib")) or 0,
            "devices": [[device.index, device.uuid] for device in devices],
        }
