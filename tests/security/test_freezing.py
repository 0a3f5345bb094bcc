"""Nobody can freeze it: a real server, and clients that do their worst."""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.conftest import MakeYard
from tests.security.conftest import MakeTeam
from tests.security.servers import API, SECONDS
from tests.waiting import until
from tests.yards import TemporaryYard

HALF_A_HEADER = b"GET /api/v1/jobs HTTP/1.1\r\nHost: yard\r\nX-Begun: "
JSON = {"Content-Type": "application/json"}
FEW_FILES = ("/bin/sh", "-c", 'ulimit -n 200 && exec "$@"', "sh")  # soft and hard


@contextmanager
def in_background(yard: TemporaryYard) -> Iterator[tuple[str, int]]:
    """A server on TCP whose log is a file, as after a restart by the agent."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--yard", str(yard.directory), "--background", "--listen", f"127.0.0.1:{port}"]
    command = [*yard.prefix, sys.executable, "-P", "-m", "jobyard.server", *words]
    subprocess.run(command, env=yard.env, check=True, timeout=SECONDS)
    yield "127.0.0.1", port


def whole_log(yard: TemporaryYard) -> str:
    return (yard.directory / "server.log").read_text()


def peak_mib(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) >> 10


def head_of_post(token: str) -> str:
    words = {"Host": "yard", "Authorization": f"Bearer {token}", **JSON}
    return f"POST {API}/jobs HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in words.items())


def is_closed(link: socket.socket) -> bool:
    """Waits until the other side closes it, or it says something."""
    try:
        return link.recv(1) == b""
    except ConnectionError:
        return True


def test_half_a_header_is_closed_and_nothing_is_said_of_it(make_team: MakeTeam) -> None:
    team = make_team(YARD_HEADER_SECONDS="0.2")
    with team.connect() as silent, team.connect() as half:
        half.sendall(HALF_A_HEADER)
        assert is_closed(half)
        assert is_closed(silent)
    assert team.is_alive()


def test_three_hundred_half_headers_leave_the_server_its_descriptors(make_yard: MakeYard) -> None:
    """Before: 2048 lines of log for each try to accept, a spinning loop, and no answer on the socket."""
    yard = make_yard(FEW_FILES, YARD_HEADER_SECONDS="600")
    with in_background(yard) as address, ExitStack() as held:
        before = len(whole_log(yard).splitlines())
        refused = 0
        for _ in range(300):
            link = held.enter_context(socket.create_connection(address, timeout=SECONDS))
            try:
                link.sendall(HALF_A_HEADER)
            except ConnectionError:
                refused += 1
        # The journal, the agent and the owner's socket go on.
        assert yard.ok("run", "--", "echo", "still", "here").out == "still here\n"
        assert yard.json("ls")[0]["state"] == "SUCCEEDED"
        log = whole_log(yard)
        assert "Too many open files" not in log
        assert len(log.splitlines()) - before < 60
        assert "a connection of 127.0.0.1 without a token was closed for another: 127.0.0.1 has" in log


def from_address(address: str, server: tuple[str, int], token: str) -> http.client.HTTPConnection:
    """A connection of a caller who is at this address, with one request answered."""
    caller = http.client.HTTPConnection(*server, timeout=SECONDS, source_address=(address, 0))
    caller.request("GET", f"{API}/jobs", headers={"Authorization": f"Bearer {token}"})
    answer = caller.getresponse()
    assert answer.status == 200
    assert answer.read()
    return caller


def test_whoever_has_a_token_is_let_in_while_strangers_hold_all_connections(make_yard: MakeYard) -> None:
    """Before: four addresses with half headers took all 1,024, and everybody else got a 503."""
    yard = make_yard(FEW_FILES, YARD_HEADER_SECONDS="600", YARD_KEEP_ALIVE_SECONDS="600")
    strangers = [f"127.0.0.{number}" for number in range(2, 6)]
    with in_background(yard) as server, ExitStack() as held:
        token = yard.json("token", "create", "ada")["secret"]

        def begin(address: str) -> socket.socket:
            link = held.enter_context(socket.create_connection(server, SECONDS, (address, 0)))
            link.sendall(HALF_A_HEADER)
            return link

        early = held.enter_context(closing(from_address("127.0.0.9", server, token)))
        oldest = [begin(strangers[0]) for _ in range(2)]
        for number in range(200):  # the server has 50 in all
            begin(strangers[number % len(strangers)])
        assert all(map(is_closed, oldest))
        for address in ("127.0.0.9", strangers[0]):
            from_address(address, server, token).close()
        for number in range(100):
            begin(strangers[number % len(strangers)])
        early.request("GET", f"{API}/jobs", headers={"Authorization": f"Bearer {token}"})
        assert early.getresponse().status == 200  # over the connection that it has had all the time


def test_who_has_taken_a_share_is_refused_with_a_sentence_and_let_in_again(make_team: MakeTeam) -> None:
    team = make_team(YARD_CONNECTIONS_PER_PEER="4")
    with ExitStack() as open_streams:
        for holder in ("ada", "ada", "ada", "bob"):
            assert open_streams.enter_context(team.stream("events", team.token(holder))).status == 200
        said = team.ask("GET", "healthz")
        assert said.status == 503
        assert said.sentence == "127.0.0.1 has 4 open connections already; close some, or try again"
        assert team.ask_socket("GET", "healthz").status == 200
    until(team.is_alive)


def test_one_caller_cannot_take_all_connections_for_streams(make_team: MakeTeam) -> None:
    team = make_team(YARD_CONNECTIONS_PER_PEER="8")
    token = team.token("ada")
    with ExitStack() as open_streams:
        for _ in range(6):
            assert open_streams.enter_context(team.stream("events", token)).status == 200
        said = team.ask("GET", "events", token=token)
        assert (said.status, said.json["code"]) == (429, "too_many")
        assert said.sentence == "you have 6 streams of this yard open already; close some of them, or try again"
        assert team.ask("GET", "jobs", token=token).status == 200
        assert open_streams.enter_context(team.stream("events", team.token("bob"))).status == 200


def test_a_huge_body_gets_one_sentence_and_is_not_kept(make_team: MakeTeam) -> None:
    team = make_team(YARD_BODY_MIB_MOST="1")
    token = team.token("ada")
    pid = team.served.server_pid()
    assert pid is not None
    before = peak_mib(pid)
    said = team.ask("POST", "jobs", b"x" * (3 << 20), token=token, headers=JSON)
    assert (said.status, said.json["code"]) == (413, "too_large")
    assert "the request has more than 1 MiB, which is all that is taken; split the job" in said.sentence
    with team.connect() as link:
        link.sendall(f"{head_of_post(token)}Transfer-Encoding: chunked\r\n\r\n".encode())
        piece = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        try:
            for _ in range(64):  # never an end
                link.sendall(piece)
        except ConnectionError:
            pass
    assert team.is_alive()
    assert peak_mib(pid) - before < 32


def test_a_body_that_stops_in_the_middle_is_closed_and_is_no_bug_of_the_server(make_team: MakeTeam) -> None:
    team = make_team(YARD_BODY_SECONDS="0.2")
    with team.connect() as link:
        link.sendall(f"{head_of_post(team.token('ada'))}Content-Length: 100\r\n\r\nhalf".encode())
        assert is_closed(link)
    assert team.is_alive()  # and its log has no traceback, which the server's end checks


def test_three_million_tasks_come_in_pages(make_team: MakeTeam) -> None:
    """Before: one answer of 4.3 GB that took a minute, in which nobody else got a word."""
    team = make_team()
    yard, token = team.served, team.token("ada")
    first = yard.submit("--", "sleep", "600")
    job = yard.submit("--after", first, "--array", "0-2999999", "--", "true")
    pid = yard.server_pid()
    assert pid is not None
    said = team.ask("GET", f"jobs/{job}/tasks?limit=3000000", token=token)
    assert [task["number"] for task in said.json] == list(range(1000))
    assert said.headers["yard-next"] == "1000"
    said = team.ask("GET", f"jobs/{job}/tasks?limit=3000000&offset=2999990", token=token)
    assert [task["number"] for task in said.json] == list(range(2_999_990, 3_000_000))
    assert "yard-next" not in said.headers
    shown = yard.json("show", job, "--tasks", "-n", "2500")["tasks"]
    assert [task["number"] for task in shown] == list(range(2500))
    assert peak_mib(pid) < 600
    yard.ok("cancel", "--force", job, first)


@pytest.mark.parametrize("name", ["job.yaml", "pod.yaml"])
def test_a_yaml_bomb_is_refused_with_one_sentence(yard: TemporaryYard, name: str) -> None:
    bomb = "l0: &l0 [x, x]\n" + "".join(f"l{n}: &l{n} [*l{n - 1}, *l{n - 1}]\n" for n in range(1, 40))
    kind = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n" if name == "pod.yaml" else "command: true\n"
    words = ("--on", "kubernetes") if name == "pod.yaml" else ()
    done = yard.run("submit", *words, yard.write(name, kind + bomb))
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert "its aliases (*name) stand for too much" in done.err


def test_tasks_keep_the_limit_of_open_files_that_the_server_raises_for_itself(make_yard: MakeYard) -> None:
    yard = make_yard(("/bin/sh", "-c", 'ulimit -S -n 333 && exec "$@"', "sh"))
    assert yard.ok("run", "--", "sh", "-c", "ulimit -n").out == "333\n"
    pid = yard.server_pid()
    found = re.search(r"Max open files +(\d+) +(\d+)", Path(f"/proc/{pid}/limits").read_text())
    assert found
    assert int(found[1]) == min(int(found[2]), 65_536)
