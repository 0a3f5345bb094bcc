"""ml-scheduler's commands on real machines: the seed's example, its lines, its results, and where we differ."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.hosts import Hosts
from tests.marks import long
from tests.originals.facts import ml_scheduler
from tests.waiting import until
from tests.yards import Done, TemporaryYard

pytestmark = pytest.mark.slow

FACTS = ml_scheduler()
BATCH = "".join(f"{line}\n" for line in FACTS["lines"])
NO_GPU = ("--no-gpu-required", "--memory-required=100")


def held_line(name: str) -> str:
    """A command that tells when it begins and on which GPU, waits for the gate, and tells when it ends."""
    begin, end = f"echo begin {name} gpu=$CUDA_VISIBLE_DEVICES >>~/witness", f"echo end {name} >>~/witness"
    return f"{begin}; until [ -e ~/gate ]; do sleep 0.05; done; {end}"


class Lab:
    """Two machines with two GPUs each, their machine files, and a yard."""

    def __init__(self, hosts: Hosts, yard: TemporaryYard) -> None:
        self.hosts, self.yard = hosts, yard
        for number, host in enumerate(hosts, start=1):
            yard.write(
                f"m{number}.yaml",
                f"username: {host.user}\nip: {host.address}\nport: {host.port}\nssh_key_path: {host.key}\n",
            )
        yard.write(FACTS["file"], BATCH)
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

    @contextmanager
    def started(self, program: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command that goes on beside the test; it is killed at the end if it still runs."""
        command, env = self.command(program, *words), self.yard.env
        pipe, new = subprocess.PIPE, True
        with subprocess.Popen(
            command, cwd=self.yard.work, env=env, stdout=pipe, stderr=pipe, start_new_session=new
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def open_gate(self) -> None:
        self.hosts[0].ssh("touch gate")

    def witness(self) -> list[list[str]]:
        """The words of each line that tasks of `held_line` have written on the first host."""
        return [line.split() for line in self.hosts[0].ssh("cat witness 2>/dev/null || true").stdout.splitlines()]

    def results(self) -> dict[str, bytes]:
        root = self.yard.work / "job_results"
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def has_witnessed(self, lines: int) -> bool:
        return len(self.witness()) >= lines

    def has_submitted(self, jobs: int, running: Iterable[subprocess.Popen[bytes]]) -> bool:
        """Whether there are so many jobs; none of these commands may have ended before."""
        ended = [process.communicate() for process in running if process.poll() is not None]
        assert not ended, ended
        return len(self.yard.client.jobs(all=True)) == jobs

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
    done = lab.batch(FACTS["file"], "--machines", "m1.yaml", "m2.yaml")
    assert (done.code, done.err) == (0, ""), done.err
    lines = done.out.splitlines()
    limits, choices = {"m1.yaml": 2, "m2.yaml": 2}, [[0, 1], [0, 1]]
    assert lines[:2] == [FACTS["limits"].format(limits=limits), FACTS["choices"].format(choices=choices)]
    for number, line in enumerate(FACTS["lines"], start=1):
        name = f"example_batch_script.sh.{number}"
        started = [FACTS["started"].format(job=name, gpu=gpu, line=line) for gpu in (0, 1)]
        (at,) = [index for index, told in enumerate(lines) if told in started]
        assert at < lines.index(FACTS["finished"].format(job=name, line=line))
    assert len(lines) == 2 + 2 * len(FACTS["lines"])
    results = lab.results()
    assert results["example_batch_script.sh.1.out"] == b"one job\n"
    assert results["example_batch_script.sh.3.out"] == b"another job\na combined job (bash syntax applies)\n"
    assert results["example_batch_script.sh.4.out"].startswith(b"a local file\n")
    assert results["example_batch_script.sh.4/made.txt"] == b"made\n"
    assert all((lab.yard.work / "job_results" / f"example_batch_script.sh.{n}").is_dir() for n in range(1, 5))
    assert lab.nodes() == [], "the machines were added for this run only"


def test_every_command_line_of_the_readme_is_understood(lab: Lab) -> None:
    lab.yard.write("example/machine.yaml", (lab.yard.work / "m1.yaml").read_text())
    for words in FACTS["command_lines"]:
        done = lab.batch(FACTS["file"], "--machines", "example/machine.yaml", "--dry-run", *words.split())
        assert (done.code, done.err) == (0, ""), words
        assert done.out.startswith("machine limits:  {'example/machine.yaml': ")


def test_what_has_results_is_skipped_and_the_rest_is_run_and_failures_are_told(lab: Lab) -> None:
    lab.yard.write("jobs.sh", "echo one\n\n# not run\necho four; echo why >&2; exit 3\n")
    (lab.yard.work / "job_results/jobs.sh.1").mkdir(parents=True)
    done = lab.batch("jobs.sh", "--machines", "m1.yaml", *NO_GPU)
    assert done.code == 1
    assert done.out.splitlines()[2:] == [
        FACTS["skipped"].format(number=1),
        "skipping echo one",
        "started: jobs.sh.4;  echo four; echo why >&2; exit 3",
        FACTS["failed"].format(job="jobs.sh.4", line="echo four; echo why >&2; exit 3"),
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
    words = ["execute_batch", "jobs.sh", "--machines", "m1.yaml", "--no-gpu-required", "--reserve"]
    with lab.started(*words) as process:
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


@pytest.mark.parametrize(
    ("order", "begun"),
    [
        ("a.sh b.sh c.sh r1 r2", {"a.sh": 2}),  # the first batch has both GPUs before anybody else comes
        *long(("r1 a.sh b.sh c.sh r2", {"r1": 1, "a.sh": 3})),  # a single command sees both before any batch comes
    ],
)
def test_batches_and_single_commands_share_a_host(lab: Lab, order: str, begun: dict[str, int]) -> None:
    lab.yard.write("again.yaml", (lab.yard.work / "m1.yaml").read_text())
    asked = {name: "again.yaml" if name in ("c.sh", "r2") else "m1.yaml" for name in order.split()}
    lines = {name: [f"{name}.{n}" for n in (1, 2, 3)] for name in asked if name.endswith(".sh")}
    with ExitStack() as stack:
        running = {}
        for name, machine in asked.items():
            if name in lines:
                lab.yard.write(name, "".join(f"{held_line(line)}\n" for line in lines[name]))
                words = ["execute_batch", name, "--machines", machine, NO_GPU[1]]
            else:
                words = ["execute_remote", held_line(name), "--machine", machine, "--job-name", name]
            running[name] = stack.enter_context(lab.started(*words))
            until(partial(lab.has_witnessed, begun.get(name, 0)))
        # What holds them runs on, and the others are taken, not refused.
        until(lambda: lab.has_submitted(len(asked), running.values()))
        lab.open_gate()
        ended = {name: process.communicate(timeout=120) for name, process in running.items()}
    for name, process in running.items():
        assert process.returncode == 0, (name, ended[name])
        assert b"warning" not in ended[name][1]
    for name, own in lines.items():
        told = sorted(line.split(";")[0] for line in ended[name][0].decode().splitlines()[2:])
        assert told == sorted(f"{what}: {line}" for line in own for what in ("started", "finished"))
        shown = dict(re.findall(r"^started: (\S+);  export CUDA_VISIBLE_DEVICES=(\d) ", ended[name][0].decode(), re.M))
        seen = {line: gpu.removeprefix("gpu=") for what, line, *rest in lab.witness() for gpu in rest if line in own}
        assert shown == seen, "what is printed is what the line sees"
    began = sorted(words[1] for words in lab.witness() if words[0] == "begin")
    assert began == sorted([*(line for own in lines.values() for line in own), "r1", "r2"]), "each once"
    assert_one_at_a_time(lab.witness())
    assert lab.nodes() == [], "the last command takes the machine away"


def assert_one_at_a_time(witness: list[list[str]]) -> None:
    holders: dict[str, str] = {}
    for what, name, *gpu in witness:
        if name in ("r1", "r2"):
            continue
        if what == "begin":
            assert gpu[0] in ("gpu=0", "gpu=1")
            assert gpu[0] not in holders.values(), f"{name} has {gpu[0]} while another line has it"
            holders[name] = gpu[0]
        else:
            del holders[name]


def test_a_node_left_behind_by_a_killed_batch_does_no_harm(lab: Lab) -> None:
    lab.yard.write("again.yaml", (lab.yard.work / "m1.yaml").read_text())
    lab.yard.write("held.sh", f"{held_line('one')}\n{held_line('two')}\n")
    with lab.started("execute_batch", "held.sh", "--machines", "m1.yaml", NO_GPU[1]) as process:
        until(lambda: len(lab.witness()) == 2)
        process.kill()
        process.wait()
    assert lab.nodes() == ["m1"]
    dry = lab.batch("held.sh", "--machines", "again.yaml", "--dry-run", NO_GPU[1])
    assert dry.out.startswith("machine limits:  {'again.yaml': 0}\nmachine gpu choices: [[]]\n")
    elsewhere = lab.yard.run("run", "--gpus", "1", "--", "true")
    assert (elsewhere.code, "no GPU" in elsewhere.err) == (2, True), "only who names the machine may use it"
    lab.open_gate()
    assert lab.yard.run("wait", "last").code == 0
    lab.yard.write("next.sh", "echo next\n")
    done = lab.batch("next.sh", "--machines", "again.yaml", NO_GPU[1])
    assert (done.code, done.err) == (0, "")
    assert "machine limits:  {'again.yaml': 2}" in done.out
    assert lab.results()["next.sh.1.out"] == b"next\n"
    assert lab.nodes() == [], "it went with the next command"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--memory-required=99999999"], "can never run"),
        *long((["--num-cpus=9999"], "can never run"), (["--gpu-memory-required=99999999"], "can never run")),
        (["--copy-forward", "nowhere"], "does not exist"),
        *long((["--copy-forward", "/etc"], "is not inside")),
    ],
)
def test_a_refusal_names_only_flags_of_execute_batch(lab: Lab, words: list[str], complaint: str) -> None:
    lab.yard.write("jobs.sh", "echo one\n")
    done = lab.batch("jobs.sh", "--machines", "m1.yaml", *words)
    assert (done.code, complaint in done.err) == (2, True), done.err
    flags = set(re.findall(r"--[a-z-]+", lab.batch("--help").out))
    assert not set(re.findall(r"--[a-z-]+", done.err)) - flags
    assert lab.nodes() == []
