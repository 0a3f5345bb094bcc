"""The loop: observe, record, decide, act; on a fake machine."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from jobyard.engine import invariants
from jobyard.engine.handling import handle
from jobyard.engine.planner import Planner
from jobyard.engine.yard_state import YardState
from jobyard.errors import NotFound, Unwritable, UserError
from jobyard.executors.fake import FakeMachine
from jobyard.model import codec
from jobyard.model.events import Event
from jobyard.model.job import Dependency, Reason, State
from jobyard.server import recording
from jobyard.server.commands import retry, submit
from jobyard.server.damages import Restored
from jobyard.server.event_feed import Subscription
from jobyard.server.finding import find_job
from jobyard.server.journal import Journal
from jobyard.server.snapshots import Snapshots
from jobyard.server.views import awaited_view, job_view
from jobyard.wire.requests import RetryJob, SubmitJob
from tests.builders import a_job, submitted
from tests.unit.server.running import a_batch, a_yard, an_array
from tests.waiting import PATIENCE_SECONDS


async def test_a_job_runs_to_its_end(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo one", "echo two", "exit 3")
        assert await yard.ended(job) is State.FAILED
        counts = yard.job(job).tasks.counts
        assert (counts[State.SUCCEEDED], counts[State.FAILED]) == (2, 1)
        assert yard.job(job).task(2).reason is Reason.EXIT_CODE
        invariants.check(yard.loop.state, finished_too=True)


async def test_what_was_acknowledged_is_in_the_journal(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("sleep 60")
        events = [item for _, batch in Journal(yard.engine).read() for item in batch]
        assert job in [getattr(item, "job", None) for item in events]


async def test_the_same_key_is_the_same_job(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        first = await yard.submit("true", key="once")
        assert await yard.submit("true", key="once") == first
        assert len(yard.loop.state.jobs) == 1
        assert await yard.submit("true", key="twice") != first


async def test_a_refused_request_leaves_nothing(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        await yard.loop.journalled()  # its node is known a moment before that is written down
        before = yard.loop.seq
        with pytest.raises(UserError, match="largest node"):
            await yard.submit("true", cpus=1000)
        assert (yard.loop.state.jobs, yard.loop.seq) == ({}, before)


async def test_a_failed_write_is_told_and_undone(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        kept = await yard.submit("sleep 0.2", "true")

        def fail(_connection: object) -> None:
            raise OperationalError("COMMIT", {}, Exception("disk I/O error"))

        event.listen(yard.engine, "commit", fail)
        with pytest.raises(Unwritable, match="disk I/O error"):
            await yard.submit("echo never")
        assert list(yard.loop.state.jobs) == [kept]  # at once
        event.remove(yard.engine, "commit", fail)
        assert await yard.ended(kept) is State.SUCCEEDED
        assert await yard.ended(await yard.submit("true")) is State.SUCCEEDED
        invariants.check(yard.loop.state, finished_too=True)


async def test_retries_and_a_retry_by_hand_make_new_attempts(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("exit 1", retries=2, retry_delay_seconds=0.0)
        assert await yard.ended(job) is State.FAILED
        assert yard.job(job).task(0).attempt == 3
        await yard.loop.ask(retry(job, RetryJob()))
        assert await yard.ended(job) is State.FAILED
        assert yard.job(job).task(0).attempt == 6


async def test_cancelling_ends_what_runs_and_what_waits(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit(*["sleep 60"] * 100)
        await yard.running(job)
        await yard.cancel(job)
        assert await yard.ended(job) is State.CANCELLED
        assert yard.job(job).tasks.counts[State.CANCELLED] == 100


async def test_one_deaf_task_is_killed_by_force(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("trap '' TERM; sleep 60", grace_seconds=600)
        await yard.running(job)
        await yard.cancel(job)
        await yard.until(lambda: yard.job(job).state is State.STOPPING)
        await yard.cancel(job, force=True)
        assert await yard.ended(job) is State.CANCELLED


async def test_a_server_that_returns_takes_up_what_ran_and_hears_what_ended(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path / "machine")
    witness = tmp_path / "witness"
    async with a_yard(tmp_path, machine) as yard:
        job = await yard.submit(f"echo long >> {witness}; sleep 0.4", f"echo short >> {witness}; sleep 0.1; exit 5")
        await yard.until(lambda: yard.job(job).tasks.counts[State.RUNNING] == 2)
    await asyncio.sleep(0.2)  # the short one ends while nobody listens
    async with a_yard(tmp_path, machine) as yard:
        assert await yard.ended(job) is State.FAILED
        assert yard.job(job).task(1).outcome.exit_code == 5  # type: ignore[union-attr]
    assert sorted(witness.read_text().split()) == ["long", "short"]


async def test_a_lost_link_harms_nothing(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("sleep 1", "sleep 0.1; exit 2")
        await yard.until(lambda: yard.job(job).tasks.counts[State.RUNNING] == 2)
        yard.machine.cut()
        waiting = await yard.submit("echo later")
        await asyncio.sleep(0.2)
        assert not yard.job(job).is_final
        yard.machine.reachable.set()
        assert await yard.ended(job) is State.FAILED
        assert await yard.ended(waiting) is State.SUCCEEDED
        assert yard.job(job).task(0).attempt == yard.job(job).task(1).attempt == 1


async def test_replay_gives_the_state_that_lived(tmp_path: Path) -> None:
    chance = random.Random(7)
    async with a_yard(tmp_path) as yard:
        jobs = []
        for _ in range(25):
            lines = [chance.choice(["true", "exit 1", "sleep 0.01", "sleep 60", "kill -9 $$"]) for _ in range(5)]
            jobs.append(await yard.submit(*lines, retries=chance.randrange(2), priority=chance.randrange(3)))
            if chance.random() < 0.6:
                await yard.cancel(chance.choice(jobs), force=True)
        for job in jobs[:15]:
            await yard.cancel(job, force=True)
            await yard.ended(job)
        _, replayed, _ = Snapshots(tmp_path / "none", "b", "y").restore(yard.journal)
        assert _picture(replayed) == _picture(yard.loop.state)
        invariants.check(replayed, finished_too=True)


async def test_a_snapshot_and_the_rest_of_the_journal_are_as_good_as_all_of_it(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        first = await yard.submit("true", "exit 1")
        await yard.ended(first)
        snapshots = Snapshots(tmp_path / "picture", "build", "yard")
        snapshots.save(Restored(yard.loop.seq, yard.loop.state, ()))
        await yard.ended(await yard.submit("true"))
        assert _picture(snapshots.restore(yard.journal)[1]) == _picture(yard.loop.state)
        for stranger in (Snapshots(tmp_path / "picture", "other", "yard"), Snapshots(tmp_path / "none", "b", "y")):
            assert _picture(stranger.restore(yard.journal)[1]) == _picture(yard.loop.state)
        (tmp_path / "picture").write_bytes(b"\x80torn")
        assert _picture(snapshots.restore(yard.journal)[1]) == _picture(yard.loop.state)


async def test_a_snapshot_is_made_beside_the_loop_while_commands_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, whole = threading.Event(), Snapshots.save

    def slow(self: Snapshots, restored: Restored) -> None:
        assert go_on.wait(PATIENCE_SECONDS)
        whole(self, restored)

    monkeypatch.setattr(recording, "SNAPSHOT_EVERY_ROWS", 1)
    monkeypatch.setattr(Snapshots, "save", slow)
    async with a_yard(tmp_path) as yard:
        jobs = [await yard.submit("true") for _ in range(3)]
        assert not (tmp_path / "snapshot").exists()
        go_on.set()
    async with a_yard(tmp_path) as yard:
        assert (tmp_path / "snapshot").exists()
        assert list(yard.loop.state.jobs) == jobs


@pytest.mark.parametrize(("rows", "snapshots"), [(11, 0), (12, 1)])
async def test_a_snapshot_of_many_jobs_is_made_after_as_many_rows(
    rows: int, snapshots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "SNAPSHOT_EVERY_ROWS", 5)
    state, journal, store = YardState(), Mock(), Mock()
    for number in range(12):
        handle(state, submitted(f"j{number}", number, a_job()))
    store.restore.return_value = Restored(0, state, ())
    journal.append.side_effect = range(1, rows + 1)
    writing = recording.Recording(journal, store, Mock(), Mock())
    writing.begin()
    for _ in range(rows):
        await writing.append([], set())
    writing.close()
    assert store.renew.call_count == snapshots


def _waiting(subscription: Subscription) -> list[tuple[int, list[Event]]]:
    found = []
    while not subscription.empty():
        found.append(subscription.get_nowait())
    return found


async def test_subscribers_hear_every_journalled_batch_in_order(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        before, subscription = yard.loop.seq, yard.loop.feed.subscribe()
        await yard.ended(await yard.submit("true", "true"))
        assert _waiting(subscription) == list(yard.journal.read(after=before))


async def test_a_subscriber_that_does_not_keep_up_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.server.event_feed.WAITING_MOST", 2)
    async with a_yard(tmp_path) as yard:
        subscription = yard.loop.feed.subscribe()
        for _ in range(3):
            await yard.ended(await yard.submit("true"))
        assert subscription.is_cut
        assert [batch for _, batch in _waiting(subscription)] == [[]]  # only what wakes it
        assert not yard.loop.feed._subscriptions


async def test_the_journal_is_read_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.server.recording.JOURNAL_ROWS_AT_ONCE", 2)
    async with a_yard(tmp_path) as yard:
        for _ in range(3):
            await yard.ended(await yard.submit("true"))
        found: list[tuple[int, list[Event]]] = []
        while rows := await yard.loop.read_journal(found[-1][0] if found else 0):
            assert len(rows) <= 2
            found += rows
        assert found == list(yard.journal.read())


async def test_an_array_of_many_quick_tasks_ends_with_every_one_counted(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        spec = an_array("true", 499, workdir=str(tmp_path))
        job = await yard.loop.ask(submit(SubmitJob(spec)))
        assert await yard.ended(job) is State.SUCCEEDED
        assert yard.job(job).tasks.counts[State.SUCCEEDED] == 500
        invariants.check(yard.loop.state, finished_too=True)


async def test_a_job_is_found_by_id_name_number_and_last(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        with pytest.raises(NotFound, match="the yard is empty"):
            find_job(yard.loop.state, "last")
        first = await yard.submit("true", name="same")
        second = await yard.submit("true", name="same")
        state = yard.loop.state
        assert find_job(state, first).id == first
        assert find_job(state, "same").id == second
        assert find_job(state, "1").id == first
        assert find_job(state, "last").id == second
        with pytest.raises(NotFound, match="yard ls -a"):
            find_job(state, "nobody")
        with pytest.raises(NotFound):
            find_job(state, "")


async def test_a_dependent_waits_and_is_cancelled_with_its_reason(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        first = await yard.submit("while [ ! -e go ]; do sleep 0.02; done; exit 1")
        spec = a_batch("true", workdir=str(tmp_path), after=(Dependency(first),))
        second = await yard.loop.ask(submit(SubmitJob(spec)))
        (tmp_path / "go").touch()
        assert await yard.ended(second) is State.CANCELLED
        assert job_view(yard.loop.planner, yard.job(second)).message.startswith("job 1 failed, and this one runs")


async def test_a_job_after_one_that_failed_is_refused(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        failed = await yard.submit("exit 1")
        assert await yard.ended(failed) is State.FAILED
        with pytest.raises(UserError, match="--after: job 1 failed, so this one would never start"):
            await yard.submit("true", after=(Dependency(failed),))
        assert list(yard.loop.state.jobs) == [failed]
        assert await yard.ended(await yard.submit("true", after=(Dependency(failed, needs_success=False),)))


def _picture(state: YardState) -> object:
    """All that can be seen of a state."""
    return (
        {
            job.id: codec.encode(job_view(Planner(state), job)) | {"eta_seconds": None, "message": ""}
            for job in state.jobs.values()
        },
        {
            job.id: [codec.encode(awaited_view(state, job, number)) for number in range(job.spec.size)]
            for job in state.jobs.values()
        },
        {slot: (record.slot, sorted(record.tasks)) for slot, (_, record) in state.slots.items()},
        set(state.unfinished),
        (state.last_number, state.last_slot, dict(state.keys)),
    )
