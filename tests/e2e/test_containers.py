"""Jobs in containers of a real engine: what a plain process has and does, a task in an image has and does too."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobyard.agent.execution import container_words
from jobyard.agent.system import processes
from jobyard.agent_protocol import records
from tests.engines import Engine, engine, podman, running_engine  # noqa: F401 - a fixture
from tests.hosts import Hosts
from tests.waiting import until
from tests.yards import Done, TemporaryYard

pytestmark = pytest.mark.slow
WAIT = "until [ -e go ]; do sleep 0.05; done"

TRAIN = """
import os, time
from jobyard.sdk import yard_job
job = yard_job()
print("begin", job.epochs_done, flush=True)
for epoch in job.epochs(6):
    while not os.path.exists("gate") or int(open("gate").read() or 0) < epoch + 1:
        time.sleep(0.02)
        job.measure()
    (job.checkpoint_dir / "epoch").write_text(str(epoch + 1))
    job.saved()
print("done", (job.checkpoint_dir / "epoch").read_text(), flush=True)
"""


class Lab:
    """A yard whose machine has a real engine, and images for it."""

    def __init__(self, engine: Engine, yard: TemporaryYard) -> None:  # noqa: F811
        self.engine = engine
        self.yard = yard
        self.small = engine.load_small()

    def words(self, *words: str, image: str = "") -> tuple[str, ...]:
        return ("--container", "--image", image or self.small, *words)

    def run(self, *words: str, image: str = "") -> Done:
        return self.yard.run("run", *self.words(*words, image=image))

    def submit(self, *words: str, image: str = "") -> str:
        return self.yard.submit(*self.words(*words, image=image))

    def until_inside(self, job: str, text: str = "in\n") -> None:
        """The task itself has begun, not only its client."""
        until(lambda: self.yard.run("logs", job).out.startswith(text))

    def client_pid(self, job: str) -> int:
        """Of the runtime's client, which is the attempt's process."""
        wanted = f"YARD_ERROR_FILE={self.yard.directory}/agent/jobs/{job}/0/0.1.error"
        found = processes.find_by_environment(wanted)
        assert found is not None
        return found.pid

    def lane_pid(self, job: str) -> int:
        return int(Path(f"/proc/{self.client_pid(job)}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture(scope="module")
def shared_lab(engine: Engine) -> Iterator[Lab]:  # noqa: F811
    with TemporaryYard(JOBYARD_CONTAINER_RUNTIME=engine.command) as yard:
        yield Lab(engine, yard)


@pytest.fixture
def lab(shared_lab: Lab, tmp_path: Path) -> Iterator[Lab]:
    """A yard with an engine, and an empty directory to submit from. No container is left by any test."""
    shared_lab.yard.work = tmp_path / "work"
    shared_lab.yard.work.mkdir()
    try:
        yield shared_lab
    finally:
        shared_lab.yard.settle()
    until(lambda: not shared_lab.engine.containers())


# -- running


def test_a_task_in_an_image_finds_its_variables_and_its_directory_and_leaves_its_files(lab: Lab) -> None:
    script = 'cat given; echo "$A|$YARD_TASK|$PWD"; test -e /bin/busybox; touch made; echo $TMPDIR > $TMPDIR/x; exit 3'
    lab.yard.write("given", "from outside\n")
    done = lab.run("-e", "A=1  2\n3", "--", script)
    assert (done.code, done.out) == (1, f"from outside\n1  2\n3|0|{lab.yard.work}\n")
    assert lab.yard.tasks()[0]["exit_code"] == 3
    assert (lab.yard.work / "made").stat().st_uid == os.getuid()


def test_a_command_is_run_as_its_words_and_its_output_is_its_own(lab: Lab) -> None:
    done = lab.run("--", "printf", "%s|", "a b", "$HOME", "--help")
    assert (done.code, done.out) == (0, "a b|$HOME|--help|")


def test_a_script_runs_whole_in_an_image(lab: Lab) -> None:
    script = lab.yard.write("inside.sh", '#!/bin/sh\nA=1\necho "$A|$1|${YARD_SCRIPT-gone}"\n')
    done = lab.run(script, "$(id) x")
    assert (done.code, done.out) == (0, "1|$(id) x|gone\n"), done.err


def test_the_submitting_shell_stays_outside(lab: Lab) -> None:
    done = lab.yard.run("run", *lab.words("--", "echo ${SECRET-none}; echo $PATH"), env={"SECRET": "x"})
    assert done.out == "none\n/usr/local/bin:/usr/bin:/bin\n"


def test_variables_that_the_client_reads_are_meant_for_the_task(lab: Lab) -> None:
    given = {"DOCKER_HOST": "tcp://nowhere:1", "HOME": "/nest", "PATH": "/bin:/x", "https_proxy": "http://nowhere"}
    flags = [word for name, value in given.items() for word in ("-e", f"{name}={value}")]
    done = lab.run(*flags, "--", "env")
    assert done.code == 0, done.err
    assert {f"{name}={value}" for name, value in given.items()} <= set(done.out.splitlines())


def test_no_value_is_in_a_list_of_processes(lab: Lab) -> None:
    job = lab.submit("-e", "TOKEN=hidden-value", "-e", "DOCKER_CONFIG=hidden-value", "--", f"echo in; {WAIT}")
    lab.until_inside(job)
    lists = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert "yard-" in lists
    assert "hidden-value" not in lists
    lab.yard.write("go", "")
    assert lab.yard.run("wait", job).code == 0


def test_tasks_of_an_array_have_a_container_each(lab: Lab) -> None:
    job = lab.submit("--cpus", "0", "--array", "1-4", "--", "echo $SLURM_ARRAY_TASK_ID > out-$SLURM_ARRAY_TASK_ID")
    assert lab.yard.run("wait", job).code == 0
    assert sorted(path.name for path in lab.yard.work.iterdir()) == ["out-1", "out-2", "out-3", "out-4"]


def test_a_manifest_says_container_too(lab: Lab) -> None:
    lab.yard.write("job.yaml", f"image: {lab.small}\ncontainer: true\ncommand: readlink -f /bin/ls\n")
    done = lab.yard.run("run", "job.yaml")
    assert (done.code, done.out) == (0, "/bin/busybox\n")
    assert "not used" not in done.err
    assert "(in containers)" in lab.yard.ok("show", "last").out


def test_without_the_flag_an_image_is_not_used_and_that_is_said(lab: Lab) -> None:
    done = lab.yard.run("run", "--image", lab.small, "--", "echo here")
    assert (done.code, done.out) == (0, "here\n")
    assert f"image {lab.small!r} is not used" in done.err


def test_what_the_container_uses_is_measured_and_not_its_client(lab: Lab) -> None:
    hold = "import time; x = b'x' * (150 << 20); time.sleep(6)"  # the agent looks every 2 s
    job = lab.submit("--", "python3", "-c", hold, image=lab.engine.load_python())
    assert lab.yard.run("wait", job).code == 0
    assert 150 <= lab.yard.tasks(job)[0]["peak_memory_mib"] < 300


# -- ending


def test_a_stop_is_polite_first_and_reaches_everything(lab: Lab) -> None:
    job = lab.submit("--", "trap 'echo bye; exit 0' TERM; echo in; while :; do sleep 0.1; done")
    lab.until_inside(job)
    lab.yard.ok("cancel", job)
    lab.yard.wait_state(job, "CANCELLED")
    assert lab.yard.logs(job) == "in\nbye\n"


def test_what_does_not_stop_is_ended_with_its_container(lab: Lab) -> None:
    lab.yard.write(
        "job.yaml", f"image: {lab.small}\ncontainer: true\ngrace: 1\ncommand: trap '' TERM; echo in; sleep 600\n"
    )
    job = lab.yard.submit("job.yaml")
    lab.until_inside(job)
    lab.yard.ok("cancel", job)
    lab.yard.wait_state(job, "CANCELLED")
    assert lab.engine.containers() == []


def test_a_timeout_ends_the_container(lab: Lab) -> None:
    job = lab.submit("--timeout", "2s", "--", "sleep 600")
    assert lab.yard.wait_state(job, "FAILED")["reason"] == "Timeout"
    assert lab.engine.containers() == []


def test_memory_is_limited_to_what_was_asked_for_and_running_out_of_it_is_noticed(lab: Lab) -> None:
    script = "x = b'x' * (150 << 20); print(len(x))"
    job = lab.submit("--mem", "100M", "--", "python3", "-c", script, image=lab.engine.load_python())
    assert lab.yard.run("wait", job).code == 0
    assert lab.yard.tasks(job)[0]["attempt"] == 2  # with more of it, as everywhere
    first = records.read(f"{lab.yard.directory}/agent/jobs/{job}/0/0.1.rec")
    assert first is not None
    assert first.ending is not None
    assert (first.ending.exit_code, first.ending.reason) == (137, "OutOfMemory")


def test_an_image_that_cannot_be_had_is_told_in_the_words_of_the_runtime(lab: Lab) -> None:
    done = lab.run("--", "true", image="127.0.0.1:1/nobody/nothing:1")
    assert done.code == 1
    told = lab.yard.job()["message"]
    assert "docker could not run image 127.0.0.1:1/nobody/nothing:1: " in told
    assert "connection refused" in told


def test_a_task_may_end_with_the_code_of_a_failing_runtime_itself(lab: Lab) -> None:
    assert lab.run("--", "echo mine >&2; exit 125").code == 1
    assert "docker could not" not in lab.yard.job()["message"]


def test_a_command_that_the_image_does_not_have_is_not_found(lab: Lab) -> None:
    assert lab.run("--", "no-such-command", "x").code == 1
    assert lab.yard.tasks()[0]["exit_code"] == 127


# -- who dies


def test_the_death_of_the_agent_harms_no_container(lab: Lab) -> None:
    job = lab.submit("--", f"echo in; echo run >> ran; {WAIT}; exit 7")
    lab.until_inside(job)
    os.kill(lab.yard.agent_pid(), signal.SIGKILL)
    lab.yard.write("go", "")
    assert lab.yard.wait_state(job, "FAILED")["exit_code"] == 7
    assert (lab.yard.work / "ran").read_text() == "run\n"
    assert lab.yard.tasks(job)[0]["attempt"] == 1


def test_a_container_does_not_outlive_its_client(lab: Lab) -> None:
    job = lab.submit("--", "echo in; sleep 600")
    lab.until_inside(job)
    os.kill(lab.client_pid(job), signal.SIGKILL)
    lab.yard.wait_state(job, "FAILED")
    assert lab.yard.tasks(job)[0]["signal"] == 9
    assert lab.engine.containers() == []


def test_a_container_that_lost_agent_lane_and_client_is_ended_by_the_next_agent(lab: Lab) -> None:
    job = lab.submit("--", "echo in; sleep 600")
    lab.until_inside(job)
    pids = [lab.yard.agent_pid(), lab.lane_pid(job), lab.client_pid(job)]
    assert len(lab.engine.containers()) == 1
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert lab.yard.wait_state(job, "FAILED")["reason"] == "Unknown"
    assert lab.engine.containers() == []


def test_a_new_agent_removes_what_an_earlier_one_left_and_nothing_else(engine: Engine) -> None:  # noqa: F811
    with TemporaryYard(JOBYARD_CONTAINER_RUNTIME=engine.command) as yard:
        ours = container_words.state_label(f"{yard.directory}/agent")
        for name, label in (("of-this-yard", ours), ("of-another", "0123456789ab")):
            labels = ("--label", f"jobyard.state={label}", "--label", "jobyard.attempt=gone.0.1")
            engine.call("create", "--name", name, *labels, engine.load_small())
        try:
            yard.ok("nodes")
            until(lambda: engine.containers() == ["of-another"])
        finally:
            engine.call("rm", "--force", "of-another", "of-this-yard", check=False)


def test_a_task_whose_lane_and_agent_died_runs_on_and_is_stopped_when_asked(lab: Lab) -> None:
    job = lab.submit("--", "echo in; sleep 600")
    lab.until_inside(job)
    for pid in (lab.yard.agent_pid(), lab.lane_pid(job)):
        os.kill(pid, signal.SIGKILL)
    until(lambda: lab.yard.agent_pid())
    assert lab.yard.job(job)["state"] == "RUNNING"
    lab.yard.ok("cancel", "--force", job)
    lab.yard.wait_state(job, "CANCELLED")
    until(lambda: not lab.engine.containers())  # a busy engine takes away what has ended a moment later


# -- training


def test_training_in_an_image_reports_yields_and_resumes(lab: Lab) -> None:
    lab.yard.write("train.py", TRAIN)
    job = lab.submit("--epochs", "6", "--", "python3", "train.py", image=lab.engine.load_python())
    lab.yard.write("gate", "2")
    until(lambda: lab.yard.job(job)["training"]["epochs_done"] == 2)
    lab.yard.ok("cancel", "--checkpoint", job)
    lab.yard.write("gate", "3")
    until(lambda: lab.yard.run("logs", job, "--attempt", "2").out.startswith("begin 3"))
    lab.yard.write("gate", "99")
    assert lab.yard.run("wait", job).code == 0
    assert lab.yard.logs(job).splitlines()[-1] == "done 6"
    assert lab.yard.job(job)["training"]["epochs_done"] == 6


def test_run_scheduler_mounts_custom_snapshots_and_data(engine: Engine) -> None:  # noqa: F811
    with TemporaryYard(JOBYARD_CONTAINER_RUNTIME=engine.command, JOBYARD_FAKE_GPUS="1x16GiB") as yard:
        script = (
            "import os\nopen('/snapshots/made', 'w').write(open('/data/set').read())\nprint(os.listdir('/custom'))\n"
        )
        yard.write("custom/train.py", script)
        (yard.work / "snapshots").mkdir()
        (yard.home / "datasets").mkdir()
        (yard.home / "datasets" / "set").write_text("numbers")
        words = ["--script_path", "/custom/train.py", "--custom_dir", "custom", "--snapshots_dir", "snapshots"]
        words += ["--container", "--image_name", engine.load_python(), "train"]
        command = [sys.executable, "-P", "-m", "jobyard.compat.kubeprofiler.run_scheduler", *words]
        done = subprocess.run(command, cwd=yard.work, env=yard.env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        job = done.stdout.strip()
        assert yard.run("wait", job).code == 0, yard.run("logs", job).err
        assert yard.logs(job) == "['train.py']\n"
        assert (yard.work / "snapshots" / "made").read_text() == "numbers"


# -- where


def test_a_port_of_the_container_is_reached_on_a_port_of_the_machine() -> None:
    with running_engine("--iptables=false", "--ip6tables=false", "--bip=172.31.77.1/24") as bridged:
        image = bridged.load_python()
        with TemporaryYard(JOBYARD_CONTAINER_RUNTIME=bridged.command, JOBYARD_FAKE_GPUS="1x16GiB") as yard:
            yard.write("custom/serve.py", SERVE)
            words = ["--script_path", "/custom/serve.py", "--custom_dir", "custom", "--port_mapping", "28080:80"]
            words += ["--container", "--image_name", image, "serve"]
            command = [sys.executable, "-P", "-m", "jobyard.compat.kubeprofiler.run_scheduler", *words]
            done = subprocess.run(command, cwd=yard.work, env=yard.env, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            assert until(lambda: _said_on(28080)) == b"from inside"
            yard.ok("cancel", done.stdout.strip())
            yard.wait_state(done.stdout.strip(), "CANCELLED")


SERVE = """
import socket
listener = socket.create_server(("", 80))
while True:
    stream, _ = listener.accept()
    stream.send(b"from inside")
    stream.close()
"""


def _said_on(port: int) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as stream:
            return stream.recv(100)
    except OSError:
        return b""


def test_on_another_machine_the_files_go_along_and_come_home(engine: Engine) -> None:  # noqa: F811
    Path("/run/sshd").mkdir(
        exist_ok=True
    )  # an sshd of root wants it; the engine sees only what all mount namespaces do
    with (
        Hosts(1, kind="loopback", environment={"JOBYARD_CONTAINER_RUNTIME": engine.command}) as hosts,
        TemporaryYard(YARD_SSH_CONFIG=str(hosts.config_file)) as yard,
    ):
        yard.ok("nodes", "add", hosts[0].name)
        yard.write("given", "sent\n")
        image = engine.load_small()
        done = yard.run("run", "--on", "ssh", "--container", "--image", image, "--", "cat given; echo new > made")
        assert (done.code, done.out) == (0, "sent\n"), done.err
        assert next((yard.work / "job_results").rglob("made")).read_text() == "new\n"


def test_podman_runs_stops_and_leaves_nothing_too() -> None:
    with podman() as found, TemporaryYard(JOBYARD_CONTAINER_RUNTIME=found.command, **found.env) as yard:
        words = ("--container", "--image", found.load_small())
        done = yard.run("run", *words, "-e", "A=1 2", "-e", "HOME=/x", "--mem", "64M", "--", "echo $A $HOME; exit 3")
        assert (done.code, done.out) == (1, "1 2 /x\n"), done.err
        assert yard.tasks()[0]["exit_code"] == 3
        polite = yard.submit(*words, "--", "trap 'echo bye; exit 0' TERM; echo in; while :; do sleep 0.1; done")
        deaf = yard.submit(*words, "--", "trap '' TERM; echo in; sleep 600")
        until(lambda: yard.run("logs", polite).out == yard.run("logs", deaf).out == "in\n")
        yard.ok("cancel", polite)
        yard.ok("cancel", "--force", deaf)
        for job in (polite, deaf):
            yard.wait_state(job, "CANCELLED")
        assert yard.logs(polite) == "in\nbye\n"
        assert found.containers() == []


def test_without_a_runtime_the_submit_is_refused_in_one_sentence() -> None:
    with TemporaryYard(JOBYARD_CONTAINER_RUNTIME="/nowhere/docker") as yard:
        done = yard.run("run", "--container", "--image", "x:1", "--", "true")
        assert done.code == 2
        told = "has a docker that does not answer: No such file or directory"
        assert done.err.startswith("yard: --container: no node can run containers: ")
        assert told in done.err
        assert done.err.count("\n") == 1
        assert yard.run("run", "--container", "--", "true").err.count("--image") == 1


def test_an_engine_that_is_started_later_is_noticed() -> None:
    place = "/tmp/yd-later"
    with TemporaryYard(JOBYARD_CONTAINER_RUNTIME=f"docker -H unix://{place}.sock") as yard:
        assert "does not answer" in yard.run("run", "--container", "--image", "x:1", "--", "true").err
        with running_engine() as late:
            os.symlink(late.address[len("unix://") :], f"{place}.sock")
            try:
                image = late.load_small()
                until(lambda: yard.json("nodes")[0]["runtime"] == "docker")
                assert yard.run("run", "--container", "--image", image, "--", "echo in").out == "in\n"
            finally:
                os.unlink(f"{place}.sock")
