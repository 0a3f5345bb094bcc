"""What-if: if running jobs gave something up, what would they keep, what would be free, and what would it cost?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from jobyard.model.job import Reason
from jobyard.model.resources import Placement
from jobyard.model.training import Size
from jobyard.scheduling.missing import Ask
from jobyard.scheduling.ordering import rank
from jobyard.scheduling.placement import Protected, Room, choose_node
from jobyard.scheduling.snapshot import CheckpointStop, Request, Running, Snapshot

Rooms = dict[str, Room]


class Change(NamedTuple):
    """A running job gives up what it has, and comes back with what it keeps: nothing, if it is stopped whole."""

    running: Running
    has: tuple[Placement, ...]
    keeps: tuple[Placement, ...] = ()
    size: Size | None = None


def changes_of(snapshot: Snapshot) -> list[Change]:
    """All running jobs that can stop at a checkpoint, with what they hold."""
    placements = {held.slot.id: held.slot.placement for held in snapshot.held}
    return [
        Change(running, tuple(placements[slot] for slot in running.slots if slot in placements))
        for running in snapshot.running
    ]


def stop_for(change: Change, request: Request, purpose: str) -> CheckpointStop:
    """To stop, or to become smaller, for a request; `purpose` is what for, as in "make room for"."""
    job, now, size = change.running.job, change.running.size, change.size
    if size is None:
        sentence = f"stops at its next checkpoint to {purpose} job {request.called} of higher priority"
        return CheckpointStop(job, Reason.PREEMPTED, sentence, stops_for=request.job)
    sentence = f"goes from {now} to {size} at its next checkpoint to {purpose} job {request.called}"
    return CheckpointStop(job, Reason.RESIZING, sentence, size, stops_for=request.job)


def smaller_sizes(running: Running) -> list[Size]:
    """What an elastic job could become, largest first: no more workers, and no more GPUs of each."""
    now = running.size
    found = [size for size in running.sizes if size != now and size.workers <= now.workers and size.gpus <= now.gpus]
    return found[::-1]


def as_asked(change: Change) -> Change:
    """What a job does that was asked before: it stops, or shrinks to the size that it was told."""
    size = change.running.becomes
    return change._replace(keeps=kept(change.has, size), size=size) if size else change


def kept(has: Sequence[Placement], size: Size, away_from: str = "") -> tuple[Placement, ...]:
    """What a job that becomes this small keeps of what it has: the last of it on the node where room is wanted."""
    order = sorted(has, key=lambda placement: placement.node == away_from)
    return tuple(
        replace(each, resources=replace(each.resources, gpus=size.gpus), devices=each.devices[: size.gpus])
        for each in order[: size.workers]
    )


def after(rooms: Rooms, changes: Iterable[Change]) -> Rooms:
    """The rooms after these changes. Only those that change are copied."""
    changed: Rooms = {}

    def room_of(placement: Placement) -> Room | None:
        if placement.node not in changed and placement.node in rooms:
            changed[placement.node] = rooms[placement.node].copy()
        return changed.get(placement.node)

    for change in changes:
        for placement in change.has:
            if room := room_of(placement):
                room.take_back(placement)
        for placement in change.keeps:
            if room := room_of(placement):
                room.give(placement)
    return rooms | changed if changed else rooms


def place_all(rooms: Rooms, asks: Sequence[Ask], protected: Sequence[Protected]) -> list[Placement] | None:
    trial, placements = dict(rooms), []
    for ask in asks:
        placement = choose_node(trial.values(), ask.resources, ask.where, protected, ask.overcommit)
        if placement is None:
            return None
        placements.append(placement)
        if len(asks) > 1:
            trial[placement.node] = trial[placement.node].copy()
            trial[placement.node].give(placement)
    return placements


def devices(room: Room | None, placements: Iterable[Placement]) -> float:
    """GPUs, or parts of them by memory."""
    totals = {device.index: device.total_mib for device in room.devices} if room else {}
    return sum(
        piece.memory_mib / max(1, totals.get(piece.index, piece.memory_mib)) if each.resources.shares_gpus else 1.0
        for each in placements
        for piece in each.devices
    )


def loss(change: Change) -> float:
    """Work that is done again, over all that the job holds: GPU seconds, or core seconds of a job without GPUs."""
    held = devices(None, change.has) or sum(placement.resources.cpu_millis for placement in change.has) / 1000
    return change.running.lost_seconds * held


def who_makes_room(helpers: Sequence[Running]) -> str:
    names = [helper.called for helper in sorted(helpers, key=rank)[:3]]
    if len(names) == 1:
        return f"job {names[0]} stops at its next checkpoint to make room"
    more = f" and {len(helpers) - 3} more" if len(helpers) > 3 else ""
    return f"jobs {', '.join(names)}{more} stop at their next checkpoint to make room"
