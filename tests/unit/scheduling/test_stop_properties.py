"""Whatever runs and whoever waits: a stop lets somebody in, growth fits, and nobody is asked twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobyard.model.job import Reason
from jobyard.model.task import Slot
from jobyard.model.training import Size
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.placement import Room
from jobyard.scheduling.snapshot import HeldSlot, Member, Plan, Request, Running, Snapshot
from tests.builders import a_node
from tests.unit.scheduling.yards import Yard, ask, gpu_range, wants, wants_any

PRIORITIES = st.integers(-1, 2)


@st.composite
def yards(draw: st.DrawFn) -> Yard:
    """Nodes with jobs of one task each on some of their GPUs: rigid or elastic, able to yield or not."""
    yard = Yard(*(a_node(f"n{i}", cpus=100, gpus=draw(st.integers(1, 6))) for i in range(draw(st.integers(1, 3)))))
    age = 0
    for node in yard.nodes:
        left = len(node.devices)
        while left and draw(st.integers(0, 4)):
            age += 1
            gpus = draw(st.integers(1, left))
            left -= gpus
            least = draw(st.integers(1, gpus))
            elastic = gpu_range(least, draw(st.integers(gpus, 6))) if draw(st.booleans()) else ()
            training: dict[str, Any] = {
                "sizes": elastic,
                "lost_seconds": draw(st.sampled_from([0.0, 1.0, 10.0, 300.0])),
                "restart_seconds": draw(st.sampled_from([0.0, 30.0])),
                "epochs_left": draw(st.sampled_from([None, 1.0, 2.0, 50.0])),
                "epoch_seconds": draw(st.sampled_from([(), ((Size(1, gpus), 60.0),)])),
                "is_last_epoch": draw(st.integers(0, 5)) == 0,
                "is_stopping": draw(st.integers(0, 7)) == 0,
            }
            yielding: dict[str, Any] = {"can_yield": draw(st.integers(0, 3)) > 0, "priority": draw(PRIORITIES)}
            yard.runs(f"r{age}", age, node.id, gpus=gpus, **yielding, **training)
    return yard


@st.composite
def requests(draw: st.DrawFn) -> Request:
    job, age = "w", draw(st.integers(50, 99))
    priority, least = draw(PRIORITIES), draw(st.integers(1, 4))
    match draw(st.integers(0, 3)):
        case 0:
            return wants_any(job, age, *gpu_range(least, least + 2), priority=priority)
        case 1:
            return wants(job, age, gpus=1, workers=least, priority=priority)
        case 2:
            return Request(job, priority, age, (Member(0, ask(gpus=1), least),))
        case _:
            return wants(job, age, gpus=least, priority=priority)


def numbered(some: list[Request]) -> list[Request]:
    return [replace(each, job=f"w{i}", age=each.age * 10 + i) for i, each in enumerate(some)]


def afterwards(snapshot: Snapshot, found: Plan) -> Snapshot:
    """All who were asked have stopped, and wait again; what was opened is held."""
    gone = {stop.job for stop in found.stops} | {each.job for each in snapshot.running if each.is_stopping}
    back = [_return_of(each, snapshot) for each in snapshot.running if each.job in gone]
    held = [item for item in snapshot.held if item.slot.job not in gone]
    held += [HeldSlot(Slot(f"o{i}", o.job, 0, o.placement), 9, 0) for i, o in enumerate(found.openings)]
    left = tuple(each for each in snapshot.running if each.job not in gone)
    waiting = [_rest_of(each, found) for each in snapshot.requests if each.job in found.waits]
    return replace(snapshot, held=tuple(held), running=left, claims=(), requests=(*waiting, *back))


def _rest_of(request: Request, found: Plan) -> Request:
    (member,) = request.members
    return replace(request, members=(replace(member, wanted=member.wanted - count(found, request.job)),))


def _return_of(running: Running, snapshot: Snapshot) -> Request:
    node = next(item.slot.placement.node for item in snapshot.held if item.slot.id in running.slots)
    sizes = running.sizes or (running.size,)
    return replace(wants_any(running.job, running.age, *sizes, priority=running.priority), on=node)


def gpus_for(found: Plan, jobs: list[str]) -> int:
    return sum(opening.placement.resources.gpus for opening in found.openings if opening.job in jobs)


def count(found: Plan, job: str) -> int:
    return sum(opening.job == job for opening in found.openings)


@settings(max_examples=300, deadline=None)
@given(yards(), st.lists(requests(), max_size=4).map(numbered))
def test_only_those_who_may_be_asked_are_asked_and_only_once(yard: Yard, some: list[Request]) -> None:
    snapshot = yard.snapshot(*some)
    found = plan(snapshot)
    running = {each.job: each for each in snapshot.running}
    jobs = [stop.job for stop in found.stops]
    assert len(jobs) == len(set(jobs))
    for stop in found.stops:
        assert not running[stop.job].is_stopping
        assert not running[stop.job].is_last_epoch
        if stop.reason is Reason.PREEMPTED:
            assert any(each.priority > running[stop.job].priority for each in some if each.job in found.waits)
        else:
            assert stop.size in running[stop.job].sizes
            assert stop.size != running[stop.job].size


@settings(max_examples=300, deadline=None)
@given(yards(), st.lists(requests(), min_size=1, max_size=3).map(numbered))
def test_a_stop_lets_somebody_in_who_would_wait_otherwise(yard: Yard, some: list[Request]) -> None:
    # Who stops already and comes back first may find a place that was meant for another: seen in the next cycle only.
    yard.running = [replace(each, is_stopping=False) for each in yard.running]
    snapshot = yard.snapshot(*some)
    found = plan(snapshot)
    if not found.stops or any(stop.claim for stop in found.stops):
        return  # nobody stops, or somebody grows
    with_it, without = plan(afterwards(snapshot, found)), plan(afterwards(snapshot, replace(found, stops=())))
    waited = [each.job for each in some if each.job in found.waits]
    assert gpus_for(with_it, waited) > gpus_for(without, waited)


@settings(max_examples=300, deadline=None)
@given(yards(), requests())
def test_nobody_stops_who_could_have_been_left_alone(yard: Yard, request: Request) -> None:
    """For what starts as a whole, and has one size. An array asks slot by slot: who stops for its third may suffice for
    the first. An elastic job of higher priority takes what others stopped for, and they are reckoned anew."""
    if not request.gang and request.members[0].wanted > 1:
        request = replace(request, members=(replace(request.members[0], wanted=1),))
    request = replace(request, smaller=())
    yard.running = [replace(each, is_stopping=False) for each in yard.running]
    snapshot = yard.snapshot(request)
    found = plan(snapshot)
    stops = [stop for stop in found.stops if not stop.claim]
    shrunk = {stop.job for stop in stops if stop.size}

    def reached(spared: str = "") -> int:
        """How many of those who matter have room then: who waits, and who was to come back smaller."""
        fewer = replace(found, stops=tuple(stop for stop in stops if stop.job != spared))
        after = plan(afterwards(snapshot, fewer))
        return count(after, "w") + sum(job == spared or count(after, job) > 0 for job in shrunk)

    for stop in stops:
        assert reached(stop.job) < reached()


def one_that_shrinks_comes_back_beside_another() -> Yard:
    """Who was let in had the GPU of the elastic job, which then came back to the same GPU: one too many was counted."""
    yard = Yard(a_node("n0", cpus=100, gpus=4))
    yard.runs("elastic", 1, priority=1, gpus=2, sizes=gpu_range(1, 2))
    yard.runs("low", 2, priority=-1)
    yard.runs("rigid", 3, can_yield=False)
    return yard


def one_that_stopped_comes_back_before_another() -> Yard:
    """`large` stopped in vain: `middle` comes back before who it stopped for, and takes some of its GPUs."""
    yard = Yard(a_node("n0", cpus=100, gpus=5))
    yard.runs("large", 1, priority=-1, gpus=3, lost_seconds=10)
    yard.runs("middle", 2, priority=1, gpus=1, lost_seconds=1)
    yard.runs("small", 3, priority=-1, lost_seconds=10)
    return yard


def one_that_shrinks_for_the_second_while_the_first_waits() -> Yard:
    """The first took what was made free for the second, and somebody more was asked."""
    yard = Yard(a_node("n0", cpus=100, gpus=6), a_node("n1", cpus=100, gpus=3))
    yard.runs("elastic", 1, "n0", priority=-1, gpus=2, sizes=gpu_range(1, 2), lost_seconds=10)
    yard.runs("rigid", 4, "n0", gpus=4, can_yield=False)
    yard.runs("low", 2, "n1", priority=-1, lost_seconds=300)
    yard.runs("stopping", 3, "n1", gpus=2, is_stopping=True)
    return yard


@settings(max_examples=300, deadline=None)
@given(yards(), st.lists(requests(), max_size=3).map(numbered))
@example(
    one_that_shrinks_comes_back_beside_another(), [wants("w0", 50, gpus=2, priority=1), wants("w1", 51, priority=2)]
)
@example(one_that_stopped_comes_back_before_another(), [wants("w0", 50, priority=2), wants("w1", 51, gpus=3)])
@example(
    one_that_shrinks_for_the_second_while_the_first_waits(),
    [Request("w0", 1, 50, (Member(0, ask(gpus=1), 2),)), wants("w1", 51)],
)
def test_the_next_cycle_asks_nobody_more_for_the_same_requests(yard: Yard, some: list[Request]) -> None:
    """Of requests of one size. What an elastic one gets depends on who comes back beside it, and is reckoned anew."""
    some = [replace(each, smaller=()) for each in some]
    found = yard.plan(*some)
    yard.obey(found)
    opened = {opening.job for opening in found.openings}
    again = yard.plan(*(each for each in some if each.job not in opened))
    if opened or any(stop.claim for stop in found.stops):
        return  # what was opened is not held in this little world; and another one may grow
    assert not [stop for stop in again.stops if not stop.claim]


@settings(max_examples=300, deadline=None)
@given(yards(), st.lists(requests(), max_size=2).map(numbered))
def test_growth_fits_beside_all_that_is_held_and_opened(yard: Yard, some: list[Request]) -> None:
    snapshot = yard.snapshot(*some)
    found = plan(snapshot)
    rooms = {node.id: Room(node) for node in snapshot.nodes}
    for placement in (*(h.slot.placement for h in snapshot.held), *(o.placement for o in found.openings)):
        rooms[placement.node].give(placement)
    for stop in found.stops:
        sizes = {each.job: each.size for each in snapshot.running}
        for placement in stop.claim:
            rooms[placement.node].give(placement)
        if stop.claim:
            assert stop.size is not None
            assert stop.size.devices == sizes[stop.job].devices + sum(len(each.devices) for each in stop.claim)
    for room in rooms.values():
        assert all(device.users <= 1 and device.free_mib >= 0 for device in room.devices)
        assert room.cpu_millis >= 0
