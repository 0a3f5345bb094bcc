"""Elasticity (scale-up): which running elastic job grows into free room, and is the restart worth it?

A checkpoint is on a machine, so a job grows on the nodes that it is on; on a cluster, wherever there is room. One job
per cycle: higher priority first, then the one that loses least since its last checkpoint (it will be back first), then
the oldest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, log

from jobyard.model.job import Reason
from jobyard.model.node import NodeState
from jobyard.model.resources import Placement
from jobyard.model.training import Size
from jobyard.scheduling.blocked import Blocked
from jobyard.scheduling.placement import Protected, Room, choose_node
from jobyard.scheduling.quotas import Allowance, amounts_of
from jobyard.scheduling.snapshot import CheckpointStop, Running, Snapshot
from jobyard.scheduling.where import Where

MARGIN = 2.0  # the gain must be twice the cost of the restart: predictions are not exact
# Epoch time falls with size as n to the power of minus this: 1 would be perfect. 0.9 until two sizes are measured.
DEFAULT_EXPONENT = 0.9


def choose_growth(
    rooms: Mapping[str, Room],
    snapshot: Snapshot,
    missing: Blocked,
    allowances: Mapping[str, Allowance],
) -> tuple[CheckpointStop, ...]:
    """At most one job that stops and restarts larger. It takes nothing that a request in `missing` waits for.

    So a job that shrank for a waiting one does not grow back while that one waits.
    """
    able = [each for each in snapshot.running if each.sizes and not (each.is_stopping or each.is_last_epoch)]
    if not able:
        return ()
    protected = [Protected(ask.resources, lacking, *ask[1:]) for ask, lacking in missing.by_ask().items()]
    placements = {held.slot.id: held.slot.placement for held in snapshot.held}
    free_gpus = {name: sum(not device.users for device in room.devices) for name, room in rooms.items()}
    for running in sorted(able, key=lambda each: (-each.priority, each.lost_seconds, each.age)):
        has = [placements[slot] for slot in running.slots if slot in placements]
        if len(has) != running.size.workers:
            continue  # it has just started, or is about to end
        near = _nodes_to_grow_on(rooms, has, running.where)
        free = sum(map(free_gpus.__getitem__, near))
        for size in larger_sizes(running):
            more_gpus = 0 if has[0].resources.shares_gpus else size.devices - running.size.devices
            if more_gpus > free or not pays(running, size):
                continue
            claim = _room_to_grow(near, has, running, size, protected)
            if claim and _is_allowed(allowances.get(running.where.cluster), claim):
                sentence = f"goes from {running.size} to {size} at its next checkpoint: there is room for it"
                return (CheckpointStop(running.job, Reason.RESIZING, sentence, size, claim),)
    return ()


def larger_sizes(running: Running) -> list[Size]:
    """What an elastic job could become, largest first: no fewer workers, and no fewer GPUs of each."""
    now = running.size
    found = [size for size in running.sizes if size != now and size.workers >= now.workers and size.gpus >= now.gpus]
    return found[::-1]


def pays(running: Running, size: Size, margin: float = MARGIN) -> bool:
    """Would the epochs after this one, at that size, save more than `margin` times what the restart costs?

    Never before an epoch was measured at the present size, nor where the number of epochs left is not known.
    """
    now = dict(running.epoch_seconds).get(running.size)
    then = predict_epoch_seconds(running.epoch_seconds, size)
    if now is None or then is None or running.epochs_left is None:
        return False
    epochs = ceil(running.epochs_left) - 1  # the current epoch ends at the present size
    return epochs * (now - then) > margin * running.restart_seconds


def predict_epoch_seconds(measured: Iterable[tuple[Size, float]], size: Size) -> float | None:
    """The measured time of this size; else by a power law from the nearest measured size.

    The exponent of that law comes from the two nearest sizes."""
    exact = dict(measured)
    if size in exact:
        return exact[size]
    points = {_amount(each): seconds for each, seconds in exact.items() if seconds > 0}
    near = sorted(points, key=lambda amount: (abs(log(amount / _amount(size))), amount))
    if not near:
        return None
    exponent = DEFAULT_EXPONENT
    if len(near) > 1:
        exponent = log(points[near[0]] / points[near[1]]) / log(near[1] / near[0])
    nearest = near[0]
    # At most linear speed-up, and more is never predicted to be slower: only a measurement can say that.
    return points[nearest] * float((nearest / _amount(size)) ** min(1.0, max(0.0, exponent)))


def _amount(size: Size) -> int:
    return size.devices or size.workers


def _is_allowed(allowance: Allowance | None, claim: Iterable[Placement]) -> bool:
    return allowance is None or allowance.allows(amounts_of((each.resources, 1) for each in claim))


def _nodes_to_grow_on(rooms: Mapping[str, Room], has: Sequence[Placement], where: Where) -> dict[str, Room]:
    """Where its checkpoint can be read: the nodes that it is on, or all of a cluster."""
    if where.cluster:
        return {name: room for name, room in rooms.items() if where.allows(room.node)}
    return {each.node: rooms[each.node] for each in has if each.node in rooms}


def _room_to_grow(
    rooms: Mapping[str, Room], has: Sequence[Placement], running: Running, size: Size, protected: Sequence[Protected]
) -> tuple[Placement, ...] | None:
    """What it needs beyond what it has, on these nodes; None if there is no room for that."""
    now, trial = running.size, dict(rooms)
    claim: list[Placement] = []

    def take(placement: Placement) -> None:
        trial[placement.node] = trial[placement.node].copy()
        trial[placement.node].give(placement)
        claim.append(placement)

    for each in has if size.gpus > now.gpus else ():
        more = _more_gpus(trial.get(each.node), each, size.gpus - now.gpus)
        if more is None or trial[each.node].hurts(more, protected):
            return None
        take(more)
    ask = replace(has[0].resources, gpus=size.gpus)
    for _ in range(size.workers - now.workers):
        another = choose_node(trial.values(), ask, running.where, protected)
        if another is None:
            return None
        take(another)
    return tuple(claim)


def _more_gpus(room: Room | None, has: Placement, gpus: int) -> Placement | None:
    """So many more devices beside those that the slot has."""
    if room is None or room.node.state is not NodeState.UP:
        return None
    own = {piece.index for piece in has.devices}
    others = room.copy()
    others.devices = [device for device in others.devices if device.index not in own]
    return others.place(replace(has.resources, cpu_millis=0, memory_mib=0, gpus=gpus))
