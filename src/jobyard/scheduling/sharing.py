"""GPU sharing: how much GPU memory does a job that shares its GPU reserve?

The declared amount, until its use is known; then the measured peak, and some headroom.
"""

from __future__ import annotations

from collections.abc import Iterable

HEADROOM_MIB = 512  # fragments and workspaces that differ from epoch to epoch
HEADROOM_PART = 0.10  # of the peak, where that is more
OOM_FACTOR = 1.5  # the failed allocation is in no measurement: half as much again is tried


def with_headroom(peak_mib: int) -> int:
    return peak_mib + max(HEADROOM_MIB, round(peak_mib * HEADROOM_PART))


def reservation_mib(declared_mib: int, learned_peak_mib: int, is_steady: bool, device_mib: int) -> int:
    """On each of its GPUs, never more than the device has. 0: how much it needs is not known, so it shares with nobody.

    `is_steady`: the peak was seen over whole epochs, so the declared amount counts no more.
    """
    if is_steady and learned_peak_mib:
        return min(device_mib, with_headroom(learned_peak_mib))
    return min(device_mib, max(declared_mib, learned_peak_mib))


def after_oom(reserved_mib: int, peak_mib: int, device_mibs: Iterable[int]) -> int | None:
    """What to reserve after it ran out of GPU memory with `reserved_mib` (all of the device, if it was alone there).

    The answer may be all memory of the largest device: then it shares with nobody. None: it had all of that.
    """
    largest = max(device_mibs, default=0)
    if reserved_mib >= largest:
        return None
    return min(largest, max(round(reserved_mib * OOM_FACTOR), with_headroom(peak_mib), reserved_mib + 1))
