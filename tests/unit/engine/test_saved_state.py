"""Is all that lasts saved, and does a state that was rebuilt decide as the one that lived?"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from jobyard.engine import saved_state
from jobyard.engine.handling import handle
from jobyard.engine.job_record import JobRecord
from jobyard.engine.planner import Planner
from jobyard.engine.saved_state import SavedState
from jobyard.engine.yard_state import YardState
from jobyard.model.events import AttemptsMeasured, Used, UseMeasured
from jobyard.model.job import State
from tests.builders import a_job, a_node
from tests.unit.engine.driving import state_of
from tests.unit.engine.training_yard import TrainingYard, a_training, an_elastic, report
from tests.unit.engine.world import durable

# Fields of a job that are saved one by one, by the part of the record that has them.
BY_HAND = {"": {"id", "number", "spec", "slots"}, "tasks": {"known", "set_aside", *saved_state._RANGES}}
WORKED_OUT = {"counts", "size", "delayed", "profile_key"}
MEASURED = {"steps", "used", "gpu_percent", "idle_since", "end_rate"}


def names_of(part: Any) -> set[str]:
    return {field.name for field in fields(part)} if is_dataclass(part) else set(vars(part))


def test_every_field_of_a_job_is_saved_or_named_as_not_lasting() -> None:
    job, parts = JobRecord("j", 1, a_job(), 0.0), saved_state._PARTS
    for part, saved in parts.items():
        pairs = {name for name, of in saved_state._PAIRS.items() if of == part}
        kept = {*saved.values(), *pairs, *BY_HAND.get(part, ())}
        left = names_of(getattr(job, part) if part else job) - kept - WORKED_OUT - MEASURED
        assert left <= parts.keys(), f"{part}: {left}"


def test_every_field_of_the_yard_is_saved_or_named_as_not_lasting() -> None:
    kept = {field.name for field in fields(SavedState)} - {"profiles", "storages"}  # both are in `trainings`
    worked_out = {"trainings", "quarantined", "changes"}
    state = YardState()
    names = (names_of(state) - {"places"}) | names_of(state.places)
    assert names == kept | worked_out | {"quotas", "cluster_waits"}


def replayed(yard: TrainingYard) -> TrainingYard:
    """Another server, which has nothing but the journal."""
    other = TrainingYard(a_node())
    other.state, other.now, other.history = YardState(), yard.now, list(yard.history)
    for event in yard.history:
        handle(other.state, event)
    other.planner = Planner(other.state)
    assert durable(other.state) == durable(yard.state)
    return other


def test_room_that_is_kept_for_a_job_that_grows_is_kept_after_a_replay_too() -> None:
    """It stops to come back larger; whoever comes meanwhile does not get the GPUs that it is to have."""
    yard = TrainingYard(a_node(gpus=4, cpus=16))
    first = yard.submit(a_job(gpus=3))
    job = yard.submit(an_elastic(1, 4))
    attempt = yard.begin(job)
    yard.progress(attempt, report(2, 100, seconds=100.0))
    yard.finish(*yard.active(first))
    yard.progress(attempt, report(3, 100, seconds=100.0))
    assert job.is_yielding
    for each in (yard, replayed(yard)):
        growing = each.state.jobs[job.id]
        claims = each.planner.snapshot(each.now).claims
        assert sum(len(placement.devices) for placement in claims) == 3, claims
        late = each.submit(a_job(gpus=3))
        assert state_of(late) is State.PENDING
        assert growing.is_yielding


def test_what_a_job_was_seen_to_use_is_known_after_a_replay() -> None:
    yard = TrainingYard(a_node(gpus=1))
    job = yard.submit(a_training(gpu_mem=20000))
    attempt = yard.begin(job)
    yard.apply(AttemptsMeasured(yard.now, used=(Used(attempt, 500, 6000, 40),)))
    assert [event for event in yard.history if isinstance(event, UseMeasured)] == [
        UseMeasured(job.id, 500, 6000, 40, yard.now)
    ]
    profile = replayed(yard).state.trainings.profile_of(job)
    assert profile is not None
    assert (profile.peak_gpu_memory_mib, profile.gpu_percent) == (6000, 40)
    yard.apply(AttemptsMeasured(yard.now, used=(Used(attempt, 500, 5000, 41),)))
    assert len([event for event in yard.history if isinstance(event, UseMeasured)]) == 1


def test_a_planner_can_be_thrown_away_at_any_time() -> None:
    yard = TrainingYard(a_node(gpus=1, cpus=4))
    yard.submit(a_job(gpus=1))
    waiting = yard.submit(a_job(gpus=1))
    known = yard.planner.waits
    yard.planner = Planner(yard.state)
    assert yard.apply() == []
    assert yard.planner.waits == known
    assert set(known) == {waiting.id}


def test_a_state_of_plain_data_is_the_same_state() -> None:
    yard = TrainingYard(a_node(gpus=2))
    job = yard.submit(an_elastic(1, 2))
    yard.progress(yard.begin(job), report(2, 100))
    yard.submit(a_job(gpus=1, priority=5))
    loaded = saved_state.load(saved_state.save(yard.state))
    assert durable(loaded) == durable(yard.state)
    asked = loaded.jobs[job.id].preemption.asked
    assert asked is not None
    assert asked == job.preemption.asked
