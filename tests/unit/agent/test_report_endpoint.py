"""Can tasks report that speak HTTP, and can nobody harm the agent with it?"""

from __future__ import annotations

import errno
import http.client
import json
import os
import selectors
import shutil
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client
from tests.unit.agent.conftest import MakeAgent
from tests.waiting import PATIENCE_SECONDS, until

from jobyard.agent.attempts.attempt import RUNNING, Attempt, Slot
from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.attempts.spools import Spools
from jobyard.agent.reporting import http_words
from jobyard.agent.reporting.reports import Reports
from jobyard.agent.system import peers
from jobyard.agent.system.entrance import Entrance
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import local_connections, records

WAITS = "echo ready; until [ -e go ]; do sleep 0.01; done"
ENV = {"EPOCHS_TO_BE_DONE": "4", "EPOCHS_DONE": "1", "JOB_UUID": "j"}


def address(server: Client) -> tuple[str, int]:
    host, _, port = server.welcome["report_address"].partition(":")
    return host, int(port)


class Task:
    """A task that runs, and what it would say to the report endpoint."""

    def __init__(self, agent: AgentProcess, server: Client, shell: str = WAITS) -> None:
        self.agent = agent
        self.server = server
        server.launch("s", {"id": "j.0.1", "shell": shell, "env": ENV})
        server.started("j.0.1")
        self.line = http.client.HTTPConnection(*address(server), timeout=PATIENCE_SECONDS)

    def say(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self.line.request(method, path, data, headers)
        response = self.line.getresponse()
        return response.status, response.read().decode()

    def train(self, epoch: int) -> str:
        """One epoch as the original library tells of it; whether the next may begin."""
        profile = {"jobid": "j", "timestamp": "2023-03-31T10:00:00", "iternum": 50 * (epoch - 1), "nodelist": "n"}
        profile.update(numgpu=1, rank=0, meandur=0.25, gpumem=700)
        assert self.say("POST", "/profiling/j", profile) == (200, "")
        assert self.say("POST", "/profiling/j", {**profile, "iternum": 50 * epoch, "epochDur": 12.5}) == (200, "")
        assert self.say("POST", "/end_epoch/j", {"done": epoch}) == (200, "")
        return self.asks()

    def asks(self) -> str:
        status, body = self.say("GET", "/has_to_stop/j")
        assert status == 200
        return body

    def end(self) -> dict[str, Any]:
        (self.agent.work / "go").touch()
        return self.server.finished("j.0.1")

    @property
    def token(self) -> str:
        return (self.agent.state / "door.token").read_text().strip()


@pytest.fixture
def task(agent: AgentProcess, server: Client) -> Iterator[Task]:
    task = Task(agent, server)
    yield task
    task.line.close()


def test_the_original_library_reports_and_its_epochs_count_when_the_next_begins(task: Task, server: Client) -> None:
    assert task.asks() == "0"
    assert task.train(2) == "0"
    progress = server.progress("j.0.1", lambda p: p.get("epochs_done") == 2)
    assert (progress["epochs_total"], progress["epoch_seconds"], progress["can_yield"]) == (4, 12.5, True)
    assert (progress["steps"], progress["step_seconds"]) == (100, 0.25)
    assert progress["metrics"] == {"gpu_memory_mib": 700.0}
    task.say("POST", "/end_epoch/j", {"done": 3})
    (task.agent.work / "go").write_text("")
    assert server.finished("j.0.1")["progress"]["epochs_done"] == 3  # ended well, so it is saved too


def test_what_may_not_be_saved_does_not_count_when_a_task_fails(agent: AgentProcess, server: Client) -> None:
    task = Task(agent, server, WAITS + "; exit 1")
    task.train(2)
    task.say("POST", "/end_epoch/j", {"done": 3})
    assert task.end()["progress"]["epochs_done"] == 2
    task.line.close()


def test_exit_0_after_the_answer_1_is_a_preemption(task: Task, server: Client) -> None:
    assert task.train(2) == "0"
    server.send(op="yield", ids=["j.0.1"], deadline=600, grace=10)
    until(lambda: os.path.exists(task.agent.files("j.0.1").stop))
    assert task.asks() == "1"
    outcome = task.end()
    assert (outcome["reason"], outcome["exit_code"]) == ("Preempted", 0)
    assert (outcome["progress"]["epochs_done"], outcome["progress"]["has_yielded"]) == (2, True)


def test_the_last_epoch_is_never_stopped(task: Task, server: Client) -> None:
    server.send(op="yield", ids=["j.0.1"], deadline=600, grace=10)
    until(lambda: os.path.exists(task.agent.files("j.0.1").stop))
    assert task.train(3) == "0"
    task.say("POST", "/end_epoch/j", {"done": 4})
    assert task.say("POST", "/signal_end/j") == (200, "")
    outcome = task.end()
    assert "reason" not in outcome
    assert outcome["progress"]["epochs_done"] == 4


CLIENT = """
import sys, urllib.request
for _ in sys.stdin:
    with urllib.request.urlopen(sys.argv[1]) as response:  # a new connection for each
        print(response.read().decode(), flush=True)
"""


class AskingProcess:
    """A process of its own that asks whether it has to stop, whenever we say so, and tells of no epochs."""

    def __init__(self, server: Client) -> None:
        url = f"http://{server.welcome['report_address']}/has_to_stop/j"
        command = [sys.executable, "-c", CLIENT, url]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def asks(self) -> str:
        assert self._process.stdin
        assert self._process.stdout
        print(file=self._process.stdin, flush=True)
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture
def two(task: Task, server: Client) -> Iterator[tuple[AskingProcess, AskingProcess]]:
    processes = AskingProcess(server), AskingProcess(server)
    yield processes
    for process in processes:
        process.end()


def test_each_process_asks_for_itself_and_the_slowest_counts(
    task: Task, server: Client, two: tuple[AskingProcess, AskingProcess]
) -> None:
    first, second = two
    for process in (first, second, first, first):
        assert process.asks() == "0"
    assert server.progress("j.0.1", lambda p: p.get("can_yield")).get("epochs_done") == 1
    second.asks()
    server.progress("j.0.1", lambda p: p.get("epochs_done") == 2)
    second.end()
    first.asks()  # nobody waits for the other any more
    server.progress("j.0.1", lambda p: p.get("epochs_done") == 4)


def test_processes_that_work_together_leave_in_the_same_epoch(
    task: Task, server: Client, two: tuple[AskingProcess, AskingProcess]
) -> None:
    first, second = two
    assert first.asks() == "0"
    server.send(op="yield", ids=["j.0.1"], deadline=600, grace=10)
    until(lambda: os.path.exists(task.agent.files("j.0.1").stop))
    assert second.asks() == "0"  # the other is in this epoch already
    assert [second.asks(), first.asks()] == ["1", "1"]
    outcome = task.end()
    assert (outcome["reason"], outcome["progress"]["epochs_done"]) == ("Preempted", 2)


def test_reports_survive_the_agent_and_the_port_stays(agent: AgentProcess, server: Client) -> None:
    task = Task(agent, server)
    task.train(2)
    before = server.welcome["report_address"]
    task.line.close()
    agent.kill()
    again = agent.start().connect("j.0.1")
    assert again.welcome["report_address"] == before
    assert again.progress("j.0.1")["epochs_done"] == 2
    task.server = again
    assert task.train(3) == "0"
    assert task.end()["progress"]["epochs_done"] == 3
    task.line.close()


def test_a_port_that_is_taken_is_replaced_and_so_is_the_token(make_agent: MakeAgent) -> None:
    agent = make_agent().start()
    server = agent.connect()
    token = (agent.state / "door.token").read_text()
    agent.kill()
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(address(server))
        thief.listen()
        again = agent.start().connect()
        assert address(again) != address(server)
        assert (agent.state / "door.token").read_text() != token


def test_a_task_knows_where_to_report(agent: AgentProcess, server: Client) -> None:
    names = "$YARD_REPORT_ADDRESS $KUBEFLOW_TRAINER_SERVER_URL $KUBEFLOW_TRAINER_SERVER_TOKEN ${no_proxy-unset}"
    server.run({"id": "j.0.1", "shell": f"echo {names}"})
    where, token = server.welcome["report_address"], str(agent.state / "door.token")
    assert agent.output("j.0.1").split() == [where, f"http://{where}/kubeflow/j.0.1", token, "unset"]
    assert stat.S_IMODE(os.stat(token).st_mode) == 0o600
    env = {"KUBEFLOW_TRAINER_SERVER_URL": "https://cluster", "http_proxy": "http://p:1", "no_proxy": "a"}
    server.run({"id": "j.1.1", "shell": "echo $KUBEFLOW_TRAINER_SERVER_URL $no_proxy", "env": env})
    assert agent.output("j.1.1") == "https://cluster a,127.0.0.1\n"


def test_the_original_library_finds_the_door_through_http_proxy(agent: AgentProcess, server: Client) -> None:
    ask = "import urllib.request as u; print(u.urlopen('http://10.79.23.1/has_to_stop/j').read())"
    shell = f'http_proxy=http://$YARD_REPORT_ADDRESS no_proxy= {sys.executable} -c "{ask}"'
    server.run({"id": "j.0.1", "shell": shell})
    assert agent.output("j.0.1") == "b'0'\n"


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl here")
def test_curl_can_report(task: Task) -> None:
    url = "http://" + task.server.welcome["report_address"]
    body = json.dumps({"iternum": 7, "meandur": 1.5, "nodelist": "n" * 3000})  # long enough for Expect: 100-continue
    commands = (
        ["curl", "-sf", "-d", body, url + "/profiling/j"],
        ["curl", "-sf", url + "/has_to_stop/j"],
        ["curl", "-sf", "--http1.0", "--proxy", url, "http://far.away/has_to_stop/j"],
    )
    answers = [subprocess.run(command, check=True, capture_output=True).stdout for command in commands]
    assert answers == [b"", b"0", b"0"]
    assert task.end()["progress"]["steps"] == 7


def test_kubeflow_clients_report_progress(task: Task, server: Client) -> None:
    """As transformers 5 does it in KubeflowCallback._update_status."""
    status = {"lastUpdatedTime": "2026-11-15T12:00:00+00:00", "progressPercentage": 42, "estimatedRemainingSeconds": 99}
    metrics = [{"name": "loss", "value": "0.5"}, {"name": "note", "value": "good"}, {"name": "bad", "value": "nan"}]
    data = json.dumps({"trainerStatus": {**status, "metrics": metrics}}).encode()
    headers = {"Authorization": f"Bearer {task.token}", "Content-Type": "application/json"}
    url = f"http://{server.welcome['report_address']}/kubeflow/j.0.1"
    request = urllib.request.Request(url, data=data, headers=headers, method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS, context=None) as response:
        assert response.status == 200
    progress = server.progress("j.0.1")
    assert (progress["percent"], progress["remaining_seconds"], progress["metrics"]) == (42, 99, {"loss": 0.5})
    assert "can_yield" not in progress


def test_kubeflow_clients_show_a_token(task: Task) -> None:
    body = {"trainerStatus": {"progressPercentage": 1}}
    assert task.say("POST", "/kubeflow/j.0.1", body)[0] == 401
    assert task.say("POST", "/kubeflow/j.0.1", body, Authorization="Bearer guess")[0] == 401
    assert task.say("POST", "/kubeflow/j.7.1", body, Authorization=f"Bearer {task.token}")[0] == 404
    assert task.say("POST", "/kubeflow/j.0.1", {}, Authorization=f"Bearer {task.token}")[0] == 400
    assert task.say("POST", "/kubeflow/j.0.1", body, Authorization=f"Bearer {task.token}") == (200, "{}")


def test_a_report_for_an_unknown_or_finished_job_is_answered_with_a_sentence(task: Task) -> None:
    assert task.say("GET", "/has_to_stop/other") == (404, "no job other runs here; the report was dropped\n")
    task.end()
    assert task.say("POST", "/end_epoch/j", {"done": 1}) == (404, "no job j runs here; the report was dropped\n")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/", None, 404, "there is nothing at /"),
        ("GET", "/profiling/j", None, 405, "profiling wants POST, not GET"),
        ("POST", "/has_to_stop/j", {}, 405, "has_to_stop wants GET, not POST"),
        ("POST", "/profiling/j", b"{torn", 400, "the body is not JSON"),
        ("POST", "/profiling/j", [1], 400, "the body must be a JSON object"),
        ("POST", "/profiling/j", {"iternum": "many"}, 400, "iternum must be a number, not 'many'"),
        ("POST", "/end_epoch/j", {}, 400, "done must be"),
        ("GET", "/has_to_stop/..%2f..%2fx", None, 404, "there is nothing at"),
    ],
)
def test_what_cannot_be_served_is_told_and_the_connection_goes_on(
    task: Task, method: str, path: str, body: Any, status: int, words: str
) -> None:
    answered, sentence = task.say(method, path, body)
    assert answered == status
    assert words in sentence
    assert task.asks() == "0"


def test_browsers_are_kept_out(task: Task) -> None:
    assert task.say("POST", "/end_epoch/j", {"done": 4}, Origin="http://evil")[0] == 403


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello there\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # TLS
        (b"GET /has_to_stop/j HTTP/2.0\r\n\r\n", 400),
        (b"GET /has_to_stop/j HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET http://[::1/ HTTP/1.1\r\n\r\n", 400),
        (b"POST /profiling/j HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /profiling/j HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /profiling/j HTTP/1.1\r\nContent-Length: 99999999999999999\r\n\r\n", 413),
        (b"POST /profiling/j HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST /profiling/j HTTP/1.1\r\nExpect: miracles\r\n\r\n", 417),
        (b"GET /has_to_stop/j HTTP/1.1\r\nx: " + b"y" * 20000, 431),
        (b"CONNECT far.away:443 HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
    ],
)
def test_what_is_no_request_is_answered_and_the_door_closes(task: Task, data: bytes, status: int) -> None:
    with socket.create_connection(address(task.server), PATIENCE_SECONDS) as stream:
        stream.sendall(data)
        received = bytearray()
        while piece := stream.recv(65536):
            received += piece
    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert task.asks() == "0"


def test_requests_may_come_in_pieces_or_all_at_once(task: Task) -> None:
    request = b"GET /has_to_stop/j HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(address(task.server), PATIENCE_SECONDS) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(len(request)):
            stream.sendall(request[number : number + 1])
        stream.sendall(request * 3)
        received = b""
        while received.count(b"\r\n\r\n0") < 4:
            received += stream.recv(65536)
    assert received.count(b"200 OK") == 4


def test_who_asks_and_never_listens_is_not_heard_on(task: Task) -> None:
    request = b"GET /nothing HTTP/1.1\r\n\r\n"
    most = 64 << 20  # more than the kernel keeps
    with socket.create_connection(address(task.server), PATIENCE_SECONDS) as stream:
        stream.settimeout(1.0)
        sent = 0
        with suppress(TimeoutError):
            while sent < most:
                sent += stream.send((request * 4000)[sent % len(request) :])
        assert sent < most  # the endpoint takes no more than it can answer
        assert task.asks() == "0"
        stream.settimeout(PATIENCE_SECONDS)
        stream.shutdown(socket.SHUT_WR)
        received = bytearray()
        while piece := stream.recv(1 << 20):
            received += piece
    assert received.count(b"HTTP/1.1 404") == sent // len(request)


def test_a_head_of_blanks_takes_no_longer_than_another() -> None:
    buffer = bytearray(b"GET / HTTP/1.1\r\nx: " + (b" " * 7000 + b"y") * 2 + b" \r\n\r\n")
    _, request = http_words.take(buffer)
    assert request is not None
    assert len(request.headers["x"]) == 7002


def test_a_head_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = bytearray(b"POST /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{")
    head, request = http_words.take(buffer)
    assert request is None
    monkeypatch.setattr(http_words, "_head", None)
    buffer += b"}GET"
    _, request = http_words.take(buffer, head)
    assert request is not None
    assert (request.body, bytes(buffer)) == (b"{}", b"GET")


def test_a_connection_is_known_by_its_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as client, listener.accept()[0] as stream:
            assert local_connections.uid_of(stream) == local_connections.uid_of(client) == os.getuid()
        with socket.socket(socket.AF_INET6) as client:
            try:
                client.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
            except OSError:
                pytest.skip("there is no IPv6 here")
            with listener.accept()[0] as stream:
                assert local_connections.uid_of(stream) == os.getuid()
                client.close()
                assert local_connections.uid_of(stream) is None  # nobody's any more, which tells nothing


def test_a_connection_is_known_by_its_process_and_not_by_a_child_that_was_forked_meanwhile() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with (
            socket.create_connection(listener.getsockname()) as client,
            listener.accept()[0] as stream,
            subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[client.fileno()]),
        ):
            for likely, sessions in (([], []), ([os.getpid()], []), ([], [os.getsid(0)])):
                found = peers.process_of(stream, likely, sessions)
                assert found is not None
                assert found.pid == os.getpid()
        with socket.socket() as alone:
            assert peers.process_of(alone, [], []) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_other_users_are_kept_out(task: Task) -> None:
    host, port = address(task.server)
    ask = f"import socket; s = socket.create_connection(('{host}', {port})); print(s.recv(9))"
    done = subprocess.run(["/usr/bin/env", "python3", "-c", ask], user=65534, capture_output=True, text=True, cwd="/")
    assert (done.stdout, done.stderr) == ("b''\n", "")
    assert task.asks() == "0"


def test_without_room_for_another_file_the_entrance_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    selector, timers, seen = selectors.DefaultSelector(), Timers(), []
    monkeypatch.setattr("jobyard.agent.system.entrance._REST_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        Entrance(selector, timers, listener, lambda stream, peer: seen.append(stream))
        ((key, events),) = selector.select()
        with monkeypatch.context() as broken:
            broken.setattr(socket.socket, "accept", Mock(side_effect=OSError(errno.EMFILE, "too many open files")))
            key.data(events)
        assert not selector.get_map()
        timers.run_due()
        ((key, events),) = selector.select()
        key.data(events)
    selector.close()
    assert len(seen) == 1
    seen[0].close()


def test_a_report_that_finds_no_room_leaves_no_half_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt, timers = Attempt("j.0.1", Slot("s", "j", {})), Timers()
    attempt.state = RUNNING
    reports = Reports({"j.0.1": attempt}, Spools(timers, {}, Outbox(timers), str(tmp_path)), str(tmp_path))
    spool = Path(records.paths(str(tmp_path), "j.0.1").spool)
    spool.parent.mkdir(parents=True)
    ends = http_words.Request("POST", "/end_epoch/j", {}, b'{"done": 1}', True)
    write = os.write
    for _ in range(2):
        before = spool.read_bytes() if spool.exists() else b""
        with monkeypatch.context() as full:
            full.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:30]))
            with pytest.raises(http_words.Refused, match="only a part was written") as refused:
                reports.serve(ends, Mock())
        assert refused.value.status == 503
        assert spool.read_bytes() == before
        reports.serve(ends, Mock())
    kinds = [json.loads(line)["t"] for line in spool.read_text().splitlines()]
    assert kinds == ["hello", "start", "ended", "ended"]


def test_who_hangs_up_in_the_middle_harms_nothing(task: Task) -> None:
    for _ in range(20):
        with socket.create_connection(address(task.server), PATIENCE_SECONDS) as stream:
            stream.sendall(b"POST /profiling/j HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
    assert task.asks() == "0"


def test_all_tasks_of_a_gang_are_told(agent: AgentProcess, server: Client) -> None:
    for number in (0, 1):
        server.launch(f"s{number}", {"id": f"j.{number}.1", "shell": WAITS, "env": ENV})
        server.started(f"j.{number}.1")
    ids = ["j.0.1", "j.1.1"]
    server.send(op="yield", ids=ids, deadline=600, grace=10)
    until(lambda: os.path.exists(agent.files("j.1.1").stop))
    with urllib.request.urlopen(f"http://{server.welcome['report_address']}/has_to_stop/j") as response:
        assert response.read() == b"1"
    (agent.work / "go").touch()
    assert [server.finished(attempt)["reason"] for attempt in ids] == ["Preempted", "Preempted"]
    assert not Path(agent.files("j.0.1").checkpoint).exists()
