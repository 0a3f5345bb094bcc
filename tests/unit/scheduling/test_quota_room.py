"""Do running jobs leave part of a cluster's quota to those whom it keeps out, and only where that helps?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.job import Reason
from jobyard.model.node import Quota
from jobyard.model.training import Size
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.snapshot import Plan, Request
from jobyard.scheduling.where import Where
from tests.builders import a_cluster_node
from tests.unit.scheduling.yards import Yard, gpu_range, stopped, wants, worker_range

PROD = Where("", "prod")


class QuotaYard(Yard):
    """One large node of a cluster whose quota is small."""

    def __init__(self, gpus: int, node_gpus: int = 8) -> None:
        super().__init__(a_cluster_node("n1", cpus=64, gpus=node_gpus))
        self.quota = Quota(gpus=gpus)

    def plan(self, *requests: Request) -> Plan:
        return plan(replace(self.snapshot(*requests), quotas={"prod": self.quota}))


def test_an_elastic_job_becomes_smaller_for_a_job_that_waits_for_the_quota() -> None:
    yard = QuotaYard(6)
    yard.runs("one", 1, gpus=2, can_yield=False)
    yard.runs("two", 2, gpus=4, sizes=gpu_range(1, 4), where=PROD)
    found = yard.plan(wants("four", 4, gpus=1, cluster="prod"))
    (stop,) = found.stops
    assert (stop.job, stop.reason, stop.size, stop.stops_for) == ("two", Reason.RESIZING, Size(1, 3), "four")
    assert stop.sentence == ("goes from 4 GPUs to 3 GPUs at its next checkpoint to leave its quota to job four")
    wait = found.waits["four"]
    assert wait.reason is Reason.QUOTA
    assert wait.sentence.endswith("; job two stops at its next checkpoint to make room")
    yard.obey(found)
    again = yard.plan(wants("four", 4, gpus=1, cluster="prod"))
    assert not again.stops
    assert again.waits["four"].sentence.endswith("; job two stops at its next checkpoint to make room")


def test_workers_are_given_up_as_well_as_gpus() -> None:
    yard = QuotaYard(6)
    yard.runs("gang", 2, *("prod/n1",) * 6, gpus=1, sizes=worker_range(2, 6), where=PROD)
    (stop,) = yard.plan(wants("late", 4, gpus=1, workers=3, cluster="prod")).stops
    assert (stop.job, stop.size) == ("gang", Size(3, 1))


def test_a_job_of_lower_priority_stops_and_one_of_the_same_does_not() -> None:
    for priority, expected in ((1, ["low"]), (0, [])):
        yard = QuotaYard(2)
        yard.runs("low", 1, gpus=2, where=PROD)
        assert stopped(yard.plan(wants("high", 2, gpus=2, priority=priority, cluster="prod"))) == expected


def test_nobody_stops_for_who_would_not_get_in_even_so() -> None:
    yard = QuotaYard(6, node_gpus=6)
    yard.runs("others", 1, gpus=3, can_yield=False)
    yard.runs("elastic", 2, gpus=3, sizes=gpu_range(2, 3), where=PROD)
    assert not yard.plan(wants("large", 4, gpus=3, cluster="prod")).stops
    assert not yard.plan(wants("too large", 4, gpus=7, cluster="prod")).stops


def test_a_smaller_job_does_not_grow_back_while_somebody_waits_for_the_quota() -> None:
    yard = QuotaYard(4)
    known: dict[str, Any] = {"epoch_seconds": ((Size(1, 1), 1000.0),), "epochs_left": 100.0}
    yard.runs("elastic", 1, gpus=1, sizes=gpu_range(1, 4), where=PROD, **known)
    yard.runs("rigid", 2, gpus=2, can_yield=False)
    assert stopped(yard.plan()) == ["elastic"]
    assert not yard.plan(wants("waits", 3, gpus=2, cluster="prod")).stops


@given(
    quota=st.integers(1, 10),
    running=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), st.sampled_from([0.0, 60.0])), max_size=4
    ),
    waiting=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=3),
)
def test_what_is_ordered_is_enough_and_is_ordered_once(
    quota: int, running: list[tuple[int, int, int, float]], waiting: list[tuple[int, int]]
) -> None:
    yard = QuotaYard(quota, node_gpus=16)
    for age, (has, least, priority, lost) in enumerate(running):
        sizes = gpu_range(min(least, has), has)
        yard.runs(f"r{age}", age, gpus=has, priority=priority, sizes=sizes, lost_seconds=lost, where=PROD)
    requests = [
        wants(f"w{age}", 10 + age, gpus=gpus, priority=priority, cluster="prod")
        for age, (gpus, priority) in enumerate(waiting)
    ]
    found = yard.plan(*requests)
    sizes_of = {each.job: each for each in yard.running}
    priorities = {each.job: each.priority for each in requests}
    for stop in found.stops:
        if stop.stops_for:
            is_smaller = stop.size is not None
            asker, asked = priorities[stop.stops_for], sizes_of[stop.job].priority
            assert asked <= asker if is_smaller else asked < asker
    yard.obey(found)
    again = yard.plan(*requests)
    assert not [stop for stop in again.stops if stop.stops_for], (found.stops, again.stops)
