"""Attempts and slots: what does the agent remember of those that it has now?"""

from __future__ import annotations

import resource
import time
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Set

from jobyard.agent.execution.lanes import LaneHandle
from jobyard.agent.sharing.reservations import device_indices
from jobyard.agent_protocol import records
from jobyard.agent_protocol.records import Ending, Start
from jobyard.agent_protocol.stop_request import StopRequest

QUEUED, HANDED, RUNNING = "queued", "handed", "running"


class Peaks(NamedTuple):
    """The most memory that an attempt was seen with."""

    memory_mib: int = 0
    gpu_mib: int = 0  # on the device where it had most
    gpu_index: int = 0


_NOTHING_SEEN = Peaks()


class Attempt:
    """One attempt that has not ended. `handed`: a lane has it and may have claimed it."""

    __slots__ = (
        "container_id",
        "end_reason",
        "id",
        "is_contained",
        "is_followed",
        "is_superseded",
        "is_withdrawn",
        "item",
        "lane",
        "peaks",
        "slot",
        "start",
        "state",
        "stop_request",
        "wants_stop",
    )

    def __init__(self, attempt_id: str, slot: "Slot", item: Optional[Dict[str, Any]] = None) -> None:
        self.id = attempt_id
        self.slot = slot
        self.item = item  # None: taken over from an agent that died
        self.state = QUEUED
        self.lane: Optional[LaneHandle] = None
        self.start: Optional[Start] = None  # set: its process has existed
        self.wants_stop: Optional[float] = None  # the grace of a stop that came before its process was known
        self.end_reason = ""  # why we ended it, where no lane is left to say
        self.stop_request: Optional[StopRequest] = None  # what it was asked: to stop at a checkpoint
        self.is_followed = False  # known from its record: an earlier agent may have asked something of it
        self.is_contained = False  # its process is the client of a container
        self.container_id = ""  # once that is known
        self.is_superseded = False  # stopped, and never reported
        self.is_withdrawn = False  # reported as such; its lane will skip it
        self.peaks = _NOTHING_SEEN

    @property
    def pid(self) -> int:
        """0: not known yet."""
        return 0 if self.start is None else self.start.pid

    @property
    def started_at(self) -> Optional[float]:
        return None if self.start is None else self.start.started_at

    @property
    def grace(self) -> Optional[float]:
        return self.item.get("grace") if self.item else None

    @property
    def limit_mib(self) -> int:
        """What it may use of the machine's memory; 0: no limit, or one that its container holds."""
        return 0 if self.is_contained else int(self.slot.reserve.get("memory_limit_mib") or 0)

    @property
    def devices(self) -> List[int]:
        """The devices that it runs on."""
        return device_indices(self.slot.reserve)

    def take_start(self, start: Start) -> None:
        """Its process exists."""
        self.state, self.start = RUNNING, start

    def seen_with(self, memory_mib: int) -> None:
        if memory_mib > self.peaks.memory_mib:
            self.peaks = self.peaks._replace(memory_mib=memory_mib)

    def seen_on_gpu(self, mib: int, index: int) -> None:
        if mib > self.peaks.gpu_mib:
            self.peaks = self.peaks._replace(gpu_mib=mib, gpu_index=index)


class Slot:
    """Room that one job holds here; its attempts run one after another."""

    def __init__(self, slot_id: str, job: str, reserve: Dict[str, Any]) -> None:
        self.id = slot_id
        self.job = job
        self.reserve = reserve
        self.queue: Deque[Attempt] = deque()
        self.lane: Optional[LaneHandle] = None
        self.outliving: Set[str] = set()  # attempts whose lane or agent died: nothing else starts here until they end
        self.has_room = False  # its reservation is made: nothing starts before
        self.is_closing = False
        self.number = 0  # among those of its job here, from 1: YARD_SLOT; 0: not yet

    @property
    def is_empty(self) -> bool:
        return not self.queue and not self.outliving and (self.lane is None or not self.lane.pending)


def outcome(attempt: Attempt, ending: Ending, error_file: str) -> Dict[str, Any]:
    """How an attempt ended, in the words of the protocol."""
    result: Dict[str, Any] = {
        "started_at": ending.ended_at if attempt.started_at is None else attempt.started_at,
        "finished_at": ending.ended_at,
    }
    if ending.exit_code is not None:
        result["exit_code"] = ending.exit_code
    if ending.signal is not None:
        result["signal"] = ending.signal
    if ending.reason:
        result["reason"] = ending.reason
    message = records.first_line(error_file)
    if message:
        result["message"] = message
    peak = -(-ending.peak_kib // 1024)
    if ending.peak_kib <= _own_peak.kib():
        # Until it execs, a spawned child is charged with its lane's memory: the figure says no more than that.
        peak = 0
    peak = max(peak, attempt.peaks.memory_mib)
    if peak:
        result["peak_memory_mib"] = peak
    if attempt.peaks.gpu_mib:
        result["peak_gpu_memory_mib"] = attempt.peaks.gpu_mib
    return result


class _OwnPeak:
    """A lane is a fork of the agent: its memory is about ours. Not getrusage: that counts whoever started us, too."""

    def __init__(self) -> None:
        self._kib = 0
        self._read_at = float("-inf")

    def kib(self) -> int:
        now = time.monotonic()
        if now - self._read_at > 1.0:
            self._kib, self._read_at = _high_water_kib(), now
        return self._kib


def _high_water_kib() -> int:
    try:
        with open("/proc/self/status", "rb") as file:
            return int(file.read().split(b"VmHWM:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


_own_peak = _OwnPeak()
