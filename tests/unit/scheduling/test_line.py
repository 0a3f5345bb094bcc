"""The waiting line: a cycle looks once at each shape, and plans as if it had looked at each request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobyard.model.job import Reason
from jobyard.model.node import Quota
from jobyard.model.resources import Resources
from jobyard.model.training import Size
from jobyard.scheduling import cycle, line
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.explain import why_not_now
from jobyard.scheduling.line import Line, shape_of
from jobyard.scheduling.ordering import position_of
from jobyard.scheduling.rooms import KnownRooms
from jobyard.scheduling.snapshot import HeldSlot, Member, Request, Running, Snapshot
from tests.builders import a_cluster_node, a_node
from tests.unit.engine.driving import calls_of
from tests.unit.scheduling.test_backfill import asks, snapshots
from tests.unit.scheduling.yards import a_yard, ask, wants


@st.composite
def crowds(draw: st.DrawFn) -> Snapshot:
    """Few kinds of requests, many of each; some of what runs can stop at a checkpoint, or become smaller."""
    some = draw(snapshots())
    cluster = (a_cluster_node("n1", cpus=4), a_cluster_node("n2", cpus=2, gpus=2))
    kinds = [replace(each, gang=each.gang and len(each.members) == 1) for each in list(some.requests)[:3]]
    for _ in range(draw(st.integers(0, 2))):
        member = Member(0, draw(asks), draw(st.integers(1, 3)))
        kinds.append(Request("", 0, 0, (member,), draw(st.booleans()), cluster="prod"))
    if draw(st.booleans()):
        sizes = [(Member(0, ask(gpus=gpus), 1),) for gpus in (3, 2, 1)]
        kinds.append(Request("", 0, 0, sizes[0], smaller=tuple(sizes[1:])))
    requests = [
        replace(
            draw(st.sampled_from(kinds)),
            job=f"r{number}",
            priority=draw(st.integers(0, 2)),
            age=number * 3,
            number=number,
            gpu_seconds=draw(st.sampled_from([None, None, None, 10.0])),
        )
        for number in range(draw(st.integers(1, 12)))
    ]
    held = tuple(replace(each, priority=draw(st.integers(0, 2))) for each in some.held)
    running = [
        _running(each, draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from(["", "r3"])))
        for each in held
        if draw(st.booleans())
    ]
    quota = draw(st.sampled_from([None, Quota(cpu_millis=2000), Quota(gpus=1, tasks=3)]))
    return replace(
        some,
        nodes=(*some.nodes, *cluster),
        held=held,
        requests=tuple(draw(st.permutations(requests))),
        running=tuple(running),
        quotas={"prod": quota} if quota else {},
    )


def _running(held: HeldSlot, is_elastic: bool, is_stopping: bool, stops_for: str) -> Running:
    size = Size(1, held.slot.placement.resources.gpus)
    sizes = tuple(Size(1, gpus) for gpus in range(1, size.gpus + 1)) if is_elastic else ()
    return Running(
        held.slot.job,
        held.priority,
        held.age,
        (held.slot.id,),
        size,
        sizes,
        lost_seconds=float(held.age),
        is_stopping=is_stopping,
        stops_for=stops_for if is_stopping else "",
    )


@given(crowds())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_plan_by_shapes_is_that_which_looks_at_each_request(snapshot: Snapshot) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line, "shape_of", lambda request: (shape_of(request), request.job))
        one_by_one = plan(snapshot)
        waits = dict(one_by_one.waits)
    found = plan(snapshot)
    assert found == replace(one_by_one, waits=found.waits)
    assert dict(found.waits) == waits


@given(crowds(), st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_line_is_what_is_in_it_however_that_came_about(snapshot: Snapshot, data: st.DataObject) -> None:
    kept, known, now = Line(), KnownRooms(), dict[str, Request]()
    for request in snapshot.requests:
        kept.put(request)
        now[request.job] = request
        if data.draw(st.booleans()):
            changed = replace(data.draw(st.sampled_from(list(now.values()))), priority=data.draw(st.integers(0, 2)))
            kept.put(changed)
            now[changed.job] = changed
        if data.draw(st.integers(0, 3)) == 0:
            gone = data.draw(st.sampled_from(["never-there", *now]))
            kept.drop(gone)
            now.pop(gone, None)
        assert list(kept) == sorted(now.values(), key=position_of)
        assert kept == Line(now.values())
        assert len(kept) == len(now)
        assert all(each in kept for each in now.values())
        asked = replace(snapshot, requests=tuple(now.values()))
        assert plan(replace(snapshot, requests=kept), known) == plan(asked)


def test_what_is_asked_of_one_more_leaves_the_line_as_it_is() -> None:
    yard = a_yard(1)
    waiting = Line(wants(f"j{number}", number, number=number) for number in range(5))
    with_one = waiting.plus(wants("more", 9, number=9))
    assert ([each.job for each in with_one][-1], len(with_one), len(waiting)) == ("more", 6, 5)
    assert "more" in plan(replace(yard.snapshot(), requests=with_one)).waits
    assert waiting == Line(wants(f"j{number}", number, number=number) for number in range(5))


# -- how much work it is -----------------------------------------------------------------------------------------------


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Counts the sentences that are made."""
    counting = Mock(side_effect=why_not_now)
    monkeypatch.setattr(cycle, "why_not_now", counting)
    return counting


def test_one_sentence_is_made_for_each_shape_and_everyone_who_waits_has_it(explained: Mock) -> None:
    many = [wants(f"j{number}", number, gpus=1 + number % 3, number=number) for number in range(300)]
    found = plan(a_yard(2).snapshot(*many))
    assert explained.call_count == 3
    assert len(found.openings) == 1
    assert set(found.waits) == {each.job for each in many} - {opening.job for opening in found.openings}
    told = {each.job: found.waits[each.job] for each in many[1:]}
    by_gpus = [{told[each.job] for each in many[1:] if each.members[0].resources.gpus == gpus} for gpus in (1, 2, 3)]
    assert [{wait.reason for wait in waits} for waits in by_gpus] == [
        {Reason.PRIORITY},
        {Reason.RESOURCES},
        {Reason.NEVER_FITS},
    ]
    assert [len(waits) for waits in by_gpus] == [1, 1, 1]


def test_no_sentence_is_made_again_while_no_room_changes(explained: Mock) -> None:
    yard, known = a_yard(1), KnownRooms()
    yard.runs("holds", 0)
    waiting = Line(wants(f"j{number}", number, gpus=1 + number % 3, number=number) for number in range(30))
    before = plan(replace(yard.snapshot(), requests=waiting), known)
    made = explained.call_count
    waiting.put(wants("more", 99, number=99))
    after = plan(replace(yard.snapshot(), requests=waiting), known)
    assert explained.call_count == made
    assert after.waits["more"] == before.waits["j0"]
    yard.held.clear()
    assert plan(replace(yard.snapshot(), requests=waiting), known).openings
    assert explained.call_count > made


def test_a_cycle_places_few_of_many_and_tries_each_shape_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[str] = []
    place = cycle._Cycle._place

    def counting(self: Any, request: Request) -> Any:
        placed.append(request.job)
        return place(self, request)

    monkeypatch.setattr(cycle._Cycle, "_place", counting)
    many = (wants(f"j{number}", number, gpus=1 + number % 2, number=number) for number in range(1000))
    found = plan(Snapshot((a_node("n1", cpus=64, gpus=4),), (), tuple(many)))
    assert [opening.job for opening in found.openings] == ["j0", "j1", "j2"]
    assert placed == ["j0", "j1", "j2", "j3", "j4"]


def test_many_shapes_for_which_there_is_no_room_are_work_in_proportion() -> None:
    yard = a_yard(1)
    yard.runs("holds", 0)

    def work(shapes: int) -> int:
        each = (Member(0, Resources(1000 + number, 0, 1), 1) for number in range(shapes))
        waiting = Line(Request(f"j{n}", 0, n, (member,), number=n) for n, member in enumerate(each))
        known = KnownRooms()
        plan(replace(yard.snapshot(), requests=waiting), known)
        return calls_of(lambda: plan(replace(yard.snapshot(), requests=waiting), known))

    assert work(400) < 4.5 * work(100)
