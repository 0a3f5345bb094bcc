"""`yard exec` and `yard port-forward` behind real sshds: what a command beside a local task can do, it can do there."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_exec import SERVES, fetched, forwarded, line_of, running, told
from tests.hosts import Host, Hosts
from tests.security.servers import team_server
from tests.waiting import until
from tests.yards import TemporaryYard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(1) as made:
        yield made


@pytest.fixture
def host(hosts: Hosts) -> Host:
    return hosts["gpu1"]


@pytest.fixture(scope="module")
def shared(hosts: Hosts) -> Iterator[TemporaryYard]:
    with TemporaryYard(YARD_SSH_CONFIG=str(hosts.config_file), YARD_ALIVE_SECONDS="1") as yard:
        yard.ok("nodes", "add", "gpu1")
        yield yard


@pytest.fixture
def lab(shared: TemporaryYard, tmp_path: Path) -> Iterator[TemporaryYard]:
    shared.work = tmp_path / "project"
    shared.work.mkdir()
    try:
        yield shared
    finally:
        shared.settle()


ON = ("--on", "gpu1")


def test_a_command_finds_the_tasks_own_copy_and_its_variables(lab: TemporaryYard) -> None:
    lab.write("given", "from here\n")
    job = running(lab, *ON, "-e", "A=1 'x'\n2", "--", "sleep 60")
    done = lab.run("exec", job, "--", "sh", "-c", 'cat given; hostname; echo "$A|$YARD_TASK"; exit 3')
    assert (done.code, done.out, done.err) == (3, "from here\ngpu1\n1 'x'\n2|0\n", "")


def test_streams_and_exit_codes_cross_the_link_unchanged(lab: TemporaryYard) -> None:
    job = running(lab, *ON, "--", "sleep 60")
    data = b"\x00\xff~.\r\n" * 50_000
    done = lab.run("exec", "-i", job, "--", "sh", "-c", "cat; echo wrong >&2; exit 5", input=data)
    assert (done.code, done.stdout, done.err) == (5, data, "wrong\n")
    words = lab.run("exec", job, "--", "printf", "%s|", "a  b", "$HOME", "'", "--")
    assert words.out == "a  b|$HOME|'|--|"
    missing = lab.run("exec", job, "--", "no-such-program")
    assert (missing.code, missing.err) == (127, "yard: no-such-program: command not found\n")


def test_a_terminal_there_has_the_size_of_ours(lab: TemporaryYard) -> None:
    job = running(lab, *ON, "--", "sleep 60")
    with lab.terminal("exec", "-it", job, "--", "sh", "-c", "stty size; read a; echo got-$a", columns=91) as screen:
        screen.until("30 91")
        screen.press(b"word\r")
        screen.until("got-word")
        assert screen.ended() == 0


def test_who_leaves_takes_the_command_there_along(lab: TemporaryYard, host: Host) -> None:
    job = running(lab, *ON, "--", "sleep 60")
    with lab.start("exec", job, "--", "sh", "-c", "echo begun; exec sleep 1234") as process:
        assert line_of(process.stdout) == "begun\n"
        assert any("sleep 1234" in each.command for each in host.processes())
        process.send_signal(signal.SIGINT)
        process.wait()
    until(lambda: not any("sleep 1234" in each.command for each in host.processes()))


def test_a_command_there_ends_with_its_task(lab: TemporaryYard) -> None:
    job = running(lab, *ON, "--", "sleep 1000")
    with lab.start("exec", job, "--", "sh", "-c", "echo begun; exec sleep 1234") as process:
        assert line_of(process.stdout) == "begun\n"
        lab.ok("cancel", "--force", job)
        assert re.search(r"task 0 of job \d+ on gpu1 has ended, and what runs beside it ends with it", told(process))
        assert process.wait() == 128 + signal.SIGTERM


def test_a_port_of_a_task_there_is_reached_here_until_the_task_ends(lab: TemporaryYard) -> None:
    lab.write("large", os.urandom(3_000_000))
    lab.write("serve.py", SERVES)
    job = running(lab, *ON, "--", "exec python3 serve.py 2> /dev/null")
    port = until(lambda: lab.run("exec", job, "--", "cat", "port").out)
    with forwarded(lab, job, f":{port}") as (process, local):
        assert fetched(local, "large") == (lab.work / "large").read_bytes()
        lab.ok("cancel", "--force", job)
        assert (process.wait(), "has ended; its ports are no longer forwarded" in told(process)) == (2, True)


def test_a_machine_that_does_not_answer_is_said_by_ssh(lab: TemporaryYard, host: Host) -> None:
    job = running(lab, *ON, "--", "sleep 60")
    host.stop_sshd()
    try:
        done = lab.run("exec", job, "--", "true")
        assert (done.code, "ssh: connect to host" in done.err) == (255, True)
    finally:
        host.start_sshd()


def test_with_a_server_elsewhere_the_callers_own_ssh_leads_to_its_machines(hosts: Hosts) -> None:
    with TemporaryYard(YARD_SSH_CONFIG=str(hosts.config_file)) as yard, team_server(yard) as team:
        yard.ok("nodes", "add", "gpu1")
        env = team.env("bob")
        job = yard.submit(*ON, "--no-copy", "--", "sleep 60", env=env)
        yard.wait_state(job, "RUNNING")
        done = yard.run("exec", "-i", job, "--", "sh", "-c", "hostname; cat", input="typed", env=env)
        assert (done.code, done.out) == (0, "gpu1\ntyped"), done.err
        without = yard.run("exec", job, "--", "true", env={**env, "YARD_SSH_CONFIG": "/dev/null"})
        assert (without.code, without.err.startswith("ssh: Could not resolve hostname gpu1")) == (255, True)
