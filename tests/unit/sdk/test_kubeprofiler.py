"""Does a script that was written for KubeProfiler find all that it knows, and stop only where it may?"""

from __future__ import annotations

import copy
import os
import pickle
from datetime import datetime
from pathlib import Path

import pytest

from kubernetesdlprofile import kubeprofiler, paths
from kubernetesdlprofile.kubeprofiler import KubeProfiler
from tests.unit.sdk.conftest import Clock, Yard, leaves

TABLE = {
    "JOB_UUID": ("JOBID", "abc", "abc"),
    "HEARTBEAT_FREQ": ("PROFILE_EACH", "7", 7),
    "NODE_RANK": ("RANK", "1", 1),
    "NODELIST": ("NODE_LIST", "a,b", "a,b"),
    "NUM_GPUS": ("NUM_GPUS", "2", 2),
    "NUM_NODES": ("NUM_NODES", "3", 3),
    "JOB_RESTARTED": ("RESTARTED", "TRUE", True),
    "BATCH_SIZE": ("BATCH_SIZE", "10", 10),
    "EPOCHS_TO_BE_DONE": ("EPOCHS", "6", 6),
    "EPOCHS_DONE": ("EPOCHS_DONE", "4", 4),
    "TRAINING_SET_SIZE": ("TRAINING_SET_SIZE", "1230", 1230),
    "LOCAL_RANK": ("LOCAL_RANK", "2", 2),
}
DEFAULTS = {
    "JOBID": "local",
    "PROFILE_EACH": 100,
    "RANK": 0,
    "NODE_LIST": "localhost",
    "NUM_GPUS": 1,
    "NUM_NODES": 1,
    "RESTARTED": False,
    "BATCH_SIZE": 32,
    "EPOCHS": 1,
    "EPOCHS_DONE": 0,
    "LOCAL_RANK": -1,
}


def test_every_variable_is_an_attribute(yard: Yard) -> None:
    yard.set(**{name: text for name, (_, text, _) in TABLE.items()})
    profiler = KubeProfiler()
    assert {name: getattr(profiler, name) for name, _, _ in TABLE.values()} == {
        n: value for n, _, value in TABLE.values()
    }
    assert (profiler.iterationPerEpoch, profiler.maxIterations) == (20, 120)
    assert (profiler.epoch, profiler.iterations, profiler.mean_iteration_duration) == (4, 0, 0)
    assert not profiler.has_to_stop


def test_every_attribute_has_a_default(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profiler = KubeProfiler()
    assert {name: getattr(profiler, name) for name in DEFAULTS} == DEFAULTS
    assert profiler.TRAINING_SET_SIZE > 0
    assert (profiler.last_time, profiler.start_epoch_time, profiler.end_epoch_time) == (None, None, None)
    assert profiler.root_dir == str(tmp_path / "snapshots" / "local")
    assert profiler.ckpt_path == str(tmp_path / "snapshots" / "local" / "tf_ckpt")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", [name for name, (_, text, _) in TABLE.items() if text.isdigit()])
def test_a_wrong_value_is_told_and_replaced(yard: Yard, capsys: pytest.CaptureFixture[str], name: str) -> None:
    yard.set(**{name: "x"})
    profiler = KubeProfiler()
    assert isinstance(getattr(profiler, TABLE[name][0]), int)
    assert capsys.readouterr().err.startswith(f"jobyard: {name} is 'x', which is not a number")


@pytest.mark.parametrize(("text", "is_restarted"), [("TRUE", True), ("FALSE", False), ("false", False), ("1", True)])
def test_restarted_is_what_the_yard_says(yard: Yard, text: str, is_restarted: bool) -> None:
    yard.set(JOB_RESTARTED=text)
    assert KubeProfiler().RESTARTED is is_restarted


def test_the_constructor_takes_the_hosts_of_the_original() -> None:
    profiler = kubeprofiler.KubeProfiler(job_manager_hostname="a", db_hostname="b")
    assert (profiler.jmHostname, profiler.dbHostname) == ("a", "b")


def test_a_job_without_gpus_has_iterations_too(yard: Yard) -> None:
    yard.set(NUM_GPUS=0, BATCH_SIZE=10, TRAINING_SET_SIZE=100)
    assert KubeProfiler().iterationPerEpoch == 10


def test_snapshots_are_in_the_directory_that_the_submitter_named(yard: Yard, tmp_path: Path) -> None:
    yard.set(YARD_SNAPSHOTS_DIR=tmp_path / "s", YARD_CHECKPOINT_DIR=tmp_path / "c", JOB_UUID="j")
    profiler = KubeProfiler()
    assert profiler.root_dir == str(tmp_path / "s" / "j")
    assert os.path.isdir(profiler.root_dir)


def test_snapshots_are_in_the_mount_of_a_container(yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard.set(YARD_CHECKPOINT_DIR=tmp_path / "c", JOB_UUID="j", container="podman")
    (tmp_path / "mount").mkdir()
    monkeypatch.setattr(paths, "SNAPSHOTS", str(tmp_path / "mount"))
    assert KubeProfiler().root_dir == str(tmp_path / "mount" / "j")


def test_snapshots_are_else_in_the_yards_checkpoint_dir(yard: Yard, tmp_path: Path) -> None:
    yard.set(YARD_CHECKPOINT_DIR=tmp_path / "c", JOB_UUID="j")
    assert KubeProfiler().root_dir == str(tmp_path / "c")


def test_the_newest_checkpoint_is_of_the_highest_version_that_has_one(yard: Yard, tmp_path: Path) -> None:
    yard.set(YARD_CHECKPOINT_DIR=tmp_path)
    files = ["version_2/checkpoints/a.ckpt", "version_10/checkpoints/new.ckpt", "version_10/checkpoints/old.ckpt"]
    for age, name in enumerate([*files, "version_11/hparams.yaml", "version_x/checkpoints/no.ckpt"]):
        path = tmp_path / "lightning_logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1000 - age, 1000 - age))
    assert KubeProfiler().ckpt_path == str(tmp_path / "lightning_logs" / files[1])


def test_the_newest_checkpoint_may_be_one_of_tensorflow(yard: Yard, tmp_path: Path) -> None:
    yard.set(YARD_CHECKPOINT_DIR=tmp_path)
    (tmp_path / "tf_ckpts.index").touch()
    assert KubeProfiler().ckpt_path == str(tmp_path / "tf_ckpts")


@pytest.fixture
def profiler(yard: Yard) -> KubeProfiler:
    yard.set(EPOCHS_TO_BE_DONE=5, EPOCHS_DONE=1, JOB_UUID="j", NODE_RANK=0)
    return KubeProfiler()


def test_the_seeds_loop_reports(profiler: KubeProfiler, yard: Yard, clock: Clock) -> None:
    for _ in range(profiler.EPOCHS - profiler.EPOCHS_DONE):
        profiler.start_epoch()
        for _ in range(3):
            clock.now += 0.5
            profiler.measure()
        profiler.end_epoch()
    profiler.end()
    assert yard.records("hello")[0].items() >= {"epochs": 5, "done": 1}.items()
    assert yard.done("epoch") == [2, 3, 4]  # the last one is told at the end of the process
    assert (profiler.epoch, profiler.iterations, profiler.mean_iteration_duration) == (5, 12, 0.5)
    assert isinstance(profiler.last_time, datetime)


def test_it_stops_when_an_epoch_is_to_begin(profiler: KubeProfiler, yard: Yard) -> None:
    profiler.start_epoch()
    profiler.measure()
    yard.ask_to_stop()
    assert not leaves(profiler.measure)
    assert not leaves(profiler.end_epoch)
    assert profiler.epoch == 2
    assert leaves(profiler.start_epoch)
    assert (yard.done("epoch"), yard.done("yield")) == ([2], [2])


def test_it_stops_in_the_first_step_of_an_epoch_but_in_no_other(
    profiler: KubeProfiler, yard: Yard, clock: Clock
) -> None:
    profiler.start_epoch()
    profiler.measure()
    profiler.end_epoch()
    profiler.start_epoch()
    yard.ask_to_stop()
    assert leaves(profiler.measure)
    assert yard.done("yield") == [2]


def test_it_does_not_stop_in_a_later_step(profiler: KubeProfiler, yard: Yard, clock: Clock) -> None:
    profiler.start_epoch()
    profiler.measure()
    yard.ask_to_stop()
    for _ in range(5):
        clock.now += 2
        assert not leaves(profiler.measure)
    assert profiler.has_to_stop


def test_it_finishes_the_last_epoch(profiler: KubeProfiler, yard: Yard) -> None:
    for _ in range(3):
        profiler.start_epoch()
        profiler.measure()
        profiler.end_epoch()
    yard.ask_to_stop()
    for action in (profiler.start_epoch, profiler.measure, profiler.measure, profiler.end_epoch, profiler.end):
        assert not leaves(action)
    assert not profiler.has_to_stop
    assert yard.done("yield") == []


def test_a_script_that_never_starts_an_epoch_stops_in_the_first_step_after_one(
    profiler: KubeProfiler, yard: Yard
) -> None:
    profiler.measure()
    profiler.measure()
    yard.ask_to_stop()
    profiler.end_epoch()
    assert yard.done("epoch") == []
    assert leaves(profiler.measure)
    assert yard.done("yield") == [2]


@pytest.mark.parametrize("variables", [{"NODE_RANK": 1}, {"LOCAL_RANK": 1}])
def test_only_the_first_process_reports(yard: Yard, variables: dict[str, int]) -> None:
    yard.set(**variables)
    profiler = KubeProfiler()
    profiler.start_epoch()
    profiler.measure()
    assert not yard.spool.exists()


def test_a_model_that_holds_it_can_be_copied_and_saved(profiler: KubeProfiler) -> None:
    profiler.start_epoch()
    assert copy.deepcopy(profiler).JOBID == pickle.loads(pickle.dumps(profiler)).JOBID == "j"
