"""An error concerns one job, one command or one view; the round goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobyard.engine import attempt_events, invariants, job_events, place_events, planner
from jobyard.engine.handling import HANDLERS
from jobyard.engine.job_record import JobRecord
from jobyard.engine.wants import Wants
from jobyard.engine.yard_state import YardState
from jobyard.errors import Bug, NotFound, Unavailable
from jobyard.executors.fake import FakeExecutor, FakeMachine
from jobyard.model.effects import Effect, Launch
from jobyard.model.events import AttemptsFinished, Event, JobSubmitted, NodeWentAway, SlotClosed
from jobyard.model.job import Dependency, Reason, State
from jobyard.scheduling import cycle
from jobyard.server import views
from jobyard.server.queries import shown_in_list
from jobyard.server.views import reason_of_job
from jobyard.server.why_view import why_view
from tests.unit.server.running import RunningYard, a_yard

POISON = "poison"


def errors(yard: RunningYard) -> dict[str, int]:
    return {view.what: view.count for view in yard.loop.error_counts.views()}


async def test_a_command_that_fails_is_its_askers_alone(tmp_path: Path) -> None:
    def broken(state: YardState, now: float) -> tuple[Sequence[Event], str]:
        raise KeyError("nothing here")

    async with a_yard(tmp_path) as yard:
        running = await yard.submit("sleep 0.2")
        state = yard.loop.state
        asked = [asyncio.ensure_future(yard.loop.ask(broken)), asyncio.ensure_future(yard.submit("true"))]
        with pytest.raises(Bug, match="KeyError"):
            await asked[0]
        assert await yard.ended(await asked[1]) is State.SUCCEEDED
        assert await yard.ended(running) is State.SUCCEEDED
        assert yard.loop.state is state  # nobody had to go back to the disk
        assert errors(yard) == {"command": 1}


async def test_a_submission_that_breaks_the_state_is_its_askers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = job_events.submit

    def break_after(state: YardState, event: JobSubmitted) -> list[Effect]:
        effects = whole(state, event)
        if event.spec.name == POISON:
            raise ZeroDivisionError("half done")
        return effects

    monkeypatch.setitem(HANDLERS, JobSubmitted, break_after)
    async with a_yard(tmp_path) as yard:
        running = await yard.submit("sleep 0.2")
        asked = [asyncio.ensure_future(yard.submit("true", name=name)) for name in ("a", POISON, "b")]
        with pytest.raises(Bug, match="half done"):
            await asked[1]
        for job in (running, await asked[0], await asked[2]):
            assert await yard.ended(job) is State.SUCCEEDED
        assert sorted(job.spec.name for job in yard.loop.state.jobs.values()) == ["a", "b", "batch"]
        assert errors(yard) == {"command": 1}


async def test_who_was_answered_before_the_round_was_spoiled_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_of: list[float] = []

    def refusing(state: YardState, now: float) -> tuple[Sequence[Event], str]:
        asked_of.append(now)
        raise NotFound("no such job")

    def spoiling(state: YardState, now: float) -> tuple[Sequence[Event], str]:
        return [SlotClosed("none", now)], ""

    async with a_yard(tmp_path) as yard:
        answers = await asyncio.gather(
            *(yard.loop.ask(each) for each in (refusing, spoiling)), yard.submit("true"), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [NotFound, Bug, str]
        assert len(asked_of) == 1


async def test_a_job_that_was_held_hears_its_end_when_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_ends(monkeypatch)
    async with a_yard(tmp_path) as yard:
        bad = await yard.submit("true", name=POISON)
        await yard.until(lambda: bad in yard.loop.state.quarantined)
        monkeypatch.undo()
        await yard.cancel(bad)
        assert await yard.ended(bad) is State.CANCELLED


def break_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of any task of the job POISON is more than the engine can take."""
    whole = attempt_events.finish

    def break_before(state: YardState, event: AttemptsFinished) -> list[Effect]:
        if any(state.jobs[item.attempt.job].spec.name == POISON for item in event.items):
            raise RuntimeError("a bug of ours")
        return whole(state, event)

    monkeypatch.setitem(HANDLERS, AttemptsFinished, break_before)


async def test_an_observation_that_breaks_the_state_holds_its_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_ends(monkeypatch)
    machine = FakeMachine(tmp_path / "machine")
    async with a_yard(tmp_path, machine) as yard:
        other = await yard.submit("sleep 0.3")
        bad = await yard.submit("true", name=POISON)
        await yard.until(lambda: bad in yard.loop.state.quarantined)
        assert await yard.ended(other) is State.SUCCEEDED
        assert await yard.ended(await yard.submit("true")) is State.SUCCEEDED
        reason, sentence = reason_of_job(yard.loop.planner, yard.job(bad))
        assert reason is Reason.HELD
        assert "RuntimeError: a bug of ours" in sentence
        assert "yard cancel 2`" in sentence
        assert not yard.job(bad).is_final
        assert why_view(yard.loop.planner, yard.job(bad)).reason is Reason.HELD
        assert errors(yard)["round"] == 1
        invariants.check(yard.loop.state)
    monkeypatch.undo()
    async with a_yard(tmp_path, machine) as yard:  # it is written down
        assert bad in yard.loop.state.quarantined
        await yard.cancel(bad)
        assert await yard.ended(bad) is State.CANCELLED
        invariants.check(yard.loop.state, finished_too=True)


async def test_a_job_that_cannot_be_placed_for_an_error_of_ours_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, poisoned = Wants._members, {POISON}

    def broken(self: Wants, job: JobRecord) -> Any:
        if job.spec.name in poisoned:
            raise IndexError("no such thing")
        return whole(self, job)

    monkeypatch.setattr(Wants, "_members", broken)
    async with a_yard(tmp_path) as yard:
        with pytest.raises(Bug, match="no such thing"):  # nothing is on disk yet: it is not taken
            await yard.submit("true", name=POISON)
        first = await yard.submit("sleep 0.2")
        later = await yard.submit("true", name="later", after=(Dependency(first),))
        poisoned.add("later")
        assert await yard.ended(first) is State.SUCCEEDED
        await yard.until(lambda: later in yard.loop.state.quarantined)
        assert await yard.ended(await yard.submit("true")) is State.SUCCEEDED
        assert (yard.job(later).state, yard.job(later).task(0).attempt) == (State.PENDING, 0)


async def test_a_plan_that_fails_for_one_request_names_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cycle.plan

    def broken(shot: Any, *rest: Any) -> Any:
        if any(request.priority == 7 for request in shot.requests):
            raise ValueError("cannot be compared")
        return whole(shot, *rest)

    monkeypatch.setattr(planner, "plan", broken)
    async with a_yard(tmp_path) as yard:
        asked = [asyncio.ensure_future(yard.submit("true", priority=priority)) for priority in (0, 7, 0)]
        with pytest.raises(Bug, match="cannot be compared"):
            await asked[1]
        assert [await yard.ended(await asked[index]) for index in (0, 2)] == [State.SUCCEEDED] * 2


async def test_a_word_that_breaks_the_state_and_concerns_no_job_is_not_heard_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = place_events.go_away

    def broken(state: YardState, event: NodeWentAway) -> list[Effect]:
        if event.node == "odd":
            raise TypeError("what is that?")
        return whole(state, event)

    monkeypatch.setitem(HANDLERS, NodeWentAway, broken)
    async with a_yard(tmp_path) as yard:
        for at in (1.0, 2.0):
            yard.loop.report([NodeWentAway("odd", at, f"in other words {at}")])
            assert await yard.ended(await yard.submit("true")) is State.SUCCEEDED
        assert errors(yard) == {"round": 1}


@pytest.mark.parametrize("error", [Unavailable("not now"), ValueError("never")])
async def test_a_launch_that_fails_is_tried_again_or_fails_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    whole = FakeExecutor.perform
    failed: list[Effect] = []

    def broken(self: FakeExecutor, effects: Sequence[Effect]) -> None:
        for effect in effects:
            is_bad = isinstance(effect, Launch) and self._yard.job(effect.slot.job).spec.name == POISON
            if is_bad and (not isinstance(error, Unavailable) or len(failed) < 2):
                failed.append(effect)
                raise error
        whole(self, effects)

    monkeypatch.setattr(FakeExecutor, "perform", broken)
    async with a_yard(tmp_path) as yard:
        bad = await yard.submit("true", name=POISON)
        assert await yard.ended(await yard.submit("true")) is State.SUCCEEDED
        if isinstance(error, Unavailable):
            yard.machine.drop()  # the next connection reconciles
            assert await yard.ended(bad) is State.SUCCEEDED
        else:
            assert await yard.ended(bad) is State.FAILED
            reason, sentence = reason_of_job(yard.loop.planner, yard.job(bad))
            assert (reason, sentence) == (Reason.REFUSED, "it cannot be launched (never)")
        assert errors(yard) == {"effect": 1}


async def test_a_job_that_cannot_be_shown_says_so_and_the_others_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_yard(tmp_path) as yard:
        jobs = [await yard.submit("true", name=name) for name in ("good", POISON)]
        for job in jobs:
            await yard.ended(job)
        whole = views.counts_of

        def broken(job: JobRecord) -> Any:
            if job.spec.name == POISON:
                raise OverflowError("too many")
            return whole(job)

        monkeypatch.setattr(views, "counts_of", broken)
        good, bad = (shown_in_list(yard.loop, job) for job in jobs)
        assert (good.name, good.message) == ("good", "")
        assert (bad.id, bad.state, bad.reason) == (jobs[1], State.SUCCEEDED, Reason.UNKNOWN)
        assert "cannot be shown (OverflowError: too many)" in bad.message
        assert errors(yard) == {"view": 1}
