"""What happens to tasks on other machines when links, sshds, agents, servers and whole machines go?"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.faults.link_lab import LinkLab
from tests.hosts import Host, Hosts
from tests.marks import long
from tests.waiting import long_until, until

from jobyard.model.events import AttemptsFinished, NodeLost, NodeWentAway
from jobyard.model.job import State
from jobyard.model.node import NodeState

pytestmark = pytest.mark.slow
ROUNDS = int(os.environ.get("JOBYARD_LINK_ROUNDS", "5"))
SEED = int(os.environ.get("JOBYARD_LINK_SEED", "1"))
TASKS = 300
LEASE_SECONDS = 4.0


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(3) as made:
        yield made


@pytest.fixture
def lab(hosts: Hosts) -> Iterator[LinkLab]:
    """Three nodes; a lease that no test here outlives."""
    yield from _lab(hosts, lease=300)


@pytest.fixture
def hasty(hosts: Hosts) -> Iterator[LinkLab]:
    """Three nodes that are given up after three seconds."""
    yield from _lab(hosts, lease=3)


def _lab(hosts: Hosts, lease: float) -> Iterator[LinkLab]:
    lab = LinkLab(hosts, lease=lease)
    try:
        yield lab
    finally:
        lab.close()
        hosts.renew()


def hold(lab: LinkLab) -> tuple[str, Path]:
    """A task that runs until a file is gone, and the file."""
    gate = lab.shared / "gate"
    gate.touch()
    script = f"{lab.mark}; echo begin; while [ -e {gate} ]; do sleep 0.1; done; echo $YARD_ATTEMPT > result; echo end"
    return script, gate


def test_a_cut_shorter_than_the_lease_restarts_nothing(lab: LinkLab, hosts: Hosts) -> None:
    script, gate = hold(lab)
    job = lab.submit("-a", "0-5", "--", script)
    lab.all_run(job, 6)
    hosts[0].cut()
    lab.until_state("gpu1", NodeState.AWAY)
    assert lab.live.client.job(job).counts.running == 6
    waiting = lab.live.submit("--on", "gpu1", "-c", "0.1", "--", "true")
    gate.unlink()  # its tasks end while nobody can tell
    long_until(lambda: lab.live.client.job(job).counts.succeeded == 4)
    assert lab.live.client.job(waiting).state is State.PENDING
    hosts[0].restore()
    tasks = lab.succeed(job)
    assert [task.attempt for task in tasks] == [1] * 6
    assert set(lab.starts().values()) == {1}
    assert [lab.live.raw(job, str(number), "out") for number in range(6)] == [b"begin\nend\n"] * 6
    for number in range(6):
        assert (lab.live.work / "job_results" / job / str(number) / "result").read_text() == "1\n"
    lab.succeed(waiting)
    assert any(isinstance(event, NodeWentAway) for event in lab.events())
    assert not any(isinstance(event, NodeLost) for event in lab.events())


def test_after_the_lease_tasks_run_elsewhere_and_the_old_attempts_are_stopped(hasty: LinkLab, hosts: Hosts) -> None:
    lab = hasty
    script, gate = hold(lab)
    job = lab.submit("-c", "1", "-a", "0-5", "--", script)
    lab.all_run(job, 6)
    moved = {task.number for task in lab.tasks(job) if task.node == "gpu1"}
    assert len(moved) == 2
    hosts[0].cut()
    lab.until_state("gpu1", NodeState.DOWN)
    assert lab.running(hosts[0], "while [ -e") == 2, "it runs on: nobody could tell it"
    lab.live.yard("nodes", "drain", "gpu1")
    hosts[0].restore()
    long_until(lambda: not lab.running(hosts[0], "while [ -e"))
    assert lab.live.client.job(job).counts.running == 4, "the others have no room yet"
    gate.unlink()
    tasks = lab.succeed(job)
    assert {task.number: task.attempt for task in tasks} == {n: 2 if n in moved else 1 for n in range(6)}
    assert not any(task.node == "gpu1" for task in tasks)
    finished = Counter(
        item.attempt for event in lab.events() if isinstance(event, AttemptsFinished) for item in event.items
    )
    assert set(finished.values()) == {1}
    assert not any(name.number == 1 and name.task in moved for name in finished), "what was given up is not counted"
    for task in tasks:
        directory = lab.live.work / "job_results" / job / task.label
        assert {path.name: path.read_text() for path in directory.iterdir()} == {"result": f"{task.attempt}\n"}
        assert lab.live.raw(job, task.label, "out") == b"begin\nend\n"


def test_after_a_reboot_what_ran_there_runs_again_as_the_next_attempt(lab: LinkLab, hosts: Hosts) -> None:
    script, gate = hold(lab)
    job = lab.submit("-c", "1", "-a", "0-5", "--", script)
    lab.all_run(job, 6)
    lost = {task.number for task in lab.tasks(job) if task.node == "gpu2"}
    hosts[1].reboot()
    long_until(lambda: all(lab.starts()[number, 2] for number in lost))
    gate.unlink()
    tasks = lab.succeed(job)
    assert {task.number: task.attempt for task in tasks} == {n: 2 if n in lost else 1 for n in range(6)}
    assert set(lab.starts().values()) == {1}
    for task in tasks:
        result = lab.live.work / "job_results" / job / task.label / "result"
        assert result.read_text() == f"{task.attempt}\n"


@pytest.mark.parametrize("what", [*long("sshd", "sessions", "agent"), "sshd and agent"])
def test_what_only_carries_tasks_may_die(lab: LinkLab, hosts: Hosts, what: str) -> None:
    script, gate = hold(lab)
    job = lab.submit("-a", "0-5", "--", script)
    lab.all_run(job, 6)
    host = hosts[2]
    if what == "sessions":
        host.kill_sshd_sessions()
    if "sshd" in what:
        host.kill_sshd()
        lab.until_state("gpu3", NodeState.AWAY)
    if "agent" in what:
        assert lab.kill_agent(host)
    host.start_sshd()
    gate.unlink()
    tasks = lab.succeed(job)
    assert [task.attempt for task in tasks] == [1] * 6
    assert set(lab.starts().values()) == {1}
    assert [lab.live.raw(job, task.label, "out") for task in tasks] == [b"begin\nend\n"] * 6


def test_a_server_that_comes_back_while_the_link_is_down_waits_for_the_lease(hasty: LinkLab, hosts: Hosts) -> None:
    lab = hasty
    script, gate = hold(lab)
    job = lab.submit("-c", "1", "-a", "0-3", "--", script)
    lab.all_run(job, 4)
    victim = next(host for host in hosts if any(task.node == host.name for task in lab.tasks(job)))
    lost = {task.number for task in lab.tasks(job) if task.node == victim.name}
    victim.cut()
    lab.live.kill(lab.live.server_pid)
    lab.until_state(victim.name, NodeState.DOWN)
    gate.unlink()
    tasks = lab.succeed(job)
    assert {task.number: task.attempt for task in tasks} == {n: 2 if n in lost else 1 for n in range(4)}
    assert not any(task.node == victim.name for task in tasks)


@pytest.mark.long
def test_a_server_that_comes_back_before_the_lease_is_over_restarts_nothing(lab: LinkLab, hosts: Hosts) -> None:
    script, gate = hold(lab)
    job = lab.submit("-a", "0-5", "--", script)
    lab.all_run(job, 6)
    for host in hosts:
        host.cut()
    lab.live.kill(lab.live.server_pid)
    lab.until_state("gpu1", NodeState.AWAY)
    gate.unlink()
    for host in hosts:
        host.restore()
    tasks = lab.succeed(job)
    assert [task.attempt for task in tasks] == [1] * 6
    assert set(lab.starts().values()) == {1}


@pytest.mark.long
def test_a_cancelled_task_stops_when_the_link_is_back(lab: LinkLab, hosts: Hosts) -> None:
    script, _ = hold(lab)
    job = lab.live.submit("--on", "gpu1", "--", script)
    lab.all_run(job, 1)
    hosts[0].cut()
    lab.until_state("gpu1", NodeState.AWAY)
    lab.live.yard("cancel", "--force", job)
    hosts[0].restore()
    long_until(lambda: lab.live.client.job(job).state is State.CANCELLED)
    long_until(lambda: not lab.running(hosts[0], "while [ -e"))


@pytest.mark.long
def test_a_slow_link_costs_round_trips_and_nothing_else(lab: LinkLab, hosts: Hosts) -> None:
    for host in hosts:
        host.delay(400)
    began = time.monotonic()
    tasks = lab.succeed(lab.submit("-c", "0.25", "-a", "0-99", "--", f"{lab.mark}; echo $YARD_TASK > r"))
    assert time.monotonic() - began < 60  # two round trips of each task, one after the other, take 80 seconds
    assert [task.attempt for task in tasks] == [1] * 100


def test_a_clock_that_is_wrong_breaks_no_duration_and_no_order() -> None:
    with Hosts(2, skewable_clock=True) as hosts:
        hosts[0].skew_clock(-7200)
        hosts[1].skew_clock(7200)
        lab = LinkLab(hosts, lease=300)
        try:
            job = lab.submit(
                "-c", "0.5", "-a", "0-7", "--retries", "1", "--", f"{lab.mark}; sleep 0.3; [ $YARD_ATTEMPT = 2 ]"
            )
            tasks = lab.succeed(job)
            assert [task.attempt for task in tasks] == [2] * 8
            view = lab.live.client.job(job)
            assert view.started_at is not None
            assert view.finished_at is not None
            assert view.submitted_at <= view.started_at <= view.finished_at
            for task in tasks:
                assert task.started_at is not None
                assert task.finished_at is not None
                assert 0 <= task.finished_at - task.started_at < 1800
                assert view.submitted_at - 1 <= task.started_at <= view.finished_at + 1, "as our own clock has it"
            hosts[0].skew_clock(7200)  # and it may jump while a task runs
            script, gate = hold(lab)
            job = lab.submit("-c", "0.5", "-a", "0-3", "--", script)
            lab.all_run(job, 4)
            hosts[0].skew_clock(-7200)
            time.sleep(1.2)  # libfaketime looks once a second
            gate.unlink()
            for task in lab.succeed(job):
                assert task.started_at is not None
                assert task.finished_at is not None
                assert task.finished_at >= task.started_at
        finally:
            lab.close()


def test_on_a_full_disk_an_attempt_fails_with_a_sentence_and_the_node_goes_on() -> None:
    with Hosts(2, home_mib=48) as hosts:
        lab = LinkLab(hosts, lease=300)
        try:
            lab.succeed(lab.submit("-c", "1", "-a", "0-3", "--", f"{lab.mark}; true"))
            hosts[0].fill_disk()
            job = lab.live.submit("--on", "gpu1", "--", "echo much > result")
            elsewhere = lab.live.submit("--on", "gpu2", "--", "echo fine")
            lab.succeed(elsewhere)
            until(lambda: lab.live.client.job(job).state.is_final, 40)
            view = lab.live.client.job(job)
            assert view.state is State.FAILED
            assert "space" in view.message.lower(), view
            (lab.live.work / "much").write_bytes(os.urandom(1 << 20))  # a tree that no node has yet
            job = lab.live.submit("--on", "gpu1", "--", "ls much")
            lab.succeed(lab.live.submit("--on", "gpu2", "--", "ls much"))
            until(lambda: lab.live.client.job(job).state.is_final, 40)
            view = lab.live.client.job(job)
            assert view.state is State.FAILED
            assert "node gpu1: the disk is full: " in view.message, view
            assert "/snapshots: No space left on device; make room there" in view.message, view
            hosts[0].free_disk()
            lab.succeed(lab.live.submit("--on", "gpu1", "--", "echo again > result; ls much"))
        finally:
            lab.close()


# -- the campaign


@dataclass
class Round:
    """A batch over three hosts, and faults all over it."""

    lab: LinkLab
    number: int
    story: list[dict[str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(SEED * 1_000_003 + self.number)
        self.began = time.monotonic()

    def note(self, what: str, **more: object) -> None:
        self.story.append({"round": self.number, "at": round(time.monotonic() - self.began, 2), "what": what, **more})

    def run(self) -> list[str]:
        """What was found wrong."""
        lab = self.lab
        batch = lab.live.work / "batch"
        batch.write_text("".join(f"{self.line(number)}\n" for number in range(TASKS)))
        self.note("begin", seed=SEED, tasks=TASKS)
        job = lab.submit("-c", "0.25", str(batch))
        faults = [self.cut, self.cut, self.kill_sshd, self.kill_sessions, self.kill_agent, self.kill_server]
        chosen = self.random.sample(faults, 4)
        if self.number % 3 == 1:
            chosen.append(self.reboot)
        if self.number % 3 == 2:
            chosen.append(self.lose)
        self.random.shuffle(chosen)
        for fault in chosen:
            time.sleep(self.random.uniform(0.1, 0.8))
            fault(self.random.choice(list(lab.hosts)))
        for host in lab.hosts:
            host.restore()
            host.start_sshd()
        done = lab.live.yard("wait", "--timeout", "230s", job)
        self.note("end", code=done.returncode, said=done.stderr[-300:])
        problems = self.check(job) if done.returncode in (0, 1) else [f"{done}\n{lab.live.yard('nodes').stdout}"]
        self.note("checked", problems=problems, starts=sum(lab.starts().values()))
        return problems

    def line(self, number: int) -> str:
        """What a task does; some fail, one writes much."""
        pause, much = self.random.choice([0.0, 0.05, 0.3, 0.9]), 3000 if number == 7 else 1
        say = f"for i in {{1..{much}}}; do echo {number} $YARD_ATTEMPT $i; done"
        write = f"echo {number} $YARD_ATTEMPT > result"
        return f"{self.lab.mark}; {say}; sleep {pause}; {write}; echo e{number} >&2; exit {self.code(number)}"

    def code(self, number: int) -> int:
        return 3 if number % 60 == 11 else 0

    # -- faults

    def cut(self, host: Host) -> None:
        seconds = self.random.choice([0.3, 1.5, 4.5])
        self.note("cut", host=host.name, seconds=seconds)
        host.cut()
        time.sleep(seconds)
        host.restore()

    def kill_sshd(self, host: Host) -> None:
        self.note("kill sshd", host=host.name)
        host.kill_sshd()
        time.sleep(self.random.uniform(0, 1))
        host.start_sshd()

    def kill_sessions(self, host: Host) -> None:
        self.note("kill sshd's sessions", host=host.name)
        host.kill_sshd_sessions()

    def kill_agent(self, host: Host) -> None:
        self.note("kill agent", host=host.name, found=self.lab.kill_agent(host))

    def kill_server(self, host: Host) -> None:
        server = self.lab.live.server()
        self.note("kill server", found=bool(server and self.lab.live.kill(server.pid)))

    def reboot(self, host: Host) -> None:
        self.note("reboot", host=host.name)
        host.reboot()

    def lose(self, host: Host) -> None:
        self.note("cut for longer than the lease", host=host.name)
        host.cut()
        self.lab.until_state(host.name, NodeState.DOWN)
        host.restore()

    # -- checking

    def check(self, job: str) -> list[str]:
        lab, problems = self.lab, []
        events = lab.events()
        lost = {event.node for event in events if isinstance(event, NodeLost)}
        lost |= {str(item["host"]) for item in self.story if item["what"] == "reboot"}
        outcomes = [item for event in events if isinstance(event, AttemptsFinished) for item in event.items]
        counted = Counter(item.attempt for item in outcomes)
        problems += [f"{name} ended {times} times" for name, times in counted.items() if times > 1]
        view, starts, tasks = lab.live.client.job(job), lab.starts(), lab.tasks(job)
        failed = sum(1 for number in range(TASKS) if self.code(number))
        if (view.counts.succeeded, view.counts.failed) != (TASKS - failed, failed):
            problems.append(f"counted as {view.counts}")
        problems += [f"{name} began {times} times" for name, times in starts.items() if times > 1]
        if len(tasks) != TASKS:
            problems.append(f"{len(tasks)} tasks are told of")
        for task in tasks:
            problems += [f"task {task.number}: {what}" for what in self.wrong(job, task.number, task.attempt)]
            if not starts[task.number, task.attempt]:
                problems.append(f"task {task.number}: attempt {task.attempt} counts and never began")
            if task.exit_code != self.code(task.number):
                problems.append(f"task {task.number}: {task}")
        counts = {task.number: task.attempt for task in tasks}
        for number, attempt, node in lab.begun():
            if attempt != counts[number] and node not in lost:
                problems.append(f"attempt {attempt} of task {number} ran on {node}, which was never lost, for nothing")
        again = sum(task.attempt > 1 for task in tasks)
        self.note("counted", again=again, lost=sorted(lost), events=len(events))
        return problems

    def wrong(self, job: str, number: int, attempt: int) -> Iterator[str]:
        """Logs and results are those of the attempt that counts, and whole."""
        lines = 3000 if number == 7 else 1
        out = "".join(f"{number} {attempt} {line}\n" for line in range(1, lines + 1)).encode()
        home = self.lab.live.work / "job_results" / job
        # Labels of a batch are its line numbers.
        label = next(task.label for task in self.lab.tasks(job)[number : number + 1])
        seen = {
            "out": self.lab.live.raw(job, label, "out"),
            "err": self.lab.live.raw(job, label, "err"),
        }
        if seen["out"] != out or seen["err"] != f"e{number}\n".encode():
            yield f"its output is {seen['out'][-100:]!r} and {seen['err'][-100:]!r}, of attempt {attempt}"
        found = {path.name: path.read_text() for path in (home / label).iterdir()} if (home / label).is_dir() else {}
        if found != {"result": f"{number} {attempt}\n"}:
            yield f"its results are {found}, of attempt {attempt}"
        if (home / f"{label}.out").read_bytes() != out:
            yield "its output at home is not whole"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [1, *long(0, *range(2, ROUNDS))])
def test_whatever_goes_nothing_is_lost_and_nothing_counted_twice(
    number: int, hosts: Hosts, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = Path(os.environ.get("JOBYARD_ARTEFACTS") or tmp_path_factory.getbasetemp() / "links")
    directory.mkdir(parents=True, exist_ok=True)
    lab = LinkLab(hosts, lease=LEASE_SECONDS)
    round_ = Round(lab, number)
    try:
        problems = round_.run()
        assert not problems, "\n".join(problems[:30])
    finally:
        (directory / f"links-{SEED}-{number:03}.jsonl").write_text("".join(json.dumps(s) + "\n" for s in round_.story))
        lab.close()
        hosts.renew()
