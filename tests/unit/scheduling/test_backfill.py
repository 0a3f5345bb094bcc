"""Backfill never delays, and nobody is overbooked: for random snapshots."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.model.node import Device, Foreign, Node
from jobyard.model.resources import DeviceSlice, Placement, Resources
from jobyard.model.task import Slot
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.ordering import position_of, rank
from jobyard.scheduling.placement import Room, choose_node
from jobyard.scheduling.snapshot import HeldSlot, Member, Plan, Request, Snapshot

asks = st.builds(
    Resources,
    cpu_millis=st.sampled_from([0, 500, 1000, 2000, 4000]),
    memory_mib=st.sampled_from([0, 0, 1000, 3000]),
    gpus=st.sampled_from([0, 0, 1, 1, 2]),
    gpu_memory_mib=st.sampled_from([0, 25, 40, 60]),
    gpu_percent=st.sampled_from([0, 0, 30, 50, 100]),
    whole_node=st.sampled_from([False] * 7 + [True]),
    gpu_kind=st.sampled_from(["", "", "", "old", "new"]),
)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    found = []
    for name in ["a", "b", "c"][: draw(st.integers(1, 3))]:
        devices = tuple(
            Device(i, draw(st.sampled_from(["old gpu", "new gpu"])), draw(st.sampled_from([80, 100])))
            for i in range(draw(st.integers(0, 2)))
        )
        used = Foreign(
            draw(st.sampled_from([0, 0, 700])),
            draw(st.sampled_from([0, 0, 900])),
            device_mib=draw(st.sampled_from([(), (), ((0, 30),), ((0, 90),)])),
            whole_devices=draw(st.sampled_from([(), (), (1,)])),
            device_percent=draw(st.sampled_from([(), (), ((0, 60),)])),
        )
        found.append(Node(name, "local", draw(st.sampled_from([2000, 4000, 6000])), 6000, devices, foreign=used))
    return tuple(found)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Slots that are held are themselves placed one by one, so that they are possible."""
    yard = draw(nodes())
    rooms = {node.id: Room(node) for node in yard}
    held = []
    for number in range(draw(st.integers(0, 6))):
        if placement := choose_node(rooms.values(), draw(asks)):
            rooms[placement.node].give(placement)
            slot = Slot(f"s{number}", f"h{number}", 0, placement)
            held.append(HeldSlot(slot, draw(st.integers(0, 1)), draw(st.integers(0, 20))))
    requests = []
    for number in range(draw(st.integers(1, 5))):
        members = tuple(Member(i, draw(asks), draw(st.integers(1, 3))) for i in range(draw(st.integers(1, 2))))
        on = draw(st.sampled_from(["", "", "a", "a,b"]))
        requests.append(
            Request(
                f"r{number}",
                draw(st.integers(0, 1)),
                number * 4 + 2,
                members,
                draw(st.booleans()),
                on,
                draw(st.sampled_from([False, False, True])),
            )
        )
    return Snapshot(yard, tuple(held), tuple(requests))


def placements(snapshot: Snapshot, found: Plan) -> list[Placement]:
    return [item.slot.placement for item in snapshot.held] + [opening.placement for opening in found.openings]


@given(snapshots())
@settings(max_examples=200, deadline=None)
def test_nobody_is_overbooked(snapshot: Snapshot) -> None:
    """Every slot counts in full from the moment it opens, beside all that was measured of others."""
    found = plan(snapshot)
    slots: Counter[str] = Counter()
    cpus: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    devices: defaultdict[tuple[str, int], list[Placement]] = defaultdict(list)
    eager = {request.job for request in snapshot.requests if request.overcommit}
    overcommitted = {opening.placement.node for opening in found.openings if opening.job in eager}
    for placement in placements(snapshot, found):
        slots[placement.node] += 1
        cpus[placement.node] += placement.resources.cpu_millis
        memory[placement.node] += placement.resources.memory_mib
        assert len({piece.index for piece in placement.devices}) == placement.resources.gpus
        for piece in placement.devices:
            devices[(placement.node, piece.index)].append(placement)
    for node in snapshot.nodes:
        more = 2000 if node.id in overcommitted and not node.foreign.cpu_millis else 0
        assert cpus[node.id] + node.foreign.cpu_millis <= node.cpu_millis + more or not cpus[node.id]
        assert memory[node.id] + node.foreign.memory_mib <= node.memory_mib or not memory[node.id]
        for device in node.devices:
            users = devices[(node.id, device.index)]
            assert len(users) <= 1 or all(user.resources.shares_gpus for user in users)
            foreign_mib = dict(node.foreign.device_mib).get(device.index, 0)
            assert not users or device.index not in node.foreign.whole_devices
            if any(not user.resources.shares_gpus for user in users):
                assert (len(users), foreign_mib) == (1, 0)
            elif users:
                assert sum(user.resources.gpu_memory_mib for user in users) + foreign_mib <= device.memory_mib
            percent = sum(user.resources.gpu_percent for user in users)
            foreign_percent = dict(node.foreign.device_percent).get(device.index, 0)
            most = 120 if node.id in overcommitted else 100
            assert percent + foreign_percent <= most or not percent
    for placement in placements(snapshot, found):
        if placement.resources.whole_node:
            assert slots[placement.node] == 1
            (node,) = (node for node in snapshot.nodes if node.id == placement.node)
            assert placement.resources.cpu_millis == node.cpu_millis
            assert [piece.memory_mib for piece in placement.devices] == [d.memory_mib for d in node.devices]


@given(snapshots())
@settings(max_examples=200, deadline=None)
def test_it_is_pure_gangs_are_whole_and_everyone_left_out_knows_why(snapshot: Snapshot) -> None:
    found = plan(snapshot)
    assert found == plan(snapshot)
    got = Counter(opening.job for opening in found.openings)
    for request in snapshot.requests:
        wanted = sum(member.wanted for member in request.members)
        assert got[request.job] in (0, wanted) if request.gang else got[request.job] <= wanted
        assert (got[request.job] < wanted) == (request.job in found.waits)
    last = max((rank(request) for request in snapshot.requests if request.job in found.waits), default=None)
    first = min((rank(request) for request in snapshot.requests if request.job in found.waits), default=None)
    for item in snapshot.held:
        if item.slot.id in found.draining_slots:
            assert first is not None
            assert last is not None
            assert rank(item) > first


def fits(snapshot: Snapshot, held: list[HeldSlot], request: Request) -> bool:
    """Would the request get all that it wants, were it alone with these slots?"""
    return request.job not in plan(replace(snapshot, held=tuple(held), requests=(request,))).waits


@given(snapshots(), st.data())
@settings(max_examples=400, deadline=None)
def test_backfill_never_delays(snapshot: Snapshot, data: st.DataObject) -> None:
    """Let any of the running slots end: the first who waits gets in then, or not, whatever was given to later jobs."""
    found = plan(snapshot)
    waiting = [request for request in sorted(snapshot.requests, key=position_of) if request.job in found.waits]
    if not waiting:
        return
    first = waiting[0]
    ranks = {request.job: rank(request) for request in snapshot.requests}
    by_rank = [
        (ranks[o.job], HeldSlot(Slot(f"o{i}", o.job, o.group, o.placement), 0, 0)) for i, o in enumerate(found.openings)
    ]
    # What it was given itself is no longer missing.
    own = Counter(opening.group for opening in found.openings if opening.job == first.job)
    members = tuple(
        replace(member, wanted=member.wanted - own[member.group])
        for member in first.members
        if member.wanted > own[member.group]
    )
    rest = replace(first, members=members)
    still = [item for item in snapshot.held if data.draw(st.booleans())]
    without = still + [slot for order, slot in by_rank if order <= rank(first)]
    everything = still + [slot for _, slot in by_rank]
    if fits(snapshot, without, rest):
        assert fits(snapshot, everything, rest)


def test_two_who_wait_are_protected_together() -> None:
    """Each alone would leave enough; both together need all of it."""
    node = Node("a", "local", 4000, 1000, (Device(0, "gpu", 80), Device(1, "gpu", 80)))
    gpu = Resources(2000, 0, 1)
    held = tuple(
        HeldSlot(Slot(f"s{i}", "h", 0, Placement("a", Resources(0, 0, 1), (piece,))), 0, 0)
        for i, piece in enumerate(p for p in (Room(node).choose_devices(Resources(0, 0, 2)) or ()))
    )
    requests = (
        Request("r1", 0, 1, (Member(0, gpu, 1),)),
        Request("r2", 0, 2, (Member(0, gpu, 1),)),
        Request("r3", 0, 3, (Member(0, Resources(2000), 1),)),
    )
    found = plan(Snapshot((node,), held, requests))
    assert not found.openings


def test_the_two_gpus_of_one_task_are_not_promised_on_one_device() -> None:
    """One free device has room for two slices, but the task needs two devices: the other one is protected too."""
    node = Node("a", "local", 4000, 1000, (Device(0, "gpu", 80), Device(1, "gpu", 80)))
    share = Resources(0, 0, 1, 30)
    pieces = [Placement("a", replace(share, gpu_memory_mib=mib), (DeviceSlice(1, mib),)) for mib in (30, 25)]
    held = tuple(HeldSlot(Slot(f"s{i}", "h", 0, placement), 0, 0) for i, placement in enumerate(pieces))
    requests = (
        Request("wide", 0, 1, (Member(0, Resources(0, 0, 2, 40), 1),)),
        Request("small", 0, 2, (Member(0, Resources(0, 0, 1, 25), 1),)),
    )
    assert not plan(Snapshot((node,), held, requests)).openings
