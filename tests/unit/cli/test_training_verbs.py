"""What the command line shows and asks of training jobs."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn, problem
from tests.unit.client.views import a_job_view

from jobyard.cli.commands import tensorboard
from jobyard.cli.logdirs import find_log_dir
from jobyard.cli.output.training import (
    epochs_bar,
    eta_text,
    plotted_metric,
    sparkline,
    training_fields,
    training_progress,
)
from jobyard.errors import UserError
from jobyard.model.job import State
from jobyard.model.training import Epoch
from jobyard.wire.views import SizeView, TrainingView

HALFWAY = TrainingView(
    epochs_done=3,
    epochs_total=6,
    epoch_seconds=242.0,
    step_seconds=0.0123,
    steps_per_epoch=781,
    eta_seconds=726.0,
    eta_low_seconds=700.0,
    eta_high_seconds=800.0,
    estimated_seconds=3600.0,
    size="2 GPUs",
    sizes="1..8 GPUs",
    by_size=(SizeView("1 GPU", 480.0, 0.02), SizeView("2 GPUs", 242.0, 0.0123)),
    gpu_percent=93,
    gpu_memory_mib=12288,
    peak_gpu_memory_mib=14336,
    checkpoint_seconds=2.1,
    restart_seconds=8.0,
    can_yield=True,
    preemptions=2,
    resizes=1,
    metrics={"accuracy": 0.91, "val_loss": 0.5},
    history=tuple(Epoch(n, 240.0 + n, 100, {"val_loss": 4.0 / n}) for n in (1, 2, 3)),
    kind="ab12",
)


def test_show_has_the_numbers_and_a_small_plot(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(training=HALFWAY)))
    shown = {line.split("  ")[0]: line for line in yard("show", "j1").out.splitlines()}
    assert "3 of 6  ██████████░░░░░░░░░░ 50 %" in shown["epochs"]
    assert "12m06s (11m40s to 13m20s)" in shown["eta"]
    assert "4m02s  ▁▅█" in shown["epoch"]
    assert "12.3 ms, 781 in an epoch" in shown["step"]
    assert "0.5  █▃▁" in shown["val_loss"]
    assert "accuracy 0.91" in shown["metrics"]
    assert "2 GPUs, may be 1..8 GPUs" in shown["size"]
    assert "1 GPU: epoch 8m00s, step 20 ms; 2 GPUs: epoch 4m02s, step 12.3 ms" in shown["measured"]
    assert "93 % busy, 12 GiB, at most 14 GiB" in shown["GPU"]
    assert "2.1s to write, 8.0s to restart" in shown["checkpoint"]
    assert "at checkpoints, when asked; 2 preemptions, 1 resize" in shown["stops"]
    assert "1h00m" in shown["estimate"]
    assert json.loads(yard("show", "j1", "-o", "json").out)["training"]["history"][0]["metrics"] == {"val_loss": 4.0}


def test_show_tells_what_is_wrong(yard: Yard, stand_in: StandIn) -> None:
    wrong = TrainingView(
        estimated_seconds=60.0, is_over_estimate=True, idle_seconds=900.0, trouble="line 3\x1b[31m bad"
    )
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(training=wrong)))
    shown = yard("show", "j1").out
    assert "1m00s, and it has taken longer" in shown
    assert "idle GPU" in shown
    assert "for 15m00s" in shown
    assert "line 3 bad" in shown


def test_a_job_that_has_told_nothing_yet_shows_nothing_of_training() -> None:
    assert [name for name, value in training_fields(TrainingView()) if value] == []


def test_ls_shows_how_far_training_is(yard: Yard, stand_in: StandIn) -> None:
    plain, done = a_job_view(id="j2"), a_job_view(State.SUCCEEDED, id="j3", training=HALFWAY)
    stand_in.on("GET /jobs", Said(data=(a_job_view(training=HALFWAY), plain, done)))
    lines = yard("ls").out.splitlines()
    assert "epoch 3/6" in lines[1]
    assert lines[1].split()[-3:] == ["12m06s", "python", "train.py"]
    assert lines[2].split()[3] == "0/1"
    assert lines[3].split()[-3] == "-"


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (HALFWAY, "epoch 3/6"),
        (TrainingView(epochs_done=2), "epoch 2"),
        (TrainingView(percent=41.7), "42 %"),
        (TrainingView(), ""),
    ],
)
def test_progress_is_epochs_or_a_share(view: TrainingView, text: str) -> None:
    assert training_progress(view) == text


def test_an_eta_without_a_range_stands_alone() -> None:
    assert eta_text(TrainingView(eta_seconds=90.0)) == "1m30s"
    assert epochs_bar(TrainingView(percent=120.0)).endswith("120 %")


@pytest.mark.parametrize(
    ("values", "plot"),
    [
        ((), ""),
        ((1.0,), ""),
        ((1.0, 1.0), "▅▅"),
        ((0.0, 7.0), "▁█"),
        ((0.0, float("nan"), 7.0, float("inf")), "▁·█·"),
        (tuple(float(n) for n in range(100)), None),
    ],
)
def test_a_plot_has_a_bar_for_each_value(values: tuple[float, ...], plot: str | None) -> None:
    shown = sparkline(values)
    assert shown == plot if plot is not None else len(shown) == 40


@pytest.mark.parametrize(
    ("names", "chosen"),
    [(("acc", "loss", "val_loss"), "loss"), (("acc", "val_loss"), "val_loss"), (("acc",), "acc"), ((), "")],
)
def test_the_loss_is_what_is_plotted(names: tuple[str, ...], chosen: str) -> None:
    assert plotted_metric(TrainingView(metrics=dict.fromkeys(names, 1.0))) == chosen


# -- stop at a checkpoint


def test_cancel_at_a_checkpoint_says_what_happens(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view()))
    stand_in.on("POST /jobs/j1/yield", Said(data=a_job_view(State.STOPPING)))
    result = yard("cancel", "--checkpoint", "j1")
    assert (result.code, result.out) == (0, "job 1 (train) stops at its next checkpoint and waits again\n")
    assert stand_in.calls("POST /jobs/j1/cancel") == []


def test_a_job_that_cannot_stop_at_a_checkpoint_is_told_and_the_others_are_asked(yard: Yard, stand_in: StandIn) -> None:
    for job in ("j1", "j2"):
        stand_in.on(f"GET /jobs/{job}", Said(data=a_job_view(id=job)))
    stand_in.on("POST /jobs/j1/yield", problem(400, "bad_request", "job j1 has not said that it stops at a checkpoint"))
    stand_in.on("POST /jobs/j2/yield", Said(data=a_job_view(State.STOPPING, id="j2")))
    result = yard("cancel", "--checkpoint", "j1", "j2")
    assert (result.code, result.err) == (2, "yard: job j1 has not said that it stops at a checkpoint\n")
    assert "job 2 (train) stops" in result.out


@pytest.mark.parametrize("words", [("--force", "j1"), ("--all",)])
def test_a_checkpoint_is_of_whole_jobs(words: tuple[str, ...], yard: Yard) -> None:
    result = yard("cancel", "--checkpoint", *words)
    assert result.code == 2
    assert f"leave {words[0]} out" in result.err


@pytest.mark.parametrize("words", [("--task", "0", "j1"), ("j1/0",)])
def test_a_checkpoint_is_of_no_single_task(words: tuple[str, ...], yard: Yard) -> None:
    result = yard("cancel", "--checkpoint", *words)
    assert result.code == 2
    assert "leave the tasks out" in result.err


# -- scale


@pytest.mark.parametrize(
    ("words", "body", "says"),
    [
        (("4",), {"size": 4}, "gets 4 GPUs, from"),
        (("auto",), {"auto": True}, "gets what the scheduler chooses"),
        (("--gpus", "2"), {"gpus": 2}, "gets 2 GPUs, from"),
        (("--workers", "3", "--gpus", "2"), {"workers": 3, "gpus": 2}, "gets 2 GPUs and 3 workers"),
    ],
)
def test_scale_asks_for_a_size(
    words: tuple[str, ...], body: dict[str, object], says: str, yard: Yard, stand_in: StandIn
) -> None:
    stand_in.on("POST /jobs/j1/scale", Said(data=a_job_view()))
    result = yard("scale", "j1", *words)
    assert result.code == 0, result.err
    assert says in result.out
    assert stand_in.calls("POST /jobs/j1/scale")[0].body == body


@pytest.mark.parametrize("words", [(), ("4", "--gpus", "4"), ("0",), ("many",), ("1..4",)])
def test_a_size_that_is_none_gets_one_sentence(words: tuple[str, ...], yard: Yard) -> None:
    result = yard("scale", "j1", *words)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert result.err.startswith("yard: scale: ")


# -- TensorBoard


def test_the_log_dir_of_the_submitter_counts(tmp_path: Path) -> None:
    view = a_job_view(workdir=str(tmp_path), training=TrainingView(log_dir="logs/a"))
    with pytest.raises(UserError, match="nothing in its log dir yet"):
        find_log_dir(view, None)
    home = tmp_path / "job_results" / "j1" / "logs" / "a"
    home.mkdir(parents=True)
    assert find_log_dir(view, None) == str(home)
    (tmp_path / "logs" / "a").mkdir(parents=True)
    assert find_log_dir(view, None) == str(tmp_path / "logs" / "a")


def test_logs_are_found_where_frameworks_put_them(tmp_path: Path) -> None:
    view = a_job_view(workdir=str(tmp_path), env={"YARD_SNAPSHOTS_DIR": str(tmp_path / "snap")})
    files = tmp_path / "agent"
    with pytest.raises(UserError, match="no logs for TensorBoard here yet") as caught:
        find_log_dir(view, files)
    assert "--log-dir DIR" in str(caught.value)
    (tmp_path / "runs").mkdir()
    assert find_log_dir(view, files) == str(tmp_path / "runs")
    events = tmp_path / "agent" / "jobs" / "j1" / "checkpoint" / "0" / "tb" / "events.out.tfevents.1"
    events.parent.mkdir(parents=True)
    events.touch()
    assert find_log_dir(view, files) == str(events.parent)
    lightning = tmp_path / "snap" / "j1" / "lightning_logs"
    (lightning / "version_0").mkdir(parents=True)
    assert find_log_dir(view, files) == str(lightning)


def a_tensorboard(directory: Path, text: str) -> None:
    """A program of that name on a path of its own."""
    program = directory / "tensorboard"
    program.write_text(f"#!{sys.executable}\nimport sys\n{text}\n")
    program.chmod(0o755)


def test_tensorboard_is_started_on_the_logs(
    yard: Yard, stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    a_tensorboard(tmp_path, f"open({str(tmp_path / 'words')!r}, 'w').write(' '.join(sys.argv[1:]))")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(workdir=str(tmp_path))))
    result = yard("tensorboard", "j1")
    assert result.code == 0, result.err
    address = result.out.strip()
    port = address.rsplit(":", 1)[1].rstrip("/")
    assert (tmp_path / "words").read_text() == f"--logdir={tmp_path}/runs --host 127.0.0.1 --port {port}"
    a_tensorboard(tmp_path, "sys.exit(3)")
    failed = yard("tensorboard", "j1", "-o", "json")
    assert (failed.code, json.loads(failed.out)["log_dir"]) == (1, f"{tmp_path}/runs")
    assert "ended with code 3" in failed.err


def test_ctrl_c_while_tensorboard_begins_is_an_end_like_any_other(
    yard: Yard, stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(words: list[str]) -> None:
        raise KeyboardInterrupt

    (tmp_path / "runs").mkdir()
    a_tensorboard(tmp_path, "")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("subprocess.Popen", interrupted)
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(workdir=str(tmp_path))))
    assert yard("tensorboard", "j1").code == 0


def test_a_port_that_is_taken_is_told(
    yard: Yard, stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    a_tensorboard(tmp_path, "")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(workdir=str(tmp_path))))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = yard("tensorboard", "j1", "--port", str(port))
    assert result.code == 2
    assert f"--port: {port} is taken" in result.err


def test_without_tensorboard_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="tensorboard is not installed in this environment; `pip install tensorboard`"):
        tensorboard.tensorboard_words("/logs")


def test_a_tensorboard_that_is_only_a_module_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tensorboard.tensorboard_words("/logs") == [str(python), "-m", "tensorboard.main"]


def test_a_view_without_history_still_has_its_newest_numbers() -> None:
    shown = dict(training_fields(replace(HALFWAY, history=())))
    assert (shown["epoch"], shown["val_loss"]) == ("4m02s", "0.5")
