"""Draining: which slots of later jobs take no new tasks, so that an earlier job gets their room?"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from jobyard.model.node import NodeState, cluster_of
from jobyard.scheduling.blocked import Blocked
from jobyard.scheduling.missing import Ask
from jobyard.scheduling.ordering import rank
from jobyard.scheduling.placement import Room
from jobyard.scheduling.quotas import Allowance, amounts_of
from jobyard.scheduling.snapshot import HeldSlot


def choose_draining_for_quota(
    allowances: dict[str, Allowance], held: tuple[HeldSlot, ...], missing: Blocked
) -> frozenset[str]:
    """Slots of the same cluster, last in order first, whose end would leave enough of its quota."""
    draining: set[str] = set()
    last_first = sorted(held, key=rank, reverse=True)
    for request, items in groupby(missing, key=lambda each: each.request):
        allowance = allowances[request.cluster]
        wanted = [(each.member.resources, each.lacking) for each in items]
        amounts = amounts_of(wanted)
        for item in last_first:
            placement = item.slot.placement
            lacking = allowance.lacking(amounts)
            if not lacking or rank(item) <= rank(request):
                break
            if cluster_of(placement.node) == request.cluster and item.slot.id not in draining:
                gives = amounts_of([(placement.resources, 1)])
                if any(gives[name] for name in lacking):
                    allowance.take_back(placement.resources)
                    draining.add(item.slot.id)
        for resources, count in wanted:
            allowance.give(resources, count)
    return frozenset(draining)


def choose_draining(rooms: dict[str, Room], held: tuple[HeldSlot, ...], missing: Blocked) -> frozenset[str]:
    """Few slots, last in order first, whose end would make room for the blocked requests.

    Where later slots alone cannot make enough room, all that hold some of it drain: the rest comes from earlier jobs.
    """
    draining: set[str] = set()
    rooms = dict(rooms)  # a room is copied before it is changed
    left = sorted(held, key=rank, reverse=True)
    asks = set(missing.by_ask())
    in_vain: set[Ask] = set()  # for these nothing was found to drain, and no room has changed since
    for each in missing:
        request, lacking, ask = each.request, each.lacking, each.ask
        left = [item for item in left if item.slot.id not in draining and rank(item) > rank(request)]
        if not left:
            break  # no later job holds anything
        if ask in in_vain:
            continue
        in_vain.add(ask)
        usable = [
            name
            for name, room in rooms.items()
            if room.node.state is NodeState.UP
            and ask.where.allows(room.node)
            and room.instances(ask.resources, ask.overcommit)
        ]
        later: dict[str, list[HeldSlot]] = {name: [] for name in usable}
        for item in left:
            if item.slot.placement.node in later:
                later[item.slot.placement.node].append(item)
        options = {name: _fewest(rooms[name], later[name], ask) for name in usable}
        while lacking and (found := [(len(items), name) for name, items in options.items() if items is not None]):
            name = min(found)[1]
            rooms[name] = rooms[name].copy()
            draining |= _end(rooms[name], options[name] or [])
            in_vain.clear()
            if placement := rooms[name].place(ask.resources, ask.overcommit):
                rooms[name].give(placement)
            lacking -= 1
            later[name] = [item for item in later[name] if item.slot.id not in draining]
            options[name] = _fewest(rooms[name], later[name], ask)
        if lacking:
            for name in usable:
                rooms[name] = rooms[name].copy()
                for item in later[name]:
                    if _helps(rooms[name], item, ask):
                        draining |= _end(rooms[name], [item])
                        in_vain.clear()
        if asks <= in_vain:
            break
    return frozenset(draining)


def _fewest(room: Room, later: list[HeldSlot], ask: Ask) -> list[HeldSlot] | None:
    """Slots whose end would make room for one such task; None where all of them are not enough."""
    trial, chosen = room.copy(), []
    for item in later:
        if trial.place(ask.resources, ask.overcommit):
            break
        if _helps(trial, item, ask):
            trial.take_back(item.slot.placement)
            chosen.append(item)
    if not trial.place(ask.resources, ask.overcommit):
        return None
    for item in list(chosen):  # a later choice may make an earlier one unnecessary
        trial.give(item.slot.placement)
        if trial.place(ask.resources, ask.overcommit):
            chosen.remove(item)
        else:
            trial.take_back(item.slot.placement)
    return chosen


def _end(room: Room, items: Iterable[HeldSlot]) -> set[str]:
    for item in items:
        room.take_back(item.slot.placement)
    return {item.slot.id for item in items}


def _helps(room: Room, item: HeldSlot, ask: Ask) -> bool:
    """Does it give back anything that the ask lacks?"""
    back, wanted = item.slot.placement.resources, ask.resources
    return bool(
        back.whole_node
        or wanted.whole_node
        or (room.free_cpu_millis(ask.overcommit) < wanted.cpu_millis and back.cpu_millis)
        or (room.memory_mib < wanted.memory_mib and back.memory_mib)
        or (wanted.gpus and item.slot.placement.devices and room.choose_devices(wanted, ask.overcommit) is None)
    )
