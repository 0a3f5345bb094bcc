"""GPUs: which are there, how full are they, and who fills them?"""

from __future__ import annotations

import importlib
from typing import Any, Dict, List, NamedTuple, Optional, Protocol

_MIB = 1 << 20


class Device(NamedTuple):
    index: int  # type: ignore[assignment]
    name: str
    memory_mib: int
    uuid: str
    fake: bool


class Usage(NamedTuple):
    """One device at one moment; `by_pid` is in MiB and may be incomplete where the driver does not tell.

    `utilisation` is None where that is not known: of a MIG slice, or by an old driver.
    """

    index: int  # type: ignore[assignment]
    used_mib: int
    utilisation: Optional[int]
    by_pid: Dict[int, int]


class Gpus(Protocol):
    """Real devices or simulated ones."""

    def devices(self) -> List[Device]: ...

    def usage(self) -> List[Usage]: ...

    def ran_out_of_memory(self, pid: int, start_time: int) -> bool:
        """Is it proved that this session failed because a device was full?"""
        ...


class NoGpus:
    def devices(self) -> List[Device]:
        return []

    def usage(self) -> List[Usage]:
        return []

    def ran_out_of_memory(self, pid: int, start_time: int) -> bool:
        return False


class NvidiaGpus(NoGpus):
    """Devices as NVML sees them. A device that stops answering is left out of the usage, never an error."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]

    def devices(self) -> List[Device]:
        found = []
        for index, handle in enumerate(self._handles):
            memory = self._memory(handle)
            total = (memory.total - getattr(memory, "reserved", 0)) // _MIB
            name, uuid = self._nvml.nvmlDeviceGetName(handle), self._nvml.nvmlDeviceGetUUID(handle)
            found.append(Device(index, _text(name), total, _text(uuid), False))
        return found

    def usage(self) -> List[Usage]:
        found = []
        for index, handle in enumerate(self._handles):
            try:
                used = self._memory(handle).used // _MIB
            except self._nvml.NVMLError:
                continue
            found.append(Usage(index, used, self._utilisation(handle), self._by_pid(handle)))
        return found

    def _memory(self, handle: Any) -> Any:
        """What tasks can have of a device. Version 1 counts what the driver keeps for itself as used."""
        try:
            return self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2)
        except (AttributeError, TypeError, self._nvml.NVMLError):  # an old driver or an old pynvml
            return self._nvml.nvmlDeviceGetMemoryInfo(handle)

    def _utilisation(self, handle: Any) -> Optional[int]:
        try:
            return int(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except self._nvml.NVMLError:
            return None

    def _by_pid(self, handle: Any) -> Dict[int, int]:
        by_pid: Dict[int, int] = {}
        for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
            try:
                processes = getattr(self._nvml, name)(handle)
            except self._nvml.NVMLError:
                continue
            for process in processes:
                mib = (process.usedGpuMemory or 0) // _MIB
                by_pid[process.pid] = max(by_pid.get(process.pid, 0), mib)  # one that does both is listed twice
        return by_pid


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def find_gpus() -> Gpus:
    """The machine's GPUs. No driver, no library or a broken one: a machine without GPUs."""
    nvml = _nvml()
    if nvml is None:
        return NoGpus()
    try:
        nvml.nvmlInit()
        gpus = NvidiaGpus(nvml)
        gpus.devices()
    except Exception:  # whatever a half-installed driver raises
        return NoGpus()
    return gpus


def _nvml() -> Optional[Any]:
    try:
        return importlib.import_module("pynvml")
    except Exception:  # absent, or not made for this Python
        return None
