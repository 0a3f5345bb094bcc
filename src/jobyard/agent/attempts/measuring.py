"""Measuring: how much do our attempts use, and how much does everybody else?"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from jobyard.agent.attempts.attempt import Attempt
from jobyard.agent.devices.gpus import Gpus, Usage
from jobyard.agent.execution import containers
from jobyard.agent.sharing.reservations import Reservations
from jobyard.agent.system import probe, processes

_HOLDERS = 20
# The driver itself keeps a little while a device is in use: 8 MiB beside one process on an H200, driver 580. It goes
# with the process, and no process that anybody would name is that small.
_DRIVER_MIB = 64


class Measurer:
    """Looks once over /proc and the devices, keeps the peaks of attempts, and says what is left over for strangers."""

    def __init__(self, gpus: Gpus, reservations: Reservations, state_dir: str = "") -> None:
        self._gpus = gpus
        self._state_dir = state_dir
        self._reservations = reservations

    def measure(self, running: List[Attempt]) -> Dict[str, Any]:
        """The `measured` message. Raises the peaks of these attempts on the way."""
        usage = self._gpus.usage()
        by_attempt, strangers = self._sample(running, usage)
        memory, others = probe.memory(), self._reservations.others()
        ours = sum(sample["memory_mib"] for sample in by_attempt.values())
        foreign_mib = max(0, memory.total_mib - memory.available_mib - ours)
        device_mib = dict(others.device_mib)
        holders = list(others.holders)
        for index, found in strangers.items():
            device_mib[index] = max(device_mib.get(index, 0), found["mib"])
            holders += [holder for holder in found["holders"] if holder not in holders]
        return {
            "ev": "measured",
            "load": probe.load(),
            "memory_available_mib": memory.available_mib,
            "foreign": {
                "cpu_millis": others.cpu_millis,
                "memory_mib": max(foreign_mib, others.memory_mib),
                "device_mib": {str(index): mib for index, mib in device_mib.items() if mib},
                "device_percent": {str(index): percent for index, percent in others.device_percent.items() if percent},
                "whole_devices": sorted(others.whole_devices),
                "holders": holders[:_HOLDERS],
                "doubts": others.doubts,
            },
            "devices": [{"index": u.index, "used_mib": u.used_mib, "utilisation": u.utilisation or 0} for u in usage],
            "attempts": by_attempt,
        }

    def sample(self, running: List[Attempt]) -> None:
        """Raise the peaks of these attempts, and nothing else."""
        self._sample(running, self._gpus.usage())

    def _sample(self, running: List[Attempt], usage: List[Usage]) -> "tuple[dict[str, dict[str, int]], dict[int, Any]]":
        by_session = {attempt.pid: attempt for attempt in running}
        contained = self._contained(running)
        rss_kib = dict.fromkeys(by_session, 0)
        owners: Dict[int, int] = {}  # pid -> session, for the devices
        names: Dict[int, str] = {}
        for process in processes.scan():
            session = process.session if process.session in by_session else process.group
            names[process.pid] = process.name
            if contained:
                session = containers.session_of(process.pid, session, contained)
            if session in by_session:
                rss_kib[session] += process.rss_kib
                owners[process.pid] = session
        gpu_mib: Dict[int, Dict[int, int]] = {session: {} for session in by_session}  # by device
        strangers: Dict[int, Any] = {}
        for device in usage:
            known = 0
            holders = []
            for pid, mib in device.by_pid.items():
                if pid in owners:
                    here = gpu_mib[owners[pid]]
                    here[device.index] = here.get(device.index, 0) + mib
                    known += mib
                else:
                    holders.append("%s (pid %d)" % (names.get(pid, "process"), pid))
            # Memory without a named process counts too: drivers hide processes of other containers.
            mib = max(0, device.used_mib - known)
            strangers[device.index] = {"mib": mib if holders or mib > _DRIVER_MIB else 0, "holders": holders}
        samples = {}
        for session, attempt in by_session.items():
            memory_mib = -(-rss_kib[session] // 1024)
            attempt.seen_with(memory_mib)
            most_mib, index = max(((mib, index) for index, mib in gpu_mib[session].items()), default=(0, 0))
            attempt.seen_on_gpu(most_mib, index)
            samples[attempt.id] = {"memory_mib": memory_mib, "gpu_memory_mib": most_mib}
            percent = _mean_percent(attempt.devices, usage)
            if percent is not None:
                samples[attempt.id]["gpu_percent"] = percent
        return samples, strangers

    def _contained(self, running: List[Attempt]) -> Dict[str, int]:
        """The sessions of those in containers, by their containers' ids; not known in the first moments."""
        found = {}
        for attempt in running:
            if attempt.is_contained:
                attempt.container_id = attempt.container_id or containers.id_of(self._state_dir, attempt.id)
                found[attempt.container_id or "-" + attempt.id] = attempt.pid
        return found


def _mean_percent(devices: List[int], usage: List[Usage]) -> Optional[int]:
    """How busy the devices of an attempt are, by any process; None: it has none, or they do not report it."""
    told = [device.utilisation for device in usage if device.index in devices and device.utilisation is not None]
    return round(sum(told) / len(told)) if told else None
