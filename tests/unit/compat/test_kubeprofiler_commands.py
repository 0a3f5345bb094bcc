"""`run-scheduler` and its kin: which job a call is, and what is said."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.stand_in import Said, StandIn
from tests.unit.client.views import a_job_view

from jobyard.compat.kubeprofiler import cancel_job, entry, get_logs, run_scheduler, state
from jobyard.compat.kubeprofiler.directories import Directories, command_of
from jobyard.compat.kubeprofiler.flags import FALSE, TRUE, parse_bool, parse_ports, parse_run
from jobyard.compat.kubeprofiler.job import spec_of
from jobyard.console import guarded
from jobyard.errors import UserError
from jobyard.model.container import PortMapping
from jobyard.model.job import JobSpec, State
from jobyard.model.resources import Resources
from jobyard.model.training import ALL, Elastic, Training
from jobyard.wire.views import TrainingView

EVERY_FLAG = """--image_name repo/img:1 --script_path /custom/train.py --custom_dir custom --snapshots_dir snaps
    --batch_size 64 --training_set_size 50000 --max_epochs 10 --is_single_gpu FALSE --disable_gpu_sharing No
    --estimated_memory 4096 --port_mapping 8080:80,9090:90 --est_nhours 2.5 --priority 5 cifar"""


@pytest.fixture
def here(home: Path) -> Path:
    """Where the commands are called: with a script, snapshots, and datasets in the home directory."""
    here = home / "here"
    for directory in (here / "custom", here / "snaps", home / "datasets"):
        directory.mkdir()
    (here / "custom" / "train.py").touch()
    return here


def spec(here: Path, words: str) -> JobSpec:
    environ = {"HOME": str(here.parent), "PATH": os.environ["PATH"]}
    return spec_of(parse_run(words.split()), str(here), environ, "ada")


def test_every_flag_arrives_in_the_job(here: Path) -> None:
    job = spec(here, EVERY_FLAG)
    (group,) = job.groups
    assert (job.name, job.submitter.user, job.submitter.source, job.container.image, job.policy.priority) == (
        "cifar",
        "ada",
        "kubeprofiler",
        "repo/img:1",
        5,
    )
    assert group.command.argv[0] in ("python", "python3")
    assert group.command.argv[1:] == (str(here / "custom" / "train.py"),)
    assert group.resources == Resources(cpu_millis=0, gpus=1, gpu_memory_mib=4096)
    assert job.elastic == Elastic(gpus=(1, ALL))
    assert job.training == Training(epochs=10, batch_size=64, training_set_size=50_000, estimated_seconds=9000.0)
    assert job.env == {
        "YARD_CUSTOM_DIR": str(here / "custom"),
        "YARD_SNAPSHOTS_DIR": str(here / "snaps"),
        "YARD_DATA_DIR": str(here.parent / "datasets"),
    }
    assert (job.workdir, job.on, job.staging.no_copy) == (str(here / "custom"), "local", False)


def test_what_is_different_without_a_container_is_said(here: Path) -> None:
    image, directories, ports = spec(here, EVERY_FLAG).submitter.notes
    assert "image 'repo/img:1' is kept and not used" in image
    assert f"/custom is {here}/custom, /snapshots is {here}/snaps" in directories
    assert "YARD_CUSTOM_DIR, YARD_SNAPSHOTS_DIR, YARD_DATA_DIR" in directories
    assert "--port_mapping is not honoured without a container: what listens on 80, 90" in ports


def test_one_gpu_alone_is_what_the_least_flags_mean(here: Path) -> None:
    job = spec(here, "--script_path custom/train.py plain")
    assert job.groups[0].resources == Resources(cpu_millis=0, gpus=1)
    assert (job.elastic, job.training, job.workdir) == (None, Training(), str(here))
    assert "without --estimated_memory the rest of a GPU cannot be shared" in job.submitter.notes[-1]


def test_alone_on_the_device_means_a_whole_gpu(here: Path) -> None:
    job = spec(here, "--script_path custom/train.py --disable_gpu_sharing true --estimated_memory 4096 alone")
    assert not job.groups[0].resources.shares_gpus
    assert not any("--estimated_memory" in note for note in job.submitter.notes)


def test_machines_that_share_the_directories_get_nothing_copied(here: Path) -> None:
    job = spec(here, "--script_path custom/train.py --on gpu1,gpu2 far")
    assert (job.on, job.staging.no_copy) == ("gpu1,gpu2", True)


def test_paths_of_arguments_are_translated_too() -> None:
    directories = Directories("/home/a/c", "/home/a/s", "/home/a/datasets")
    with pytest.raises(UserError, match=r"looked for /home/a/c/train\.py"):
        command_of("/custom/train.py", directories, "/")
    words = command_of("/bin/sh /data/x --out=/snapshots/y --n=3 /custom /customary", directories, "/")
    assert words[1:] == ("/home/a/datasets/x", "--out=/home/a/s/y", "--n=3", "/home/a/c", "/customary")


def test_a_script_with_a_blank_in_its_name_is_one_word(here: Path) -> None:
    (here / "custom" / "my train.py").touch()
    assert command_of("/custom/my train.py", Directories(str(here / "custom")), "/") == (f"{here}/custom/my train.py",)


@pytest.mark.parametrize("text", [*sorted(TRUE), "TRUE", "True"])
def test_booleans_are_values_in_the_usual_spellings(text: str) -> None:
    assert parse_bool(text, "--is_single_gpu") is True


@pytest.mark.parametrize("text", [*sorted(FALSE), "FALSE"])
def test_no_is_a_value_too(text: str) -> None:
    assert parse_bool(text, "--is_single_gpu") is False


def test_ports_are_pairs() -> None:
    assert parse_ports("8080:80, 9090:90,") == ((8080, 80), (9090, 90))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "job_name, --script_path; see `run-scheduler --help`"),
        ("name", "--script_path"),
        ("--script_path x", "job_name"),
        ("--script_path custom/train.py --nonsense 1 name", "unrecognized arguments: --nonsense"),
        (
            "--script_path custom/train.py --is_single_gpu maybe name",
            "--is_single_gpu: 'maybe' is neither true nor false",
        ),
        ("--script_path custom/train.py --is_single_gpu", "expected one argument"),
        ("--script_path custom/train.py --batch_size 0 name", "--batch_size: '0' is not a whole number from 1"),
        ("--script_path custom/train.py --max_epochs ten name", "--max_epochs: 'ten' is not a whole number"),
        ("--script_path custom/train.py --training_set_size 1.5 name", "--training_set_size: '1.5'"),
        (
            "--script_path custom/train.py --estimated_memory 4GB name",
            "--estimated_memory: '4GB' is not a whole number of MiB",
        ),
        ("--script_path custom/train.py --est_nhours 1 name", "--est_nhours: 1 must be more than 1"),
        ("--script_path custom/train.py --est_nhours nan name", "--est_nhours: nan must be more than 1"),
        ("--script_path custom/train.py --est_nhours soon name", "--est_nhours: 'soon' is not a number"),
        ("--script_path custom/train.py --port_mapping 80 name", "--port_mapping: '80' is not a pair of ports"),
        ("--script_path custom/train.py --port_mapping 80:99999 name", "--port_mapping: '80:99999'"),
        ("--script_path custom/train.py --priority high name", "--priority: 'high' is not a whole number"),
        ("--script_path custom/train.py a/b", "job_name: 'a/b' is not a name"),
        (
            "--script_path /custom/train.py name",
            "below /custom, and nothing says which directory that is; add --custom_dir",
        ),
        ("--script_path custom --custom_dir . name", "there is no file 'custom'"),
        ("--script_path /nowhere/x.py name", "no file '/nowhere/x.py'"),
        ("--script_path x.py --custom_dir nowhere name", "--custom_dir: 'nowhere' is not a directory"),
        ("--script_path x.py --snapshots_dir nowhere name", "--snapshots_dir: 'nowhere' is not a directory"),
        ("--script_path custom/train.py --on , name", "--on: a name is missing"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_2(
    words: str, says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = guarded(lambda: int(bool(spec(here, words))), "run-scheduler", words.split())
    said = capsys.readouterr().err
    assert code == 2
    assert says in said
    assert (said.startswith("run-scheduler: "), said.count("\n")) == (True, 1)


def test_snapshots_that_cannot_be_written_are_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UserError, match=r"--snapshots_dir: .* cannot be written to by you"):
        spec(here, "--script_path custom/train.py --snapshots_dir snaps name")


def test_data_is_the_datasets_at_home(here: Path) -> None:
    (here.parent / "datasets").rmdir()
    with pytest.raises(UserError, match="below /data, which is ~/datasets, and there is none"):
        spec(here, "--script_path /data/x.py name")


# -- calling


def test_submitting_prints_the_id_and_notes_beside_it(
    here: Path, stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.on("POST /jobs", Said(201, a_job_view(notes=("image 'x' is kept",))))
    assert run_scheduler.run(["--script_path", "custom/train.py", "--max_epochs", "3", "cifar"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("j1\n", "run-scheduler: note: image 'x' is kept\n")
    body: dict[str, Any] = stand_in.calls("POST /jobs")[0].body["spec"]
    assert (body["name"], body["training"]["epochs"]) == ("cifar", 3)


def test_a_yard_elsewhere_has_not_these_directories(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARD_URL", "http://yard.example:8000")
    with pytest.raises(UserError, match="YARD_URL points at a yard elsewhere"):
        run_scheduler.run(["--script_path", "custom/train.py", "cifar"])


def test_the_state_is_of_ones_own_jobs_unless_all_are_asked_for(
    here: Path, stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    training = TrainingView(epochs_done=3, epochs_total=10, size="2 GPUs", eta_seconds=90.0, gpu_percent=50)
    mine = a_job_view(user=entry.user(), training=training)
    stand_in.on("GET /jobs", Said(data=(mine, a_job_view(id="j2", user="bob"))))
    assert state.run([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["JOBID", "NAME", "USER", "STATE", "EPOCHS", "SIZE", "TIME", "ETA"]
    assert len(lines) == 2
    assert "3/10" in lines[1]
    assert lines[1].split()[-1] == "1m30s"
    assert state.run(["--all_users", "--extended"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), "50 %" in lines[1], "GPU MEM" in lines[0]) == (3, True, True)
    assert state.run(["--all", "--nlast", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert stand_in.calls("GET /jobs")[-1].query == {"all": "true"}


def test_an_empty_state_says_so(here: Path, stand_in: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in.on("GET /jobs", Said(data=(a_job_view(user="bob"),)))
    assert state.run([]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "scheduler-state: no jobs of yours; --all_users shows all\n")


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_a_bad_number_of_jobs_gets_a_sentence(number: str) -> None:
    with pytest.raises(UserError, match="--nlast"):
        state.parse_state(["--nlast", number])


def test_a_job_is_cancelled(here: Path, stand_in: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view()))
    stand_in.on("POST /cancel", Said(data=[a_job_view(State.STOPPING)]))
    assert cancel_job.run(["j1"]) == 0
    assert capsys.readouterr().out == "job 1 (train) is stopping\n"


def test_logs_are_shown(here: Path, stand_in: StandIn, capfd: pytest.CaptureFixture[str]) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view()))
    stand_in.on("GET /jobs/j1/logs/raw", lambda asked: Said(data=asked.query["stream"].encode()))
    assert get_logs.run(["j1"]) == 0
    said = capfd.readouterr()
    assert (said.out, said.err) == ("out", "err")


@pytest.mark.parametrize("command", [cancel_job, get_logs])
def test_a_job_must_be_named(command: Any) -> None:
    with pytest.raises(UserError, match="jobid; see `scheduler-"):
        command.run([])


def test_a_job_without_training_has_a_row_too() -> None:
    assert state.row_of(replace(a_job_view(), training=None), is_extended=False)[4:6] == ("-", "-")


def test_in_a_container_the_script_finds_its_directories_where_it_always_did(here: Path) -> None:
    job = spec(here, f"--container {EVERY_FLAG}")
    assert job.groups[0].command.argv == ("python", "/custom/train.py")
    assert (job.container.on_machines, job.container.image) == (True, "repo/img:1")
    mounts = {mount.target: mount.source for mount in job.container.mounts}
    home = here.parent
    assert mounts == {"/custom": f"{here}/custom", "/snapshots": f"{here}/snaps", "/data": f"{home}/datasets"}
    assert job.env == {f"YARD_{name}_DIR": f"/{name.lower()}" for name in ("CUSTOM", "SNAPSHOTS", "DATA")}
    assert job.container.ports == (PortMapping(8080, 80), PortMapping(9090, 90))
    assert job.submitter.notes == ()


def test_a_script_that_is_in_the_image_need_not_be_here(here: Path) -> None:
    job = spec(here, "--container --image_name i:1 --script_path /app/train.py train")
    assert job.groups[0].command.argv == ("python", "/app/train.py")
    with pytest.raises(UserError, match=r"there is no file '/custom/no\.py'"):
        spec(here, "--container --image_name i:1 --script_path /custom/no.py --custom_dir custom train")
