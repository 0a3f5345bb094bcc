"""What every place where attempts run promises, whatever it is made of."""

from __future__ import annotations

import asyncio
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from jobyard.executors.protocol import LiveAttempt
from jobyard.model.job import Reason
from jobyard.model.task import AttemptId
from tests.conformance.places import NODE, ConformanceYard, Place, a_launch, linked
from tests.waiting import PATIENCE_SECONDS

STUBBORN = "trap '' TERM; echo deaf; sleep 60; sleep 60"


async def test_a_launch_that_comes_twice_runs_once(place: Place, yard: ConformanceYard, witness: Path) -> None:
    job = yard.submit("aa", f"echo ran >> {witness}; sleep 0.1", "true")
    async with linked(place, yard) as link:
        (first, last) = link.launch(job, 0, 1)
        link.launch(job, 0, 1)
        await link.finished(last)
        link.launch(job, 0)  # and once it has ended
        (marker,) = link.launch(yard.submit("bb", "true"), 0)
        await link.finished(marker)
        assert _read(witness) == "ran\n"
        assert (await link.finished(first)).exit_code == 0


@pytest.mark.parametrize(
    ("line", "exit_code", "number"),
    [("true", 0, None), ("exit 3", 3, None), ("false", 1, None), ("kill -9 $$", None, 9), ("exit 255", 255, None)],
)
async def test_an_outcome_says_how_it_ended(
    place: Place, yard: ConformanceYard, line: str, exit_code: int | None, number: int | None
) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", line), 0)
        outcome = await link.finished(attempt)
    assert (outcome.exit_code, outcome.signal, outcome.reason) == (exit_code, number, None)
    assert outcome.succeeded == (line == "true")
    assert 0 < outcome.started_at <= outcome.finished_at


async def test_all_output_is_there_when_the_end_is_told(place: Place, yard: ConformanceYard) -> None:
    text = "x" * 5000
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", f"echo {text}; echo oh >&2; echo last; exit 1"), 0)
        await link.finished(attempt)
        assert link.output(attempt) == f"{text}\nlast\n"
        assert link.output(attempt, "err") == "oh\n"


async def test_an_attempt_is_told_to_run_before_it_ends(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", "sleep 60"), 0)
        at = await link.started(attempt)
        link.stop(attempt)
        assert (await link.finished(attempt)).started_at == pytest.approx(at, abs=0.01)


async def test_stop_ends_what_runs(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", "sleep 60"), 0)
        await link.started(attempt)
        link.stop(attempt)
        outcome = await link.finished(attempt)
    assert (outcome.exit_code, outcome.signal) == (None, signal.SIGTERM)


async def test_what_ignores_the_polite_signal_is_killed_after_the_grace(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", STUBBORN), 0)
        await _has_said(link.executor.log_path(attempt, "out"), "deaf")
        begin = asyncio.get_running_loop().time()
        link.stop(attempt, grace=0.4)
        outcome = await link.finished(attempt)
        assert asyncio.get_running_loop().time() - begin >= 0.4
    assert outcome.signal == signal.SIGKILL


async def test_a_second_stop_without_grace_hurries(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", STUBBORN), 0)
        await _has_said(link.executor.log_path(attempt, "out"), "deaf")
        link.stop(attempt, grace=600)
        link.stop(attempt, grace=0)
        assert (await link.finished(attempt)).signal == signal.SIGKILL


async def test_stopping_what_is_gone_is_no_error(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", "true"), 0)
        await link.finished(attempt)
        link.stop(attempt)
        (after,) = link.launch(yard.submit("bb", "true"), 0)
        assert (await link.finished(after)).succeeded
        assert link.finished_times(attempt) == 1


async def test_stopping_what_has_not_started_gives_it_back(place: Place, yard: ConformanceYard, witness: Path) -> None:
    async with linked(place, yard) as link:
        first, second = link.launch(yard.submit("aa", "sleep 60", f"echo ran >> {witness}"), 0, 1)
        await link.started(first)
        link.stop(second)
        await link.withdrawn(second)
        link.stop(first)
        await link.finished(first)
        (after,) = link.launch(yard.submit("bb", "true"), 0)
        await link.finished(after)
        assert not _read(witness)
        assert link.finished_times(second) == 0


async def test_withdraw_gives_back_only_what_has_not_started(
    place: Place, yard: ConformanceYard, witness: Path
) -> None:
    async with linked(place, yard) as link:
        job = yard.submit("aa", "sleep 2", f"echo ran >> {witness}")
        first, second = link.launch(job, 0, 1)
        await link.started(first)
        link.withdraw(first, second)
        await link.withdrawn(second)
        assert (await link.finished(first)).succeeded
        assert list(link.all_withdrawn()) == [second]
        assert not _read(witness)


async def test_a_task_that_was_given_back_runs_as_its_next_attempt(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        job = yard.submit("aa", "sleep 60", "echo now")
        first, second = link.launch(job, 0, 1)
        await link.started(first)
        link.withdraw(second)
        await link.withdrawn(second)
        (again,) = link.launch(job, 1, slot="2", attempt=2)
        assert (await link.finished(again)).succeeded
        assert link.output(again) == "now\n"
        link.stop(first, grace=0)
        await link.finished(first)


async def test_a_slot_runs_one_after_another_in_order(place: Place, yard: ConformanceYard) -> None:
    lines = [f"echo {number}; sleep 0.02" for number in range(8)]
    async with linked(place, yard) as link:
        attempts = link.launch(yard.submit("aa", *lines), *range(8))
        outcomes = [await link.finished(attempt) for attempt in attempts]
    for before, after in pairwise(outcomes):
        assert before.finished_at <= after.started_at + 0.005  # two clocks are read


async def test_slots_run_beside_each_other(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        job = yard.submit("aa", "sleep 60", "sleep 60")
        (first,) = link.launch(job, 0, slot="1")
        (second,) = link.launch(job, 1, slot="2")
        await link.started(first)
        await link.started(second)
        link.stop(first, second, grace=0)
        await link.finished(first)
        await link.finished(second)


async def test_a_closed_slot_finishes_what_it_has_and_may_be_opened_again(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        job = yard.submit("aa", "sleep 0.05", "true")
        (first,) = link.launch(job, 0)
        link.close_slot("1")
        link.close_slot("never-heard-of")
        assert (await link.finished(first)).succeeded
        (second,) = link.launch(job, 1)
        assert (await link.finished(second)).succeeded


async def test_an_attempt_that_takes_too_long_is_ended(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", "sleep 60", timeout=0.3), 0)
        outcome = await link.finished(attempt)
    assert (outcome.reason, outcome.succeeded) == (Reason.TIMEOUT, False)


async def test_a_new_connection_hears_what_ended_meanwhile_and_nothing_twice(
    place: Place, yard: ConformanceYard, witness: Path
) -> None:
    job = yard.submit("aa", "true", f"sleep 2; echo late; echo late >> {witness}; exit 4")
    async with linked(place, yard) as link:
        (told,) = link.launch(job, 0, slot="1")
        (untold,) = link.launch(job, 1, slot="2")
        await link.finished(told)
        await link.started(untold)
    await _has_said(witness, "late")
    async with linked(place, yard) as link:
        assert (await link.finished(untold)).exit_code == 4
        assert link.output(untold) == "late\n"
        (marker,) = link.launch(yard.submit("bb", "true"), 0)
        await link.finished(marker)
        assert link.finished_times(untold) == 1
        assert link.finished_times(told) == 0


async def test_what_still_runs_goes_on_over_a_lost_connection(
    place: Place, yard: ConformanceYard, witness: Path
) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", f"echo ran >> {witness}; sleep 60"), 0)
        at = await link.started(attempt)
    async with linked(place, yard) as link:
        assert await link.started(attempt) == pytest.approx(at, abs=0.01)
        link.stop(attempt, grace=0)
        await link.finished(attempt)
    assert _read(witness) == "ran\n"


async def test_reconnecting_by_itself_reconciles_too(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", "sleep 60"), 0)
        await link.started(attempt)
        link.executor.reconnect()
        await link.joined(times=2)
        link.stop(attempt)
        await link.finished(attempt)
        assert link.finished_times(attempt) == 1


async def test_what_the_place_never_heard_of_is_launched_again(place: Place, yard: ConformanceYard) -> None:
    launch = a_launch(yard.submit("aa", "echo here"), [0])
    yard.live = {name: LiveAttempt(name, launch.slot, is_stopping=False) for name in launch.attempts}
    async with linked(place, yard) as link:
        assert (await link.finished(launch.attempts[0])).succeeded
        assert link.output(launch.attempts[0]) == "here\n"


async def test_what_was_never_launched_and_should_stop_is_given_back(place: Place, yard: ConformanceYard) -> None:
    launch = a_launch(yard.submit("aa", "echo here"), [0])
    yard.live = {name: LiveAttempt(name, launch.slot, is_stopping=True) for name in launch.attempts}
    async with linked(place, yard) as link:
        await link.withdrawn(launch.attempts[0])
        assert not link.all_started()


async def test_a_stop_that_was_lost_with_the_connection_is_asked_again(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", "sleep 60"), 0)
        await link.started(attempt)
    yard.live[attempt] = yard.live[attempt]._replace(is_stopping=True)
    async with linked(place, yard) as link:
        assert (await link.finished(attempt)).signal == signal.SIGTERM


async def test_what_does_not_stop_at_a_checkpoint_in_time_is_ended_and_told_as_preempted(
    place: Place, yard: ConformanceYard
) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", "sleep 60"), 0)
        await link.started(attempt)
        link.ask_to_yield(attempt, deadline=0.3)
        assert (await link.finished(attempt)).reason is Reason.PREEMPTED


async def test_what_cannot_stop_by_itself_is_ended_at_once(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", "sleep 60"), 0)
        await link.started(attempt)
        link.ask_to_yield(attempt, at_once=True)
        assert (await link.finished(attempt)).reason is Reason.PREEMPTED


async def test_who_ends_well_before_the_deadline_has_succeeded(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", "sleep 0.5"), 0)
        await link.started(attempt)
        link.ask_to_yield(attempt)
        assert (await link.finished(attempt)).succeeded


async def test_a_stop_wins_over_the_wish_for_a_checkpoint(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", "sleep 60"), 0)
        await link.started(attempt)
        link.ask_to_yield(attempt)
        link.stop(attempt)
        outcome = await link.finished(attempt)
    assert (outcome.signal, outcome.reason) == (signal.SIGTERM, None)


async def test_what_has_not_started_is_given_back_when_it_should_yield(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        first, second = link.launch(yard.submit("aa", "sleep 60", "true"), 0, 1)
        await link.started(first)
        link.ask_to_yield(second)
        await link.withdrawn(second)
        link.stop(first)
        await link.finished(first)


async def test_a_wish_that_was_lost_with_the_connection_is_made_again(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", "sleep 60"), 0)
        await link.started(attempt)
    yard.live[attempt] = yard.live[attempt]._replace(is_stopping=True, is_yielding=True, yield_seconds=0.3)
    async with linked(place, yard) as link:
        assert (await link.finished(attempt)).reason is Reason.PREEMPTED


async def test_made_again_to_what_cannot_stop_by_itself_it_ends_it_at_once(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        (attempt,) = link.launch(yard.submit("aa", "sleep 60"), 0)
        await link.started(attempt)
    yard.live[attempt] = yard.live[attempt]._replace(is_stopping=True, is_yielding=True, at_once=True)
    async with linked(place, yard) as link:
        assert (await link.finished(attempt)).reason is Reason.PREEMPTED


async def test_being_told_that_work_is_pending_or_all_is_done_needs_no_answer(
    place: Place, yard: ConformanceYard
) -> None:
    async with linked(place, yard) as link:
        link.executor.announce(True)
        (attempt,) = link.launch(yard.submit("aa", "true"), 0)
        await link.finished(attempt)
        link.executor.announce(False)
        link.executor.dismiss()
    async with linked(place, yard) as link:  # a dismissed place can be used again
        (attempt,) = link.launch(yard.submit("bb", "true"), 0)
        assert (await link.finished(attempt)).succeeded


async def test_a_superseded_attempt_is_stopped_and_never_told_of(place: Place, yard: ConformanceYard) -> None:
    job = yard.submit("aa", "echo here; sleep 60; echo never", grace=0.2)
    async with linked(place, yard) as link:
        (old,) = link.launch(job, 0)
        await _has_said(link.executor.log_path(old, "out"), "here")
    yard.live.clear()  # the yard gave it up
    async with linked(place, yard) as link:
        (new,) = link.launch(job, 0, slot="2", attempt=2)
        await link.started(new)
        link.stop(new)
        await link.finished(new)
        # In its slot the next begins only once the old one is gone.
        (after,) = link.launch(yard.submit("bb", "true"), 0, slot="1")
        await link.finished(after)
        assert link.output(old) == "here\n"
        assert old not in [name for name, _ in (*link.all_started(), *link.all_finished())]
        assert old not in link.all_withdrawn()


async def test_a_preview_says_what_would_be_sent_and_no_variable_of_the_shell(
    place: Place, yard: ConformanceYard
) -> None:
    job = yard.submit("aa", "echo look-here")
    async with linked(place, yard) as link:
        text = link.executor.preview(job, a_launch(job, [0]))
        assert "look-here" in text
        assert "of-the-shell" not in text
        assert not link.all_started()


async def test_the_status_names_its_node_and_what_is_wrong(place: Place, yard: ConformanceYard) -> None:
    async with linked(place, yard) as link:
        status = link.executor.status()
        assert (status.node, status.is_connected, status.problem) == (NODE, True, "")
    assert not link.executor.status().is_connected


async def test_effects_for_what_is_unknown_do_nothing(place: Place, yard: ConformanceYard) -> None:
    unknown = AttemptId("never", 0, 1)
    async with linked(place, yard) as link:
        link.withdraw(unknown)
        link.stop(unknown)
        (attempt,) = link.launch(yard.submit("aa", "true"), 0)
        assert (await link.finished(attempt)).succeeded


async def _has_said(path: str | Path, word: str) -> None:
    """Wait for a word in an output file: no event tells of it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while word not in _read(path):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except FileNotFoundError:
        return ""
