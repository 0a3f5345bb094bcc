"""What does a training script say, and what does it cost to say it?"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobyard.agent_protocol.progress_reducer import ProgressReducer
from jobyard.sdk import yard_job
from jobyard.sdk.job import HEARTBEAT_STEPS
from jobyard.sdk.reporter import SILENT_SECONDS
from tests.unit.sdk.conftest import Clock, Yard, in_a_fork, one_epoch


def test_a_job_says_hello_and_then_tells_of_each_epoch_and_each_checkpoint(yard: Yard) -> None:
    yard.set(YARD_EPOCHS=2)
    job = yard_job()
    for _ in job.epochs():
        job.step(loss=0.5)
        job.saved(seconds=1.5)
    hello, start = yard.records("hello")[0], yard.records("start")[0]
    assert hello.items() >= {"epochs": 2, "done": 0, "yields": True, "resumed": False}.items()
    assert start["at"] >= hello["at"]
    assert yard.done("epoch") == [1, 2]
    assert yard.done("saved") == [0, 1, 1, 2]
    assert yard.records("epoch")[0]["metrics"] == {"loss": 0.5}
    assert yard.records("saved")[0]["seconds"] == 1.5


def test_a_job_that_only_exists_says_nothing(yard: Yard) -> None:
    job = yard_job()
    assert not job.should_stop
    assert job.checkpoint_dir.is_dir()
    assert not yard.spool.exists()


def test_without_a_yard_the_script_simply_trains(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = yard_job()
    seen = []
    for epoch in job.epochs(3):
        job.step(loss=1)
        seen.append(epoch)
        (job.checkpoint_dir / "state").write_text("")
        job.saved()
    assert seen == [0, 1, 2]
    assert (job.resumed, job.should_stop, job.rank, job.world_size, job.epochs_done) == (False, False, 0, 1, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]
    assert capfd.readouterr() == ("", "")


def test_a_resumed_job_goes_on_where_it_was(yard: Yard) -> None:
    yard.set(YARD_EPOCHS=5, YARD_EPOCHS_DONE=3, YARD_RESUMED=1)
    job = yard_job()
    assert job.resumed
    assert list(job.epochs()) == [3, 4]
    assert yard.records("hello")[0]["done"] == 3
    assert yard.done("epoch") == [4, 5]


def test_the_script_knows_better_how_many_epochs_there_are_and_its_checkpoint_has(yard: Yard) -> None:
    yard.set(YARD_EPOCHS=5, YARD_EPOCHS_DONE=3)
    assert list(yard_job().epochs(4, start=2)) == [2, 3]
    assert yard.records("hello")[-1].items() >= {"epochs": 4, "done": 2}.items()


def test_more_epochs_done_than_asked_is_told_and_nothing_is_trained(
    yard: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    yard.set(YARD_EPOCHS=3, YARD_EPOCHS_DONE=7)
    assert list(yard_job().epochs()) == []
    told = "jobyard: 7 epochs are done, but only 3 were asked for; nothing is left to train.\n"
    assert capsys.readouterr().err == told


def test_an_epoch_that_the_loop_leaves_does_not_count(yard: Yard) -> None:
    job = yard_job()
    for _ in job.epochs(3):
        job.measure()
        break
    assert job.epochs_done == 0
    assert yard.done("epoch") == []


def test_an_epoch_that_the_script_ends_itself_counts_once(yard: Yard) -> None:
    job = yard_job()
    for _ in job.epochs(2):
        job.start_epoch()
        job.measure()
        job.end_epoch()
        job.end_epoch()
        job.saved()
    assert yard.done("epoch") == [1, 2]
    assert yard.done("saved") == [1, 2]


def test_steps_are_reported_every_heartbeat_but_not_more_than_once_a_second(yard: Yard, clock: Clock) -> None:
    yard.set(YARD_HEARTBEAT=10)
    job = yard_job()
    job.start_epoch()
    for _ in range(100):  # 100 steps in a second
        clock.now += 0.01
        job.measure()
    assert yard.records("steps") == []
    clock.now += 0.02
    job.measure()
    assert [record["steps"] for record in yard.records("steps")] == [101]
    clock.now += 2
    job.measure()
    assert len(yard.records("steps")) == 1  # only one step since


def test_slow_steps_are_reported_however_few_they_are(yard: Yard, clock: Clock) -> None:
    job = yard_job()
    job.start_epoch()
    for _ in range(3):
        clock.now += SILENT_SECONDS
        job.measure()
    assert HEARTBEAT_STEPS > 3
    assert [record["steps"] for record in yard.records("steps")] == [1, 2, 3]
    assert yard.records("steps")[-1]["step_seconds"] == SILENT_SECONDS


def test_what_happens_between_epochs_is_no_part_of_a_step(yard: Yard, clock: Clock) -> None:
    job = yard_job()
    for _ in range(2):
        job.start_epoch()
        for _ in range(4):
            clock.now += 0.5
            job.measure()
        clock.now += 10  # validation
        job.end_epoch()
        clock.now += 100  # saving
    assert job.step_seconds == 0.5
    epoch = yard.records("steps")[-1]
    assert (epoch["steps"], epoch["step_seconds"]) == (8, 0.5)
    job.start_epoch()
    assert yard.records("epoch")[-1].items() >= {"seconds": 12.0, "steps": 4, "step_seconds": 0.5}.items()


def test_a_script_that_only_measures_has_its_first_step_as_the_beginning(yard: Yard, clock: Clock) -> None:
    job = yard_job()
    for _ in range(3):
        clock.now += 2
        job.measure()
    job.end_epoch()
    job.measure()
    assert yard.records("epoch")[0].items() >= {"done": 1, "steps": 3, "step_seconds": 2.0}.items()


class Tensor:
    """Of one element, with a graph behind it."""

    def __init__(self, value: float, graph: object = None) -> None:
        self.value, self.graph = value, graph

    def detach(self) -> Tensor:
        return Tensor(self.value)

    def __float__(self) -> float:
        return self.value


def test_metrics_are_numbers_or_become_them(yard: Yard, capsys: pytest.CaptureFixture[str]) -> None:
    job = yard_job()
    job.start_epoch()
    job.step(loss=Tensor(0.25, graph=object()), lr=1, name="resnet", gap=float("nan"), size=[1, 2])
    job.report(accuracy=True)
    job.end_epoch()
    assert yard.records("steps")[0]["metrics"] == {"loss": 0.25, "lr": 1.0, "accuracy": 1.0}
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "jobyard: the metric 'name' is not a number and is not reported."
    assert len(told) == 2
    assert job._metrics["loss"].graph is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "variables", [{"RANK": 1}, {"RANK": 0, "LOCAL_RANK": 1}, {"LOCAL_RANK": 3}, {"NODE_RANK": 1, "LOCAL_RANK": 0}]
)
def test_only_rank_zero_reports(yard: Yard, variables: dict[str, int]) -> None:
    yard.set(**variables)
    one_epoch(yard_job())
    yard_job().saved()
    assert not yard.spool.exists()
    assert yard_job().rank > 0


@pytest.mark.parametrize("variables", [{}, {"RANK": 0, "LOCAL_RANK": 0, "NODE_RANK": 0}, {"LOCAL_RANK": -1}])
def test_rank_zero_reports(yard: Yard, variables: dict[str, int]) -> None:
    yard.set(**variables)
    one_epoch(yard_job())
    assert yard.kinds() == ["hello", "start"]


def test_a_forked_copy_of_the_job_says_nothing(yard: Yard) -> None:
    job = yard_job()
    one_epoch(job)
    before = yard.spool.read_bytes()

    def work_of_a_data_loader() -> None:
        job.saved()
        job._at_exit()
        one_epoch(job)
        assert yard_job() is not job

    assert in_a_fork(work_of_a_data_loader) == 0
    assert yard.spool.read_bytes() == before


def test_a_job_can_be_pickled_with_the_model_that_holds_it(yard: Yard) -> None:
    job = yard_job()
    one_epoch(job)
    assert pickle.loads(pickle.dumps(job)).epochs_done == 1


def test_there_is_one_job_in_a_process() -> None:
    assert yard_job() is yard_job(tells_saves=True)


@pytest.mark.parametrize("name", ["YARD_EPOCHS", "YARD_EPOCHS_DONE", "YARD_HEARTBEAT", "RANK", "WORLD_SIZE"])
@pytest.mark.parametrize("value", ["many", "-3", "1.5"])
def test_a_wrong_value_is_told_and_taken_as_missing(
    yard: Yard, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    yard.set(**{name: value})
    job = yard_job()
    assert list(job.epochs(2)) == [0, 1]
    assert (job.rank, job.world_size) == (0, 1)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith(f"jobyard: {name} is '{value}', which is not a number of at least ")


def test_a_spool_that_cannot_be_written_is_told_once_and_training_goes_on(
    yard: Yard, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    yard.set(YARD_SPOOL=tmp_path / "no" / "spool")
    assert list(yard_job().epochs(3)) == [0, 1, 2]
    told = f"jobyard: reports to the yard cannot be written to {tmp_path / 'no' / 'spool'} (No such file or directory);"
    assert capsys.readouterr().err == told + " training goes on.\n"


def test_what_a_full_disk_refused_is_said_when_there_is_room_again(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = os.write
    room = 25

    def write_on_a_full_disk(descriptor: int, data: bytes) -> int:
        nonlocal room
        written = write(descriptor, data[:room])
        room -= written
        return written

    job = yard_job()
    monkeypatch.setattr("os.write", write_on_a_full_disk)
    one_epoch(job)
    room = 1 << 20
    job.saved()
    torn, *lines = [line for line in yard.spool.read_text().split("\n") if line]
    with pytest.raises(json.JSONDecodeError):
        json.loads(torn)
    assert [json.loads(line)["t"] for line in lines] == ["hello", "start", "steps", "epoch", "saved"]
    assert "(only a part was written); training goes on." in capsys.readouterr().err


def test_each_batch_is_one_write(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    def write(descriptor: int, data: bytes) -> int:
        written.append(data)
        return len(data)

    monkeypatch.setattr("os.write", write)
    job = yard_job()
    one_epoch(job)
    job.saved()
    assert [[json.loads(line)["t"] for line in batch.splitlines()] for batch in written] == [
        ["hello"],
        ["start"],
        ["steps"],
        ["epoch", "saved"],
    ]


def test_a_measured_step_touches_no_file(yard: Yard, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    job = yard_job()
    job.start_epoch()
    job.measure()

    def refuse(*_: object) -> None:
        raise AssertionError("a step must not do this")

    for name in ("open", "write", "stat", "getpid"):
        monkeypatch.setattr(f"os.{name}", refuse)
    for _ in range(1000):
        job.measure()
    monkeypatch.undo()


def test_the_checkpoint_dir_is_the_yards_and_is_made(yard: Yard, tmp_path: Path) -> None:
    yard.set(YARD_CHECKPOINT_DIR=tmp_path / "a" / "b")
    assert yard_job().checkpoint_dir == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()


def test_a_checkpoint_dir_that_cannot_be_had_is_told_once(
    yard: Yard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    yard.set(YARD_CHECKPOINT_DIR=tmp_path / "file" / "x")
    for _ in yard_job().epochs(2):
        assert yard_job().checkpoint_dir == tmp_path / "file" / "x"
    told = f"jobyard: checkpoints cannot be written to {tmp_path / 'file' / 'x'} (Not a directory); training goes on, "
    assert capsys.readouterr().err == told + "but could not be resumed.\n"


def test_a_checkpoint_dir_that_is_gone_is_told_to_a_job_that_resumes(
    yard: Yard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    yard.set(YARD_CHECKPOINT_DIR=tmp_path / "gone", YARD_RESUMED=1)
    assert yard_job().checkpoint_dir.is_dir()
    assert f"its checkpoint directory {tmp_path / 'gone'} is missing" in capsys.readouterr().err


def run_script(yard: Yard, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


LAST_EPOCH = "from jobyard.sdk import yard_job\njob = yard_job()\njob.start_epoch(); job.measure(); job.end_epoch()\n"


@pytest.mark.parametrize("ending", ["", "1 / 0", "raise SystemExit(3)"])
def test_the_last_epoch_is_told_at_the_end_as_one_that_counts_if_the_script_ends_well(yard: Yard, ending: str) -> None:
    assert (run_script(yard, LAST_EPOCH + ending).returncode == 0) == (not ending)
    assert yard.kinds() == ["hello", "start", "ended"]
    reducer = ProgressReducer()
    reducer.feed(yard.spool.read_bytes())
    assert reducer.epochs_done == 0
    reducer.confirm()  # as the agent does after exit code 0
    assert reducer.epochs_done == 1
    assert reducer.progress()["history"][0]["steps"] == 1  # type: ignore[index]


def test_the_agent_reads_every_report(yard: Yard) -> None:
    yard.set(YARD_EPOCHS=3)
    started_at = time.time() - 5
    job = yard_job()
    for _ in job.epochs():
        job.step(loss=0.5)
        job.saved(seconds=0.25)
    reducer = ProgressReducer(started_at)
    reducer.feed(yard.spool.read_bytes())
    progress = reducer.progress()
    assert progress is not None
    assert "trouble" not in progress
    assert progress.items() >= {"epochs_done": 3, "epochs_total": 3, "steps": 3, "can_yield": True}.items()
    assert progress["metrics"] == {"loss": 0.5}
    assert [epoch["number"] for epoch in progress["history"]] == [1, 2, 3]
    assert progress["restart_seconds"] == pytest.approx(yard.records("start")[0]["at"] - started_at, abs=0.001)
    assert progress["restart_seconds"] >= 5
    assert progress["checkpoint_seconds"] == 0.25


def test_half_a_checkpoint_of_the_trainer_is_not_resumed_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))
    monkeypatch.delitem(sys.modules, "jobyard.sdk.huggingface", raising=False)
    last_complete = importlib.import_module("jobyard.sdk.huggingface").last_complete_checkpoint
    monkeypatch.delitem(sys.modules, "jobyard.sdk.huggingface")
    assert last_complete(str(tmp_path / "none")) is None
    for name in ("checkpoint-96", "checkpoint-128", "checkpoint-160", "checkpoint-of-mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
    assert last_complete(str(tmp_path)) is None
    for name in ("checkpoint-96", "checkpoint-128", "checkpoint-of-mine"):
        (tmp_path / name / "trainer_state.json").touch()
    assert last_complete(str(tmp_path)) == str(tmp_path / "checkpoint-128")


@pytest.mark.parametrize(("planned", "told"), [(3, 3), (sys.maxsize, None), (0, None)])
def test_the_trainer_of_a_dataset_without_a_length_knows_no_end(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, planned: int, told: int | None
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))
    monkeypatch.delitem(sys.modules, "jobyard.sdk.huggingface", raising=False)
    callback = importlib.import_module("jobyard.sdk.huggingface").YardCallback()
    monkeypatch.delitem(sys.modules, "jobyard.sdk.huggingface")
    callback.on_train_begin(None, SimpleNamespace(num_train_epochs=planned, epoch=0), None)
    assert yard.records("hello")[0]["epochs"] == told
