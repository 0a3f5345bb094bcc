"""Why did an attempt end, and what is told of it?"""

from __future__ import annotations

from typing import Any, Dict, Optional

from jobyard.agent.attempts.attempt import Attempt, outcome
from jobyard.agent.attempts.orders import Orders
from jobyard.agent.attempts.spools import Spools
from jobyard.agent.devices.gpus import Gpus
from jobyard.agent.files import scratch
from jobyard.agent_protocol import records
from jobyard.agent_protocol.endings import is_preempted, missed_stop, said_of_gpu_memory
from jobyard.agent_protocol.progress_reducer import ProgressReducer
from jobyard.agent_protocol.records import Paths, Record
from jobyard.agent_protocol.stop_request import StopRequest


class Endings:
    """Says how attempts ended. Only what failed, or was asked to stop, is looked into."""

    def __init__(self, state_dir: str, gpus: Gpus, spools: Spools, orders: Orders) -> None:
        self._state_dir = state_dir
        self._gpus = gpus
        self._spools = spools
        self._orders = orders

    def describe(self, attempt: Attempt, record: Record) -> Dict[str, Any]:
        """How this attempt ended, in the words of the protocol."""
        files = records.paths(self._state_dir, attempt.id)
        fold = self._spools.ended(attempt, files.spool, record.started_at)
        order = self._orders.recall(attempt)
        if fold is not None and record.exit_code == 0 and (fold.is_finished or not fold.is_told):
            fold.confirm(by_itself=order is None or not order.signalled_at)
        message = self._explain(attempt, record, files, fold, order)
        ended = outcome(record, files.error, attempt.peak_mib, attempt.peak_gpu_mib)
        if message and (record.reason == "Preempted" or "message" not in ended):
            ended["message"] = message
        if record.exit_code and record.reason is None and "message" not in ended:
            trouble = scratch.trouble_with(self._state_dir)  # it could not say so itself
            if trouble:
                ended["message"] = trouble
        progress = fold.progress() if fold is not None else None
        if progress is not None:
            ended["progress"] = progress
        return ended

    def _explain(
        self,
        attempt: Attempt,
        record: Record,
        files: Paths,
        fold: Optional[ProgressReducer],
        order: Optional[StopRequest],
    ) -> str:
        """Find the reason, where there is more than an exit code or a signal; returns what there is to say of it."""
        if order is not None and not order.is_overridden and is_preempted(record.ending, fold, order):
            record.reason = "Preempted"
            if fold is not None:
                fold.has_preempted()
            return missed_stop(record.ending, order)
        if record.exit_code == 0 and record.reason != "OutOfMemory":
            return ""
        if attempt.limit_mib or attempt.is_followed:
            over = self._over_memory(attempt, record, files)
            if over:
                return over
        if record.reason == "OutOfMemory":
            if attempt.wants_stop is None:
                return "killed by the kernel because memory ran out"
            record.reason = None  # we killed it ourselves
        if record.reason is None and attempt.wants_stop is None:
            return self._gpu_memory(attempt, record, files)
        return ""

    def _over_memory(self, attempt: Attempt, record: Record, files: Paths) -> str:
        """Was it ended at its limit, by a cgroup or by an agent that watched it?"""
        kept = records.read(files.record) or Record()
        if not kept.limit_mib or not (kept.over_kib or (kept.memory_group and record.reason == "OutOfMemory")):
            return ""
        record.reason = "OutOfMemory"
        attempt.peak_mib = max(attempt.peak_mib, -(-kept.over_kib // 1024))
        peak_mib = max(attempt.peak_mib, -(-kept.peak_kib // 1024) if kept.memory_group else 0)
        # Version 1 of cgroups ends one process; whoever goes on without it may even end well.
        what = "killed" if record.signal else "one of its processes was killed"
        return (
            "%s because it used more than its memory limit of %d MiB (peak: %d MiB); give it more with --mem, or "
            "no limit with --mem-limit off" % (what, kept.limit_mib, peak_mib)
        )

    def _gpu_memory(self, attempt: Attempt, record: Record, files: Paths) -> str:
        pid, start_time = attempt.pid or record.pid, attempt.start_time or record.start_time
        is_proved = bool(pid) and self._gpus.ran_out_of_memory(pid or 0, start_time)
        if not is_proved and not (attempt.devices or not attempt.slot.id):  # without a slot: long ago, who knows
            return ""
        said = said_of_gpu_memory(files)
        if not is_proved and not said:
            return ""
        record.reason = "OutOfGpuMemory"
        figure = self._figure(attempt)
        return "ran out of GPU memory" + (" (%s)" % figure if figure else "") + (": " + said if said else "")

    def _figure(self, attempt: Attempt) -> str:
        if not attempt.peak_gpu_mib:
            return ""
        sizes = {device.index: device.memory_mib for device in self._gpus.devices()}
        index = attempt.peak_gpu_index
        size = " of %d" % sizes[index] if index in sizes else ""
        return "it was seen with %d%s MiB on GPU %d" % (attempt.peak_gpu_mib, size, index)
