"""Endings: what does an exit status mean, together with what the task reported and what it was asked?

The same for a process on a machine and for a pod.
"""

from __future__ import annotations

import os
import re
import signal
from typing import Optional

from jobyard.agent_protocol.exit_codes import PREEMPTED_EXIT_CODE
from jobyard.agent_protocol.progress_reducer import ProgressReducer
from jobyard.agent_protocol.records import Ending, Paths
from jobyard.agent_protocol.stop_request import StopRequest

_TAIL_BYTES = 1 << 16
_LONGEST_QUOTE = 300
_SIGNALLED = {128 + signal.SIGTERM: int(signal.SIGTERM), 128 + signal.SIGKILL: int(signal.SIGKILL)}
# As torch, the CUDA driver and runtime, cuBLAS, TensorFlow, JAX and XLA say it.
_GPU_MEMORY = re.compile(
    rb"torch\.(?:cuda\.)?OutOfMemoryError|(?:CUDA|HIP) out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    rb"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|OOM when allocating"
    rb"|RESOURCE_EXHAUSTED[^\n]{0,200}(?:[Oo]ut of memory|OOM)"
)


def is_preempted(ending: Ending, reducer: Optional[ProgressReducer], request: StopRequest) -> bool:
    """Did an attempt that was asked to stop do so, or was it made to? Ended by itself, or failed, it was not."""
    # What ended before, and has only been cleared away since, did not end because of our signal.
    is_ended_by_us = request.signalled_at > 0 and ending.ended_at >= request.signalled_at
    if ending.reason == "Unknown":  # its status is lost, its last words are not
        return is_ended_by_us or (reducer is not None and reducer.has_yielded)
    if ending.reason not in (None, "OutOfMemory"):
        return False
    if ending.exit_code == PREEMPTED_EXIT_CODE:
        return True
    if ending.exit_code == 0:
        if reducer is not None and reducer.is_told:
            return not reducer.is_finished
        # Who ends well at SIGTERM has stopped as well, if its own reports place that in the middle of its work. Without
        # any, it was ended only because nobody waits for its checkpoints: then nothing speaks for its being done.
        return is_ended_by_us and (
            request.at_once if reducer is None or not reducer.has_an_end else reducer.is_unfinished
        )
    # Launchers have their own codes: torchrun makes 1 of a worker's 85.
    return is_ended_by_us or (reducer is not None and reducer.has_yielded)


def missed_stop(ending: Ending, request: StopRequest) -> str:
    """What is told of an attempt that did not stop by itself; empty: it did, or nobody signalled it."""
    if not request.signalled_at or ending.exit_code == PREEMPTED_EXIT_CODE:
        return ""
    number = ending.signal or _SIGNALLED.get(ending.exit_code or 0, int(signal.SIGTERM))
    name = "SIGKILL" if number == signal.SIGKILL else "SIGTERM"
    if request.at_once:
        return "ended by %s: it does not stop at a checkpoint by itself" % name
    return "did not stop at a checkpoint within %g s; ended by %s" % (round(request.deadline, 1), name)


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
