"""One death at a time, at the moment that hurts most."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.faults.live_yard import LiveYard
from tests.marks import long
from tests.waiting import long_until

from jobyard.agent.system import processes
from jobyard.agent_protocol import records
from jobyard.model.job import Reason, State

pytestmark = pytest.mark.slow

WAITS = "echo began; touch began; until [ -e go ]; do sleep 0.02; done; echo went; echo loud >&2; exit 5"
WENT = b"began\nwent\n"


def record_of(live: LiveYard, job: str, task: int = 0) -> records.Record | None:
    return records.read(records.paths(str(live.directory / "agent"), f"{job}.{task}.1").record)


def ended(live: LiveYard, job: str) -> bool:
    record = record_of(live, job)
    return record is not None and record.ending is not None


def a_running_job(live: LiveYard, *flags: str) -> str:
    job = live.submit(*flags, "--", "bash", "-c", WAITS)
    long_until((live.work / "began").exists)
    long_until(lambda: live.client.job(job).state is State.RUNNING)
    return job


def ended_with_5(live: LiveYard, job: str) -> None:
    view = live.wait(job)
    assert (view.state, view.exit_code) == (State.FAILED, 5)
    assert live.raw(job, "0", "out") == WENT
    assert live.raw(job, "0", "err") == b"loud\n"


def test_a_job_is_there_and_runs_when_the_server_dies_right_after_the_answer(live: LiveYard) -> None:
    live.yard("server", "start")
    job = live.submit("--", "bash", "-c", "echo ran >> ran")
    live.kill(live.server_pid)
    assert live.wait(job).state is State.SUCCEEDED
    assert (live.work / "ran").read_text() == "ran\n"


@pytest.mark.parametrize("point", ["server-committing", *long("server-committed")])
@pytest.mark.long
def test_a_submit_over_the_death_of_the_server_makes_one_job(live: LiveYard, point: str) -> None:
    live.yard("doctor")
    live.arm(point)
    job = live.submit("--", "bash", "-c", "echo ran >> ran")
    live.await_death_at(point)
    assert live.wait(job).state is State.SUCCEEDED
    assert [view.id for view in live.client.jobs(all=True)] == [job]
    assert (live.work / "ran").read_text() == "ran\n"


@pytest.mark.long
def test_a_task_that_ends_while_the_server_is_dead_is_reported_with_its_code_and_output(live: LiveYard) -> None:
    job = a_running_job(live)
    live.kill(live.server_pid)
    (live.work / "go").touch()
    long_until(lambda: ended(live, job))
    ended_with_5(live, job)


@pytest.mark.long
def test_a_task_that_ends_while_the_agent_is_dead_is_reported_with_its_code_and_output(live: LiveYard) -> None:
    job = a_running_job(live)
    live.kill(live.agent_pid)
    (live.work / "go").touch()
    ended_with_5(live, job)


def test_a_task_that_ends_while_server_and_agent_are_dead_is_reported_with_its_code_and_output(live: LiveYard) -> None:
    job = a_running_job(live)
    view = live.with_agent()
    assert view.agents[0].pid
    live.kill(view.agents[0].pid)
    live.kill(view.pid)
    (live.work / "go").touch()
    long_until(lambda: ended(live, job))
    ended_with_5(live, job)


def test_the_agent_brings_a_dead_server_back_while_a_queue_is_left(live: LiveYard) -> None:
    running = a_running_job(live)
    line = "echo $YARD_TASK >> queue"
    waiting = live.submit("--after", f"afterany:{running}", "-a", "0-4", "--", "bash", "-c", line)
    live.kill(live.server_pid)
    (live.work / "go").touch()
    queue = live.work / "queue"
    long_until(lambda: queue.exists() and len(queue.read_text().split()) == 5)
    long_until(lambda: live.server() is not None and live.client.job(waiting).state is State.SUCCEEDED)
    assert sorted(queue.read_text().split()) == ["0", "1", "2", "3", "4"]


@pytest.mark.long
def test_the_agent_brings_a_server_back_that_died_while_nothing_ran(live: LiveYard) -> None:
    # One after another: when the first has ended, the agent has nothing, and only the server knows that there is more.
    live.arm("server-finishing")
    job = live.submit("-a", "0-2%1", "--", "bash", "-c", "sleep 0.5; echo $YARD_TASK >> queue")
    live.await_death_at("server-finishing")
    queue = live.work / "queue"
    long_until(lambda: queue.exists() and len(queue.read_text().split()) == 3)
    long_until(lambda: live.server() is not None and live.client.job(job).state is State.SUCCEEDED)
    assert queue.read_text().split() == ["0", "1", "2"]


def test_a_server_that_dies_between_its_commit_and_its_launch_launches_once(live: LiveYard) -> None:
    live.yard("doctor")
    live.arm("server-launching")
    job = live.submit("--", "bash", "-c", "echo ran >> ran")
    live.await_death_at("server-launching")
    assert live.wait(job).state is State.SUCCEEDED
    assert (live.work / "ran").read_text() == "ran\n"


def test_a_job_goes_on_when_the_cli_that_follows_it_is_killed(live: LiveYard) -> None:
    child = live.start("run", "-n", "followed", "--", "bash", "-c", WAITS)
    long_until((live.work / "began").exists)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    (live.work / "go").touch()
    ended_with_5(live, "followed")


def test_a_cli_follows_a_job_over_the_death_of_the_server_and_exits_with_its_code(live: LiveYard) -> None:
    child = live.start("run", "--exit-code", "--", "bash", "-c", WAITS)
    long_until((live.work / "began").exists)
    live.kill(live.server_pid)
    (live.work / "go").touch()
    done = live.ended(child)
    assert done.returncode == 5, done
    assert done.stdout.encode() == WENT
    assert "loud\n" in done.stderr


def test_a_cancel_that_was_acknowledged_holds_when_the_server_dies(live: LiveYard) -> None:
    job = a_running_job(live)
    # Nothing that is sent after the commit arrives: the agent is stopped, then killed.
    agent = live.agent_pid
    os.kill(agent, signal.SIGSTOP)
    assert live.yard("cancel", job).returncode == 0
    live.kill(live.server_pid)
    live.kill(agent)
    view = live.wait(job)
    assert (view.state, view.reason) == (State.CANCELLED, Reason.CANCELLED)
    record = record_of(live, job)
    assert record is not None
    assert record.ending is not None
    assert record.ending.signal == signal.SIGTERM


@pytest.mark.long
def test_a_cancel_whose_commit_kills_the_server_is_asked_again_and_holds(live: LiveYard) -> None:
    job = a_running_job(live)
    live.arm("server-committed")
    assert live.yard("cancel", job).returncode == 0
    live.await_death_at("server-committed")
    assert live.wait(job).state is State.CANCELLED


def test_a_lane_that_is_killed_costs_one_status_and_its_siblings_go_on(live: LiveYard) -> None:
    line = "echo $YARD_TASK >> ran; [ $YARD_TASK != 0 ] || { touch began; until [ -e go ]; do sleep 0.02; done; }"
    job = live.submit("-c", "0.5", "-a", "0-5", "--", "bash", "-c", line)
    long_until((live.work / "began").exists)
    claim = long_until(lambda: (found := record_of(live, job)) and found.start and found.claim)
    assert claim
    live.kill(claim.lane_pid)
    (live.work / "go").touch()
    assert live.wait(job).state is State.FAILED
    tasks = live.tasks(job)
    assert (tasks["0"].state, tasks["0"].reason, tasks["0"].exit_code) == (State.FAILED, Reason.UNKNOWN, None)
    assert {tasks[label].state for label in "12345"} == {State.SUCCEEDED}
    assert sorted((live.work / "ran").read_text().split()) == list("012345")


def test_a_pid_that_is_somebody_elses_by_now_is_not_taken_for_the_task(live: LiveYard) -> None:
    job = a_running_job(live)
    view = live.with_agent()
    assert view.agents[0].pid
    live.kill(view.agents[0].pid)
    live.kill(view.pid)
    record = record_of(live, job)
    assert record is not None
    assert record.claim is not None
    assert record.start is not None
    for pid in (record.claim.lane_pid, record.start.pid):
        live.kill(pid)
    # This very process is alive, and it is neither that lane nor that task: it began at another time.
    path = Path(records.paths(str(live.directory / "agent"), f"{job}.0.1").record)
    mine = os.getpid()
    other = processes.start_time(mine) + 1
    path.write_bytes(
        records.claim_line(processes.boot_id(), mine, other, None, None) + records.start_line(mine, other, time.time())
    )
    view_at_end = live.wait(job)
    assert (view_at_end.state, view_at_end.reason, view_at_end.exit_code) == (State.FAILED, Reason.UNKNOWN, None)


def test_whoever_comes_while_others_start_the_server_finds_it(live: LiveYard) -> None:
    live.yard("server", "start")
    live.kill(live.server_pid)
    # As the agent does it: without asking anybody.
    starter = [sys.executable, "-P", "-m", "jobyard.server", "--yard", str(live.directory), "--background"]
    starters = [subprocess.Popen(starter, env=live.env, stderr=subprocess.DEVNULL) for _ in range(2)]
    children = [live.start("run", "--", "echo", "hi") for _ in range(3)]
    for done in map(live.ended, children):
        assert (done.returncode, done.stdout) == (0, "hi\n"), done
    assert sorted(child.wait() for child in starters)[-1] <= 1


def test_a_stale_socket_is_replaced(live: LiveYard) -> None:
    live.yard("doctor")
    live.kill(live.agent_pid)
    live.kill(live.server_pid)
    path = Path(live.client.address.socket)
    assert path.is_socket()
    path.unlink()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))  # nobody ever listens on it
    done = live.yard("run", "--", "echo", "hi")
    assert (done.returncode, done.stdout) == (0, "hi\n")


@pytest.mark.parametrize("harm", ["torn", *long("empty", "foreign", "of a newer journal")])
def test_a_snapshot_that_is_no_good_is_ignored(live: LiveYard, harm: str) -> None:
    first = live.submit("--", "true")
    live.wait(first)
    live.yard("server", "stop")
    snapshot, database = live.directory / "snapshot.json", live.directory / "yard.db"
    whole = snapshot.read_bytes()
    if harm == "of a newer journal":
        with sqlite3.connect(database) as older:
            older.execute("delete from journal where seq > 1")
        older.close()
    else:
        snapshot.write_bytes({"torn": whole[: len(whole) // 2], "empty": b"", "foreign": b"cos\nhello\n"}[harm])
    live.yard("doctor")
    known = [view.id for view in live.client.jobs(all=True)]
    assert known == ([] if harm == "of a newer journal" else [first])
    assert live.yard("run", "--", "true").returncode == 0


def test_a_server_that_is_told_to_leave_in_the_middle_of_work_forgets_and_repeats_nothing(live: LiveYard) -> None:
    line = "echo $YARD_TASK >> ran"
    job = live.submit("-c", "0.5", "-a", "0-199", "--", "bash", "-c", line)
    ran = live.work / "ran"
    for least in (20, 80, 140):
        long_until(lambda least=least: ran.exists() and len(ran.read_text().split()) > least)  # type: ignore[misc]
        live.yard("server", "stop", "--force")
        assert live.yard("show", job).returncode == 0
    assert live.wait(job).state is State.SUCCEEDED
    assert sorted(map(int, ran.read_text().split())) == list(range(200))


FULL_MIB = 24


def a_small_disk(live: LiveYard) -> Path:
    """The yard's directory on a file system of its own, which can be filled."""
    if os.getuid() != 0:
        pytest.skip("only root may mount the small file system that is to be filled")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={FULL_MIB}m,mode=0700", "tmpfs", str(live.directory)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    return live.directory


def fill(directory: Path) -> Path:
    """Take all the room there is, down to the last block."""
    path = directory / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return path


def test_a_full_disk_refuses_a_submit_with_one_sentence_and_leaves_no_half_job(live: LiveYard) -> None:
    disk = a_small_disk(live)
    try:
        job = a_running_job(live)
        filler = fill(disk)
        refused = live.yard("submit", "-n", "refused", "--", "bash", "-c", "echo refused >> ran")
        assert refused.returncode != 0
        assert refused.stdout == ""
        assert refused.stderr.startswith("yard: ")
        assert refused.stderr.count("\n") == 1, refused.stderr
        assert "disk" in refused.stderr
        filler.unlink()
        long_until(lambda: live.yard("run", "-n", "later", "--", "bash", "-c", "echo later >> ran").returncode == 0)
        (live.work / "go").touch()
        ended_with_5(live, job)
        assert "refused" not in [view.name for view in live.client.jobs(all=True)]
        assert (live.work / "ran").read_text() == "later\n"
        assert not live.stop()
    finally:
        live.remove()
        subprocess.run(["umount", "-l", str(disk)], check=False)
        shutil.rmtree(live.root, ignore_errors=True)
