"""The background server: it comes by itself, leaves when idle, never while work is pending, is replaced when stale."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from jobyard.model.job import Command, GroupSpec, JobSpec
from tests.conftest import MakeYard
from tests.waiting import until
from tests.yards import SOURCE, TemporaryYard, is_alive


def test_status_start_and_stop(own_yard: TemporaryYard) -> None:
    status = own_yard.run("server", "status")
    assert status.code == 3
    assert "no server runs" in status.err
    assert own_yard.run("server", "status", "-o", "json").json == {"running": False}
    started = own_yard.json("server", "start")
    assert own_yard.json("server", "start")["pid"] == started["pid"] == own_yard.server_pid()
    assert str(own_yard.socket) in own_yard.ok("server", "status").out
    assert "stopped" in own_yard.ok("server", "stop").err
    assert not is_alive(started["pid"])
    assert "no server was running" in own_yard.ok("server", "stop").err
    assert "serving" in own_yard.ok("server", "logs").out


def test_ten_callers_at_once_start_one_server(own_yard: TemporaryYard) -> None:
    calls = [own_yard.start("run", "-q", "--cpus", "0.1", "--", "true") for _ in range(6)]
    for call in calls:
        _, err = call.communicate(timeout=60)
        assert call.returncode == 0, err
    assert len(own_yard.json("ls", "-a")) == 6
    assert own_yard.ok("server", "logs").out.count(" serving ") == 1


def test_stopping_is_refused_while_work_is_pending_and_work_survives_force(own_yard: TemporaryYard) -> None:
    job = own_yard.submit("--", "while [ ! -e go-on ]; do sleep 0.02; done; echo survived")
    own_yard.wait_state(job, "RUNNING")
    refused = own_yard.run("server", "stop")
    assert refused.code == 2
    assert "not finished" in refused.err
    assert "--force" in refused.err
    own_yard.ok("server", "stop", "--force")
    own_yard.write("go-on", "")
    assert own_yard.run("wait", job).code == 0
    assert own_yard.logs(job) == "survived\n"


@pytest.mark.slow
def test_an_idle_server_leaves_with_its_agent_and_never_while_work_is_pending(make_yard: MakeYard) -> None:
    yard = make_yard(YARD_IDLE_SECONDS="1")
    job = yard.submit("--", "while [ ! -e go-on ]; do sleep 0.02; done")
    pid, agent = yard.server_pid(), yard.agent_pid()
    assert pid is not None
    time.sleep(3)  # nothing would tell that it does not leave
    assert is_alive(pid)
    yard.write("go-on", "")
    until(lambda: not is_alive(pid), seconds=60)
    assert not yard.socket.exists()
    until(lambda: not is_alive(agent))
    assert yard.ok("ls", "-q", "--state", "succeeded").out.split() == ["1"]
    assert yard.job("1")["id"] == job


@pytest.mark.slow
def test_a_stale_server_is_replaced_when_idle_and_used_when_busy(make_yard: MakeYard, tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(SOURCE / "jobyard", source / "jobyard", ignore=shutil.ignore_patterns("__pycache__"))
    yard = make_yard(PYTHONPATH=str(source))
    yard.ok("run", "--", "true")
    old = yard.server_pid()
    assert old is not None
    os.utime(source / "jobyard" / "errors.py", (1, 1))
    # Busy: it is kept, and that is said.
    job = yard.client.submit(_spec(yard, "while [ ! -e go-on ]; do sleep 0.02; done"))
    done = yard.ok("ls")
    assert "other code" in done.err
    assert yard.server_pid() == old
    yard.write("go-on", "")
    until(lambda: yard.client.job(job.id).state.is_final)
    # Idle: the next call gets one of its own code, and nothing is lost.
    done = yard.ok("ls", "-q")
    assert done.err == ""
    assert str(job.number) in done.out.split()
    assert yard.server_pid() != old
    assert not is_alive(old)


def _spec(yard: TemporaryYard, line: str) -> JobSpec:
    env = {"PATH": os.environ["PATH"], "JOBYARD_TEST_YARD": str(yard.root)}
    return JobSpec("busy", (GroupSpec(Command(shell=line)),), workdir=str(yard.work)).with_shell(env)


def test_nothing_is_written_outside_the_xdg_directories(make_yard: MakeYard) -> None:
    yard = make_yard()
    places = {
        "XDG_DATA_HOME": "data",
        "XDG_CONFIG_HOME": "config",
        "XDG_STATE_HOME": "state",
        "XDG_CACHE_HOME": "cache",
    }
    yard.env.update({name: str(yard.root / place) for name, place in places.items()})
    del yard.env["YARD_DIR"]
    yard.directory = yard.root / "data" / "jobyard"
    yard.ok("run", "--", "true")
    yard.ok("doctor")
    assert list(yard.home.rglob("*")) == []
    assert list(yard.work.iterdir()) == []
    assert (yard.root / "data" / "jobyard" / "yard.db").exists()
    assert sorted(path.name for path in (yard.root / "data").iterdir()) == ["jobyard"]
    assert sorted(path.name for path in (yard.root / "cache").iterdir()) == ["jobyard"]
    assert (yard.directory.stat().st_mode & 0o777, yard.socket.stat().st_mode & 0o777) == (0o700, 0o600)


def test_without_xdg_everything_is_in_the_usual_places(make_yard: MakeYard) -> None:
    yard = make_yard()
    for name in ("YARD_DIR", "XDG_CACHE_HOME"):
        del yard.env[name]
    yard.directory = yard.home / ".local" / "share" / "jobyard"
    yard.ok("run", "--", "true")
    tops = {str(path.relative_to(yard.home)) for path in yard.home.glob(".*/*")}
    assert tops <= {".local/share", ".cache/jobyard"}
    assert (yard.directory / "yard.db").exists()


@pytest.mark.slow
def test_two_yards_on_one_machine_share_it(make_yard: MakeYard) -> None:
    first = make_yard()
    second = make_yard(JOBYARD_RESERVATIONS_DIR=first.env["JOBYARD_RESERVATIONS_DIR"])
    cpus = str(os.cpu_count())
    held = first.submit("--cpus", cpus, "--", "while [ ! -e free ]; do sleep 0.02; done")
    first.wait_state(held, "RUNNING")
    waiting = second.submit("--cpus", cpus, "--", "echo my turn")
    agent = first.agent_pid()
    text = until(lambda: said if f"(agent {agent})" in (said := second.ok("why", waiting).out) else None)
    assert "yard of" in text
    assert second.job(waiting)["state"] == "PENDING"
    assert f"agent {agent}" in second.ok("nodes").out
    first.write("free", "")
    assert second.run("wait", waiting).code == 0
    assert second.logs(waiting) == "my turn\n"


def test_room_that_another_yard_took_meanwhile_is_not_asked_for_again_and_again(make_yard: MakeYard) -> None:
    first = make_yard()
    second = make_yard(JOBYARD_RESERVATIONS_DIR=first.env["JOBYARD_RESERVATIONS_DIR"])
    second.ok("nodes")  # it has seen an empty machine
    cpus = str(os.cpu_count())
    first.wait_state(first.submit("--cpus", cpus, "--", "sleep", "60"), "RUNNING")
    waiting = second.submit("--cpus", cpus, "--", "true")
    until(lambda: second.job(waiting)["reason"] == "Resources")
    refusals = (second.directory / "server.log").read_text().count("was refused")
    assert refusals <= 2
    assert second.job(waiting)["state"] == "PENDING"


def test_help_and_version_need_no_server(own_yard: TemporaryYard) -> None:
    assert "Verbs" in own_yard.ok("--help").out
    assert "yard" in own_yard.ok("--version").out
    for verb in ("run", "submit", "ls", "show", "logs", "cancel", "wait", "retry", "why", "nodes", "schema", "doctor"):
        assert "--help" in own_yard.ok(verb, "--help").out
    assert list(own_yard.directory.iterdir()) == []
