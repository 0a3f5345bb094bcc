"""Why did an attempt end, and what is told of it?"""

from __future__ import annotations

import os
import re
import signal
from typing import Any, Dict, Optional

from jobyard.agent import records, scratch
from jobyard.agent.attempts import Attempt, outcome
from jobyard.agent.gpus import Gpus
from jobyard.agent.orders import Orders
from jobyard.agent.progress import Fold
from jobyard.agent.records import Paths, Record
from jobyard.agent.spools import Spools
from jobyard.agent.stop_file import YIELD_EXIT_CODE, StopOrder

_TAIL_BYTES = 1 << 16
_LONGEST_QUOTE = 300
_SIGNALLED = {128 + signal.SIGTERM: int(signal.SIGTERM), 128 + signal.SIGKILL: int(signal.SIGKILL)}
# As torch, the CUDA driver and runtime, cuBLAS, TensorFlow, JAX and XLA say it.
_GPU_MEMORY = re.compile(
    rb"torch\.(?:cuda\.)?OutOfMemoryError|(?:CUDA|HIP) out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    rb"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|OOM when allocating"
    rb"|RESOURCE_EXHAUSTED[^\n]{0,200}(?:[Oo]ut of memory|OOM)"
)


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
        self, attempt: Attempt, record: Record, files: Paths, fold: Optional[Fold], order: Optional[StopOrder]
    ) -> str:
        """Find the reason, where there is more than an exit code or a signal; returns what there is to say of it."""
        if order is not None and not order.is_overridden and is_preempted(record, fold, order):
            record.reason = "Preempted"
            if fold is not None:
                fold.has_preempted()
            return _missed(record, order) if order.signalled_at and record.exit_code != YIELD_EXIT_CODE else ""
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


def is_preempted(record: Record, fold: Optional[Fold], order: StopOrder) -> bool:
    """Did an attempt that was asked to stop do so, or was it made to? Ended by itself, or failed, it was not."""
    # What ended before, and has only been cleared away since, did not end because of our signal.
    is_ended_by_us = order.signalled_at > 0 and (record.ended_at or 0.0) >= order.signalled_at
    if record.reason == "Unknown":  # its status is lost, its last words are not
        return is_ended_by_us or (fold is not None and fold.has_yielded)
    if record.reason not in (None, "OutOfMemory"):
        return False
    if record.exit_code == YIELD_EXIT_CODE:
        return True
    if record.exit_code == 0:
        if fold is not None and fold.is_told:
            return not fold.is_finished
        # Who ends well at SIGTERM has stopped as well, if its own reports place that in the middle of its work. Without
        # any, it was ended only because nobody waits for its checkpoints: then nothing speaks for its being done.
        return is_ended_by_us and (order.at_once if fold is None or not fold.has_an_end else fold.is_unfinished)
    # Launchers have their own codes: torchrun makes 1 of a worker's 85.
    return is_ended_by_us or (fold is not None and fold.has_yielded)


def _missed(record: Record, order: StopOrder) -> str:
    number = record.signal or _SIGNALLED.get(record.exit_code or 0, int(signal.SIGTERM))
    name = "SIGKILL" if number == signal.SIGKILL else "SIGTERM"
    if order.at_once:
        return "ended by %s: it does not stop at a checkpoint by itself" % name
    return "did not stop at a checkpoint within %g s; ended by %s" % (round(order.deadline, 1), name)


def said_of_gpu_memory(files: Paths) -> str:
    """The line at the end of its output that tells of a full GPU; empty if there is none."""
    for path in (files.err, files.out):
        data = _tail(path)
        places = [match.start() for match in _GPU_MEMORY.finditer(data)]
        if places:
            begin = data.rfind(b"\n", 0, places[-1]) + 1
            line = data[max(begin, places[-1] - 200) :].split(b"\n", 1)[0]
            return line.decode("utf-8", "replace").strip()[:_LONGEST_QUOTE]
    return ""


def _tail(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, _TAIL_BYTES, max(0, os.fstat(descriptor).st_size - _TAIL_BYTES))
    except OSError:
        return b""
    finally:
        os.close(descriptor)
