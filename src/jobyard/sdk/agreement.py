"""Agreement of ranks: do all ranks of a distributed training stop together? Rank 0 decides, through torch's store.

Not by a collective: one on a GPU that nobody has chosen yet fails, and one that only rank 0 joins, because the script
calls the yard there alone, never ends. Each agreement leaves one small key in the store: once per epoch or save.
"""

from __future__ import annotations

import atexit
import sys
import time

from jobyard.sdk.environment import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = "jobyard/asked"
LEAVE_SECONDS = 30.0  # how long rank 0, which often hosts the store, waits until the others have read it

_turn = 0


def torch_ranks() -> Any:
    """torch.distributed, if this process has it and is one of several; None otherwise. Imports nothing."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed if distributed.get_world_size() > 1 else None
    except Exception:  # a torch that is half imported, or built without it
        pass
    return None


def agree(is_asked: bool, can_stop: bool) -> bool:
    """Whether to stop now; the same answer on all ranks that call equally often. Alone: if asked and possible."""
    ranks = torch_ranks()
    if ranks is None:
        return is_asked and can_stop
    global _turn
    _turn += 1
    try:
        store = ranks.distributed_c10d._get_default_store()
        if ranks.get_rank() == 0:
            stops = _decide(store, is_asked, can_stop, ranks.get_world_size() - 1)
        else:
            stops = _follow(store, is_asked)
    except Exception as problem:
        warn(f"the ranks could not agree on whether to stop ({problem}); training goes on.")
        return False
    if stops:
        atexit.register(_part)
    return stops


def _part() -> None:
    """Destroy the process group first: otherwise gloo's threads abort the process, and its exit code is lost."""
    ranks = torch_ranks()
    if ranks is not None:
        ranks.destroy_process_group()


def _decide(store: Any, is_asked: bool, can_stop: bool, others: int) -> bool:
    stops = can_stop and (is_asked or store.add(ASKED, 0) > 0)
    store.set(f"jobyard/stop/{_turn}", "1" if stops else "0")
    deadline = time.monotonic() + LEAVE_SECONDS
    while stops and store.add(f"jobyard/left/{_turn}", 0) < others and time.monotonic() < deadline:
        time.sleep(0.01)
    return stops


def _follow(store: Any, is_asked: bool) -> bool:
    if is_asked:
        store.add(ASKED, 1)
    stops = bool(store.get(f"jobyard/stop/{_turn}") == b"1")  # waits for rank 0, as the next training step would
    if stops:
        store.add(f"jobyard/left/{_turn}", 1)
    return stops
