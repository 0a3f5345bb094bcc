"""Best fit: how many GPUs can a job have, counting what is free and what it has already?"""

from __future__ import annotations

from collections.abc import Mapping


def best_fit(
    most: int, now: int, replicas: int, free: Mapping[str, int], own: Mapping[str, int], quota_free: int | None
) -> int:
    """Of one replica: at most `most`, what quota and nodes leave (None: there is no quota), 0 if nothing fits.

    All GPUs of a replica are on one node; `own` is what the job has there now, and would give back.
    """
    rooms = [free.get(node, 0) + own.get(node, 0) for node in {*free, *own}]
    most = min(most, max(rooms, default=0))
    if quota_free is not None:
        most = min(most, max(0, quota_free) // replicas + now)
    for gpus in range(most, 0, -1):
        if sum(room // gpus for room in rooms) >= replicas:
            return gpus
    return 0
