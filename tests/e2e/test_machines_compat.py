"""ml-scheduler's commands on real machines: the seed's example, its lines, its results, and where we differ."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import Hosts
from tests.yards import Done, TemporaryYard, until

pytestmark = pytest.mark.slow

# Word for word from the seed's README.
BATCH = "\n".join(
    [
        'echo "one job"',
        'echo "another job"',
        'echo "another job" && echo "a combined job (bash syntax applies)"',
        'bash examples/local.sh && echo "you can also call local files because they are'
        ' copied by the remote by the default value of --copy-forward"',
        "",
    ]
)
NO_GPU = ("--no-gpu-required", "--memory-required=100")


class Lab:
    """Two machines with two GPUs each, their machine files, and a yard."""

    def __init__(self, hosts: Hosts, yard: TemporaryYard) -> None:
        self.hosts, self.yard = hosts, yard
        for number, host in enumerate(hosts, start=1):
            yard.write(
                f"m{number}.yaml",
                f"username: {host.user}\nip: {host.address}\nport: {host.port}\nssh_key_path: {host.key}\n",
            )
        yard.write("example/batch_script.sh", BATCH)
        yard.write("examples/local.sh", 'echo "a local file"; echo made >made.txt\n')

    def command(self, program: str, *words: str) -> list[str]:
        return [sys.executable, "-P", "-m", f"jobyard.compat.ml_scheduler.{program}", *words]

    def call(self, program: str, *words: str) -> Done:
        done = subprocess.run(
            self.command(program, *words), cwd=self.yard.work, env=self.yard.env, capture_output=True, timeout=120
        )
        return Done(done.returncode, done.stdout, done.stderr, 0.0)

    def batch(self, *words: str) -> Done:
        return self.call("execute_batch", *words)

    def results(self) -> dict[str, bytes]:
        root = self.yard.work / "job_results"
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def nodes(self) -> list[str]:
        return [node["id"] for node in self.yard.json("nodes") if node["executor"] == "ssh"]


@pytest.fixture(scope="module")
def machines() -> Iterator[Hosts]:
    with Hosts(2, environment={"JOBYARD_FAKE_GPUS": "2x24GiB"}) as hosts:
        yield hosts


@pytest.fixture
def lab(machines: Hosts) -> Iterator[Lab]:
    config = machines.directory / "by_address"
    config.write_text(
        f"Host *\n  UserKnownHostsFile {machines.directory / 'known_hosts'}\n"
        "  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
    )
    try:
        with TemporaryYard(YARD_SSH_CONFIG=str(config)) as yard:
            yield Lab(machines, yard)
    finally:
        machines.renew()


def test_the_seeds_example_runs_word_for_word_and_prints_the_seeds_lines(lab: Lab) -> None:
    done = lab.batch("example/batch_script.sh", "--machines", "m1.yaml", "m2.yaml")
    assert (done.code, done.err) == (0, ""), done.err
    lines = done.out.splitlines()
    assert lines[:2] == ["machine limits:  {'m1.yaml': 2, 'm2.yaml': 2}", "machine gpu choices: [[0, 1], [0, 1]]"]
    commands = BATCH.splitlines()
    for number, command in enumerate(commands, start=1):
        name = f"example_batch_script.sh.{number}"
        started = next(line for line in lines if line.startswith(f"started: {name};"))
        assert re.fullmatch(
            re.escape(f"started: {name};  export CUDA_VISIBLE_DEVICES=") + "[01]" + re.escape(f" && {command}"), started
        )
        assert lines.index(started) < lines.index(f"finished: {name}; {command}")
    assert len(lines) == 2 + 2 * len(commands)
    results = lab.results()
    assert results["example_batch_script.sh.1.out"] == b"one job\n"
    assert results["example_batch_script.sh.3.out"] == b"another job\na combined job (bash syntax applies)\n"
    assert results["example_batch_script.sh.4.out"].startswith(b"a local file\n")
    assert results["example_batch_script.sh.4/made.txt"] == b"made\n"
    assert all((lab.yard.work / "job_results" / f"example_batch_script.sh.{n}").is_dir() for n in range(1, 5))
    assert lab.nodes() == [], "the machines were added for this run only"


def test_what_has_results_is_skipped_and_the_rest_is_run_and_failures_are_told(lab: Lab) -> None:
    lab.yard.write("jobs.sh", "echo one\n\n# not run\necho four; echo why >&2; exit 3\n")
    (lab.yard.work / "job_results/jobs.sh.1").mkdir(parents=True)
    done = lab.batch("jobs.sh", "--machines", "m1.yaml", *NO_GPU)
    assert done.code == 1
    assert done.out.splitlines()[2:] == [
        "WARNING: job results already exists for line 1, skipping evaluation: delete if you wish to rerun",
        "skipping echo one",
        "started: jobs.sh.4;  echo four; echo why >&2; exit 3",
        "failed: jobs.sh.4; echo four; echo why >&2; exit 3",
    ]
    assert lab.results() == {"jobs.sh.4.out": b"four\n", "jobs.sh.4.err": b"why\n"}
    again = lab.batch("jobs.sh", "--machines", "m1.yaml", *NO_GPU)
    assert (again.code, again.out.count("WARNING")) == (0, 2), "a failed line is not run again until it is deleted"
    assert lab.yard.ok("logs", "last", "--task", "4").out == "four\n"


def test_an_unreachable_machine_is_a_warning_while_another_can_serve(lab: Lab) -> None:
    lab.yard.write("jobs.sh", "echo one\n")
    lab.yard.write("bad.yaml", "username: ben\n")
    lab.hosts[0].stop_sshd()
    done = lab.batch("jobs.sh", "--machines", "m1.yaml", "bad.yaml", "m2.yaml", *NO_GPU)
    assert done.code == 0, done.err
    assert "warning: node m1: " in done.err
    assert "bad.yaml: the key 'ip' is missing" in done.err
    assert done.out.startswith("machine limits:  {'m1.yaml': 0, 'bad.yaml': 0, 'm2.yaml': ")
    none = lab.batch("jobs.sh", "--machines", "m1.yaml", *NO_GPU)
    assert none.code == 2
    assert "no machine can be used" in none.err


def test_a_dry_run_prints_commands_and_runs_nothing(lab: Lab) -> None:
    done = lab.batch("example/batch_script.sh", "--machines", "m1.yaml", "m2.yaml", "--dry-run")
    assert done.code == 0
    commands = done.out.splitlines()[2:]
    assert len(commands) == 4
    assert all(line.startswith("execute_remote ") for line in commands)
    assert "export CUDA_VISIBLE_DEVICES=0 && " in commands[0]
    assert not (lab.yard.work / "job_results").exists()
    assert lab.nodes() == []


def test_shared_gpus_take_two_lines_each_and_a_reserved_machine_one(lab: Lab) -> None:
    lab.yard.write("jobs.sh", "echo $CUDA_VISIBLE_DEVICES\n" * 8)
    shared = lab.batch("jobs.sh", "--machines", "m1.yaml", "--no-reserve-gpu", "--gpu-utilization=0.5", NO_GPU[1])
    assert shared.code == 0, shared.err
    assert "machine gpu choices: [[0, 1, 0, 1]]" in shared.out
    assert {lab.results()[f"jobs.sh.{n}.out"] for n in range(1, 9)} <= {b"0\n", b"1\n"}
    lab.yard.write("whole.sh", "echo $CUDA_VISIBLE_DEVICES\n")
    whole = lab.batch("whole.sh", "--machines", "m1.yaml", "--reserve", NO_GPU[1])
    assert whole.code == 0, whole.err
    assert "machine limits:  {'m1.yaml': 1}" in whole.out
    assert lab.results()["whole.sh.1.out"] == b"0,1\n"


def test_each_line_may_be_an_execute_remote_command(lab: Lab) -> None:
    lab.yard.write("a b.txt", "with a space\n")
    lab.yard.write("unseen.txt", "not sent\n")
    lab.yard.write(
        "jobs.sh",
        "execute_remote --copy-forward 'a b.txt' --copy-backwards out.txt --verbose 'ls >out.txt; ls >other.txt'\n"
        "execute_remote --job-name mine 'ls' --copy-backwards\n",
    )
    done = lab.batch("jobs.sh", "--machines", "m1.yaml", "--kabuki-commands", *NO_GPU)
    assert done.code == 0, done.err
    results = lab.results()
    assert results["jobs.sh.1/out.txt"] == b"a b.txt\nout.txt\n"
    assert "jobs.sh.1/other.txt" not in results
    assert b"unseen.txt\n" in results["mine.out"]


def test_execute_remote_has_the_commands_exit_code_and_its_own_bytes(lab: Lab) -> None:
    words = ["printf 'x\\377y'; ls; echo new >new.txt; exit 7", "--machine", "m2.yaml", "--job-name", "one"]
    done = lab.call("execute_remote", *words, "--copy-backwards", "new.txt", "--verbose")
    assert done.code == 7, done.err
    assert done.stdout == b"x\xffy"
    assert lab.results() == {"one.out": b"x\xffy", "one.err": b"", "one/new.txt": b"new\n"}
    again = lab.call("execute_remote", *words)
    assert again.code == 2
    assert "job_results/one exists" in again.err
    plain = lab.call("execute_remote", "echo $CUDA_VISIBLE_DEVICES", "--machine", "m2.yaml")
    assert (plain.code, plain.out) == (0, "")
    (name,) = [name for name in lab.results() if re.fullmatch(r"[0-9A-F]{24}\.out", name)]
    assert lab.results()[name] == b"0,1\n", "it sees every GPU that is nobody's alone"


def test_ctrl_c_cancels_the_job_and_waits_for_it(lab: Lab) -> None:
    lab.yard.write("jobs.sh", "echo ready; sleep 600\necho never\n")
    process = subprocess.Popen(
        lab.command("execute_batch", "jobs.sh", "--machines", "m1.yaml", "--no-gpu-required", "--reserve"),
        cwd=lab.yard.work,
        env=lab.yard.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        seen = b""
        while b"started: jobs.sh.1" not in seen:
            piece = process.stdout.readline()
            assert piece, process.stderr.read() if process.stderr else b""
            seen += piece
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"failed: jobs.sh.1; echo ready; sleep 600\n" in out
    assert b"jobs.sh.2" not in out
    assert lab.yard.job()["state"] == "CANCELLED"
    assert not any("sleep 600" in p.command for p in lab.hosts[0].processes())
    until(lambda: lab.nodes() == [])
    assert Path(lab.yard.work, "job_results/jobs.sh.1.out").read_text() == "ready\n"
