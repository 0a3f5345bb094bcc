"""Where does a job stop that was asked to, and what is then said to be done?"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from jobyard.sdk import agreement, yard_job
from tests.unit.sdk.conftest import Clock, Yard, in_a_fork, leaves, one_epoch


def test_a_job_stops_before_the_next_epoch(yard: Yard) -> None:
    yard.set(YARD_EPOCHS=5)
    job = yard_job()
    one_epoch(job)
    yard.ask_to_stop()
    assert leaves(job.start_epoch)
    assert yard.kinds() == ["hello", "start", "epoch", "yield"]
    assert (yard.done("epoch"), yard.done("yield")) == ([1], [1])


def test_a_job_that_loops_over_epochs_stops_between_two_of_them(yard: Yard) -> None:
    yard.set(YARD_EPOCHS=5, YARD_EPOCHS_DONE=1)
    job = yard_job()
    seen = []

    def train() -> None:
        for epoch in job.epochs():
            seen.append(epoch)
            job.measure()
            yard.ask_to_stop()

    assert leaves(train)
    assert seen == [1]
    assert yard.done("yield") == [2]


def test_a_job_that_is_asked_before_its_first_epoch_stops_with_nothing_done(yard: Yard) -> None:
    yard.ask_to_stop()
    assert leaves(yard_job().start_epoch)
    assert yard.kinds() == ["hello", "yield"]
    assert yard.done("yield") == [0]


def test_nothing_but_the_start_of_an_epoch_stops_it(yard: Yard, clock: Clock) -> None:
    job = yard_job()
    job.start_epoch()
    yard.ask_to_stop()
    for action in (job.measure, job.measure, job.step, job.saved, job.end_epoch, job.saved):
        clock.now += 2
        assert not leaves(action)
    assert job.should_stop
    assert leaves(job.start_epoch)


@pytest.mark.parametrize("total", [1, 2, 3, 6])
def test_the_last_epoch_is_never_cut_off(yard: Yard, total: int) -> None:
    yard.set(YARD_EPOCHS=total, YARD_EPOCHS_DONE=total - 1)
    yard.ask_to_stop()
    assert list(yard_job().epochs()) == [total - 1]
    assert yard.done("yield") == []


def test_the_last_but_one_epoch_is_not_begun(yard: Yard) -> None:
    yard.set(YARD_EPOCHS=5, YARD_EPOCHS_DONE=3)
    yard.ask_to_stop()
    assert leaves(yard_job().start_epoch)


def test_a_job_that_never_tells_of_saving_has_its_epoch_held_back_until_the_next_begins(yard: Yard) -> None:
    job = yard_job()
    one_epoch(job)
    assert yard.done("epoch") == []  # it may be saving right now
    one_epoch(job)
    assert yard.done("epoch") == [1]


def test_a_job_that_tells_of_saving_does_not_stop_before_it_has_saved(yard: Yard) -> None:
    job = yard_job()
    one_epoch(job)
    job.saved()
    one_epoch(job)
    yard.ask_to_stop()
    one_epoch(job)  # two epochs are done, one is saved
    assert job.epochs_done == 3
    job.saved()
    assert leaves(job.start_epoch)
    assert yard.done("saved") == [1, 3]
    assert yard.done("yield") == [3]


def test_epochs_are_told_at_once_by_a_job_that_tells_of_saving(yard: Yard) -> None:
    job = yard_job()
    one_epoch(job)
    job.saved()
    one_epoch(job)
    assert yard.done("epoch") == [1, 2]
    assert yard.done("saved") == [1]


def test_a_job_that_will_tell_of_saving_has_nothing_saved_before(yard: Yard) -> None:
    job = yard_job(tells_saves=True)
    one_epoch(job)
    yard.ask_to_stop()
    one_epoch(job)
    assert yard.done("epoch") == []
    job.saved()
    assert (yard.done("epoch"), yard.done("saved")) == ([1, 2], [2])
    assert leaves(job.start_epoch)


def test_a_checkpoint_after_the_last_step_of_an_epoch_covers_it(yard: Yard) -> None:
    job = yard_job()
    job.start_epoch()
    job.measure()
    job.saved()
    assert yard.done("saved") == [0]  # nobody knows yet that there are no more steps
    job.end_epoch()
    assert yard.done("saved") == [0, 1]
    yard.ask_to_stop()
    assert leaves(job.start_epoch)


def test_a_checkpoint_in_the_middle_of_an_epoch_covers_those_before_it(yard: Yard) -> None:
    job = yard_job()
    one_epoch(job)
    job.start_epoch()
    job.measure()
    job.saved()
    job.measure()
    job.end_epoch()
    assert yard.done("saved") == [1]
    yard.ask_to_stop()
    assert not leaves(job.start_epoch)


def test_a_checkpoint_covers_no_later_epoch_even_if_no_step_is_ever_measured(yard: Yard) -> None:
    job = yard_job()
    for epoch in job.epochs(4):
        if epoch == 1:
            job.saved()
    assert yard.done("saved") == [1, 2]
    assert not job.is_saved


def test_a_resumed_job_counts_what_was_done_before_as_saved(yard: Yard) -> None:
    yard.set(YARD_EPOCHS=9, YARD_EPOCHS_DONE=4, YARD_RESUMED=1)
    yard.ask_to_stop()
    assert leaves(yard_job(tells_saves=True).start_epoch)
    assert yard.done("yield") == [4]


def test_a_script_that_counts_steps_stops_when_it_wants(yard: Yard, clock: Clock) -> None:
    job = yard_job()
    job.start_epoch()
    job.measure()
    assert not job.should_stop
    yard.ask_to_stop()
    assert not job.should_stop  # looked less than a second ago
    clock.now += 1
    assert job.should_stop
    job.saved()
    assert leaves(job.stop)
    assert (yard.done("saved"), yard.done("yield")) == ([0], [0])


def test_a_job_that_nobody_asked_goes_on_after_stop(yard: Yard, capsys: pytest.CaptureFixture[str]) -> None:
    yard_job().stop()
    assert capsys.readouterr().err == (
        "jobyard: stop() is for a job that was asked to stop, and this one was not; it goes on.\n"
    )


def test_the_stop_file_is_looked_for_once_a_second(yard: Yard, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr("os.path.exists", lambda path: looked.append(path))
    job = yard_job()
    job.start_epoch()
    looked.clear()
    for _ in range(500):
        clock.now += 0.01
        job.measure()
        assert not job.should_stop
    assert 4 <= len(looked) <= 6
    assert set(looked) == {str(yard.stop_file)}


def test_sigterm_asks_to_stop_and_the_handler_before_it_is_still_called(yard: Yard) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    job = yard_job()
    one_epoch(job)
    os.kill(os.getpid(), signal.SIGTERM)
    assert job.should_stop
    assert heard == [signal.SIGTERM]
    assert leaves(job.start_epoch)


def test_without_a_yard_sigterm_is_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    one_epoch(yard_job())
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_job_in_a_thread_trains_and_leaves_signals_alone(yard: Yard) -> None:
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=lambda: one_epoch(yard_job()))
    thread.start()
    thread.join()
    assert yard.kinds() == ["hello", "start"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_forked_process_still_dies_of_sigterm(yard: Yard) -> None:
    one_epoch(yard_job())

    def be_ended() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    assert in_a_fork(be_ended) == -signal.SIGTERM
    assert not yard_job().should_stop


def test_a_job_that_was_cancelled_dies_of_sigterm(yard: Yard) -> None:
    child = os.fork()
    if not child:
        yard_job().start_epoch()
        yard.stop_file.write_text('{"is_overridden": true}')
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM


def test_a_pool_of_processes_can_be_terminated(yard: Yard) -> None:
    one_epoch(yard_job())
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
    pool.join()


class Store(dict[str, Any]):
    """torch's store: `get` waits, which here means that the test has the ranks in the right order."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def add(self, key: str, amount: int) -> int:
        self[key] = self.get(key, 0) + amount
        return int(self[key])


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """torch.distributed with two ranks; `rank` is the one that this process is now."""
    store = Store()
    torch = SimpleNamespace(rank=0)
    torch.__dict__.update(
        store=store,
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_world_size=lambda: 2,
        get_rank=lambda: torch.rank,
        distributed_c10d=SimpleNamespace(_get_default_store=lambda: store),
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", torch)
    monkeypatch.setattr(agreement, "_turn", 0)
    monkeypatch.setattr(agreement, "LEAVE_SECONDS", 0.0)
    return torch


def both_agree(ranks: SimpleNamespace, first: tuple[bool, bool], second: tuple[bool, bool]) -> list[bool]:
    """What rank 0 and rank 1, each asked or not and able to stop or not, make of it."""
    answers = []
    for ranks.rank, (is_asked, can_stop) in enumerate((first, second)):
        turn = agreement._turn
        answers.append(agreement.agree(is_asked, can_stop))
        agreement._turn = turn + ranks.rank  # two processes count on their own; here they are one
    return answers


def test_all_ranks_stop_when_rank_zero_does(ranks: SimpleNamespace) -> None:
    assert both_agree(ranks, (True, True), (False, True)) == [True, True]


def test_no_rank_stops_when_rank_zero_does_not(ranks: SimpleNamespace) -> None:
    assert both_agree(ranks, (False, True), (True, True)) == [False, False]


def test_a_request_that_only_another_rank_heard_is_taken_up_at_the_next_turn(ranks: SimpleNamespace) -> None:
    both_agree(ranks, (False, True), (True, True))
    assert both_agree(ranks, (False, True), (True, True)) == [True, True]


def test_no_rank_stops_where_rank_zero_has_not_saved(ranks: SimpleNamespace) -> None:
    assert both_agree(ranks, (True, False), (True, True)) == [False, False]


def test_ranks_that_cannot_speak_with_each_other_go_on(
    ranks: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    del ranks.distributed_c10d
    assert agreement.agree(True, True) is False
    assert "the ranks could not agree on whether to stop" in capsys.readouterr().err


def test_of_the_ranks_of_torch_only_the_first_reports(yard: Yard, ranks: SimpleNamespace) -> None:
    ranks.rank = 1
    job = yard_job()
    job.saved()
    assert (job.rank, job.world_size) == (1, 2)
    assert not yard.spool.exists()
