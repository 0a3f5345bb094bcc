"""`yard exec` and `yard port-forward` into containers of a real engine: the command is where its task is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_exec import fetched, forwarded, line_of
from tests.engines import Engine, engine, podman  # noqa: F401 - a fixture
from tests.hosts import Hosts
from tests.waiting import until
from tests.yards import TemporaryYard

pytestmark = pytest.mark.slow
SERVES = "mkdir /tmp/www; echo from inside > /tmp/www/page; echo in; exec httpd -f -p 8080 -h /tmp/www"


@pytest.fixture(scope="module")
def shared(engine: Engine) -> Iterator[TemporaryYard]:  # noqa: F811
    with TemporaryYard(JOBYARD_CONTAINER_RUNTIME=engine.command) as yard:
        yard.env["SMALL"] = engine.load_small()
        yield yard


@pytest.fixture
def lab(shared: TemporaryYard, tmp_path: Path) -> Iterator[TemporaryYard]:
    shared.work = tmp_path / "work"
    shared.work.mkdir()
    try:
        yield shared
    finally:
        shared.settle()


def inside(lab: TemporaryYard, *words: str) -> str:
    """A job whose task says `in` once it runs in its container."""
    job = lab.submit("--container", "--image", lab.env["SMALL"], *words)
    until(lambda: lab.run("logs", job).out.startswith("in\n"))
    return job


def test_a_command_is_in_the_container_with_its_directory_and_variables(lab: TemporaryYard) -> None:
    job = inside(lab, "-e", "A=1  2\n3", "--", "touch /only-in-here; echo in; sleep 60")
    script = 'ls /only-in-here; pwd; echo "$A|$YARD_TASK"; exit 3'
    done = lab.run("exec", job, "--", "sh", "-c", script)
    assert (done.code, done.out) == (3, f"/only-in-here\n{lab.work}\n1  2\n3|0\n"), done.err
    data = b"\x00\xff" * 50_000
    assert lab.run("exec", "-i", job, "--", "cat", input=data).stdout == data
    missing = lab.run("exec", job, "--", "no-such-program")
    assert missing.code in (126, 127), "the runtime's own code: engines before 23 say 126"
    assert "executable file not found" in missing.out + missing.err


def test_a_command_in_a_container_gets_a_terminal(lab: TemporaryYard) -> None:
    job = inside(lab, "--", "echo in; sleep 60")
    with lab.terminal("exec", "-it", job, "--", "sh", "-c", "tty; read a; echo got-$a", columns=91) as screen:
        screen.until("/dev/pts/")
        screen.press(b"word\r")
        screen.until("got-word")
        assert screen.ended() == 0


def test_a_command_in_a_container_ends_with_its_task(lab: TemporaryYard) -> None:
    job = inside(lab, "--", "echo in; sleep 1000")
    with lab.start("exec", job, "--", "sh", "-c", "echo begun; exec sleep 1234") as process:
        assert line_of(process.stdout) == "begun\n"
        lab.ok("cancel", "--force", job)
        assert process.wait() != 0


def test_a_port_of_a_container_is_that_of_its_machine(lab: TemporaryYard) -> None:
    job = inside(lab, "--", SERVES)
    with forwarded(lab, job, ":8080") as (_, local):
        assert fetched(local, "page") == b"from inside\n"


@pytest.mark.skipif(os.getuid() != 0, reason="an sshd of this user cannot be asked for its own machine's engine")
def test_a_container_behind_ssh_is_entered_too(engine: Engine) -> None:  # noqa: F811
    os.makedirs("/run/sshd", exist_ok=True)  # an sshd of root wants it
    with (
        Hosts(1, kind="loopback", environment={"JOBYARD_CONTAINER_RUNTIME": engine.command}) as hosts,
        TemporaryYard(YARD_SSH_CONFIG=str(hosts.config_file)) as lab,
    ):
        lab.env["SMALL"] = engine.load_small()
        lab.ok("nodes", "add", hosts[0].name)
        job = inside(lab, "--on", "ssh", "-e", "A=1  2", "--", f"touch /only-in-here; {SERVES}")
        done = lab.run("exec", "-i", job, "--", "sh", "-c", 'ls /only-in-here; echo "$A"; cat; exit 3', input="typed")
        assert (done.code, done.out) == (3, "/only-in-here\n1  2\ntyped"), done.err
        sized = "until stty size 2> /dev/null | grep '30 91'; do sleep 0.05; done"  # docker tells it after the start
        with lab.terminal("exec", "-it", job, "--", "sh", "-c", sized, columns=91) as screen:
            screen.until("30 91")
            assert screen.ended() == 0
        with forwarded(lab, job, ":8080") as (_, local):
            assert fetched(local, "page") == b"from inside\n"
        lab.settle()


def test_a_container_of_podman_is_entered_too() -> None:
    with podman() as found, TemporaryYard(JOBYARD_CONTAINER_RUNTIME=found.command, **found.env) as lab:
        lab.env["SMALL"] = found.load_small()
        job = inside(lab, "-e", "A=1  2", "--", "touch /only-in-here; echo in; sleep 60")
        done = lab.run("exec", "-i", job, "--", "sh", "-c", 'ls /only-in-here; echo "$A"; cat; exit 3', input="typed")
        assert (done.code, done.out) == (3, "/only-in-here\n1  2\ntyped"), done.err
        lab.settle()
