"""Endings: why did an attempt end, and what is the server told of it?"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from jobyard.agent.attempts.attempt import Attempt, outcome
from jobyard.agent.attempts.spools import Spools
from jobyard.agent.attempts.stop_requests import StopRequests
from jobyard.agent.devices.gpus import Gpus
from jobyard.agent.files import scratch
from jobyard.agent_protocol import records
from jobyard.agent_protocol.endings import is_preempted, missed_stop, said_of_gpu_memory
from jobyard.agent_protocol.progress_reducer import ProgressReducer
from jobyard.agent_protocol.records import Ending, Paths, Record
from jobyard.agent_protocol.stop_request import StopRequest

Explained = Tuple[Ending, str]  # with its reason, and what there is to say of it


class Endings:
    """Says how attempts ended. Only what failed, or was asked to stop, is looked into."""

    def __init__(self, state_dir: str, gpus: Gpus, spools: Spools, stop_requests: StopRequests) -> None:
        self._state_dir = state_dir
        self._gpus = gpus
        self._spools = spools
        self._stop_requests = stop_requests

    def describe(self, attempt: Attempt, ending: Ending) -> Dict[str, Any]:
        """How this attempt ended, in the words of the protocol."""
        files = records.paths(self._state_dir, attempt.id)
        reducer = self._spools.ended(attempt, files.spool)
        request = self._stop_requests.recall(attempt)
        if reducer is not None and ending.exit_code == 0 and (reducer.is_finished or not reducer.is_told):
            reducer.confirm(by_itself=request is None or not request.signalled_at)
        ending, message = self._explain(attempt, ending, files, reducer, request)
        ended = outcome(attempt, ending, files.error)
        if message and (ending.reason == "Preempted" or "message" not in ended):
            ended["message"] = message
        if ending.exit_code and ending.reason is None and "message" not in ended:
            trouble = scratch.trouble_with(self._state_dir)  # it could not say so itself
            if trouble:
                ended["message"] = trouble
        progress = reducer.progress() if reducer is not None else None
        if progress is not None:
            ended["progress"] = progress
        return ended

    def _explain(
        self,
        attempt: Attempt,
        ending: Ending,
        files: Paths,
        reducer: Optional[ProgressReducer],
        request: Optional[StopRequest],
    ) -> Explained:
        """Find the reason, where there is more than an exit code or a signal."""
        if request is not None and not request.is_overridden and is_preempted(ending, reducer, request):
            if reducer is not None:
                reducer.has_preempted()
            ending = ending._replace(reason="Preempted")
            return ending, missed_stop(ending, request)
        if ending.exit_code == 0 and ending.reason != "OutOfMemory":
            return ending, ""
        if attempt.limit_mib or attempt.is_followed:
            over = self._over_memory(attempt, ending, files)
            if over:
                return ending._replace(reason="OutOfMemory"), over
        if ending.reason == "OutOfMemory":
            if attempt.wants_stop is None:
                return ending, "killed by the kernel because memory ran out"
            ending = ending._replace(reason=None)  # we killed it ourselves
        if ending.reason is None and attempt.wants_stop is None:
            full = self._gpu_memory(attempt, files)
            if full:
                return ending._replace(reason="OutOfGpuMemory"), full
        return ending, ""

    def _over_memory(self, attempt: Attempt, ending: Ending, files: Paths) -> str:
        """What is told of one that was ended at its limit, by a cgroup or by an agent that watched it; else empty."""
        kept = records.read(files.record) or Record()
        limit = kept.limit
        if limit is None or not (kept.over_kib or (limit.group and ending.reason == "OutOfMemory")):
            return ""
        attempt.seen_with(-(-kept.over_kib // 1024))
        kept_kib = kept.ending.peak_kib if kept.ending is not None and limit.group else 0
        peak_mib = max(attempt.peaks.memory_mib, -(-kept_kib // 1024))
        # Version 1 of cgroups kills one process only; the task may go on without it and succeed.
        what = "killed" if ending.signal else "one of its processes was killed"
        return (
            "%s because it used more than its memory limit of %d MiB (peak: %d MiB); give it more with --mem, or "
            "no limit with --mem-limit off" % (what, limit.mib, peak_mib)
        )

    def _gpu_memory(self, attempt: Attempt, files: Paths) -> str:
        """What is told of one that ran out of it; empty: it did not."""
        start = attempt.start
        is_proved = start is not None and self._gpus.ran_out_of_memory(start.pid, start.start_time)
        if not is_proved and not (attempt.devices or not attempt.slot.id):  # without a slot its devices are unknown
            return ""
        said = said_of_gpu_memory(files)
        if not is_proved and not said:
            return ""
        figure = self._figure(attempt)
        return "ran out of GPU memory" + (" (%s)" % figure if figure else "") + (": " + said if said else "")

    def _figure(self, attempt: Attempt) -> str:
        mib, index = attempt.peaks.gpu_mib, attempt.peaks.gpu_index
        if not mib:
            return ""
        sizes = {device.index: device.memory_mib for device in self._gpus.devices()}
        size = " of %d" % sizes[index] if index in sizes else ""
        return "it was seen with %d%s MiB on GPU %d" % (mib, size, index)
