"""Does `yard exec` and `yard port-forward` reach a real pod, with the caller's own rights?"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from subprocess import Popen

import pytest

from jobyard.model.job import State
from jobyard.wire.views import UnitView
from tests.cluster.api import Api, Object
from tests.cluster.cluster import Cluster
from tests.cluster.images import SMALL
from tests.cluster.node import Node
from tests.cluster.objects import pods_of
from tests.unit.client.stand_in import Said, StandIn, standing_in
from tests.unit.client.views import a_server_view
from tests.yards import TemporaryYard

SERVES = "mkdir /www; echo from the pod > /www/index.html; exec httpd -f -p 8080 -h /www"


class Reach:
    """A yard whose server says of task 0 of job j1 that it runs in this pod."""

    def __init__(self, yard: TemporaryYard, stand_in: StandIn, cluster: Cluster, namespace: str) -> None:
        self.yard = yard
        self.cluster = cluster
        self.namespace = namespace
        self.kubeconfig = yard.root / "kubeconfig"
        self._stand_in = stand_in
        self.use(cluster.api)
        self.point_at("the-pod")

    def use(self, identity: Api) -> None:
        self.kubeconfig.write_text(json.dumps(identity.kubeconfig()))

    def point_at(self, pod: str) -> None:
        unit = UnitView(
            "j1",
            "0",
            State.RUNNING,
            "kubernetes/worker",
            cluster="kubernetes",
            namespace=self.namespace,
            pod=pod,
            container="task",
            kubeconfig=str(self.kubeconfig),
            context="test",
        )
        self._stand_in.on("GET /jobs/j1/unit", Said(data=unit))

    def start_pod(self, script: str = "exec tail -f /dev/null") -> None:
        container = {"name": "task", "image": SMALL, "imagePullPolicy": "Never", "command": ["sh", "-c", script]}
        other = {**container, "name": "other", "command": ["tail", "-f", "/dev/null"]}
        pod: Object = {"metadata": {"name": "the-pod"}, "spec": {"containers": [other, container]}}
        pod["spec"]["terminationGracePeriodSeconds"] = 0
        self.cluster.api.create(pods_of(self.namespace), pod)
        self.cluster.api.until(f"{pods_of(self.namespace)}/the-pod", _is_ready)


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@pytest.fixture
def reach(cluster: Cluster, worker: Node, namespace: str) -> Iterator[Reach]:
    with TemporaryYard() as yard, standing_in(yard.root / "stand_in.sock") as stand_in:
        yard.env["YARD_URL"] = f"unix:{yard.root / 'stand_in.sock'}"
        stand_in.on("GET /server", Said(data=a_server_view()))
        yield Reach(yard, stand_in, cluster, namespace)


def test_a_command_runs_beside_the_task_and_its_exit_code_is_passed_on(reach: Reach) -> None:
    reach.start_pod("echo of the task > /tmp/here; exec tail -f /dev/null")
    done = reach.yard.run("exec", "j1", "--", "sh", "-c", "cat /tmp/here; echo beside >&2; exit 7")
    assert (done.code, done.out, done.err) == (7, "of the task\n", "beside\n")
    assert reach.yard.ok("exec", "j1", "--", "echo", "-n", "a b").out == "a b"


def test_what_is_piped_goes_in_to_its_end_and_comes_out_again(reach: Reach) -> None:
    reach.start_pod()
    data = os.urandom(1 << 20)
    assert reach.yard.ok("exec", "-i", "j1", "--", "cat", input=data).stdout == data
    (reach.yard.work / "data").write_bytes(data)
    assert reach.yard.ok("exec", "j1", "--", "wc", "-c", input=data).out == "0\n", "without -i nothing goes in"


def test_a_shell_has_a_terminal_of_the_right_size_and_gets_each_key(reach: Reach) -> None:
    reach.start_pod()
    with reach.yard.terminal("exec", "j1", "-it", "--", "sh", columns=77) as terminal:
        terminal.until("[#$] $")
        terminal.press(b"stty size\r")
        terminal.until("30 77")
        terminal.press(b"sh -c 'echo beg$((1))n; exec tail -f /dev/null'\r")
        terminal.until("beg1n")  # by a child of the shell: the terminal is that one's by now
        terminal.press(b"\x03")  # ends the command there, not us
        terminal.until(r"beg1n[^#]*# $")
        terminal.press(b"echo go$((40+2))on\r")
        terminal.until("go42on")
        terminal.press(b"exit 5\r")
        assert terminal.ended() == 5


def test_what_cannot_be_started_is_told_in_one_sentence(reach: Reach) -> None:
    reach.start_pod()
    done = reach.yard.run("exec", "j1", "--", "no-such-program")
    assert done.code == 2
    assert done.err == "yard: pod the-pod: its image has no program no-such-program; name another\n"


def test_a_pod_that_is_gone_is_told_in_one_sentence(reach: Reach) -> None:
    reach.point_at("another")
    for words in (["exec", "j1", "--", "true"], ["port-forward", "j1", ":80"]):
        done = reach.yard.run(*words)
        assert (done.code, done.err.startswith("yard: pod another of task 0 of job j1 is gone; ")) == (2, True)


def test_who_may_not_is_told_so_in_the_clusters_words(reach: Reach) -> None:
    reach.start_pod()
    reach.use(reach.cluster.identity("stranger", "stranger"))
    done = reach.yard.run("exec", "j1", "--", "true")
    assert done.code == 2
    assert 'User "stranger" cannot get resource "pods"' in done.err


def forwarded(process: Popen[bytes]) -> int:
    """The port here."""
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    found = re.match(r"yard: 127\.0\.0\.1:(\d+) is port \d+ of pod the-pod", line)
    assert found, line
    return int(found[1])


def fetch(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def test_a_port_of_the_pod_is_here_for_many_at_once_until_the_pod_is_gone(reach: Reach) -> None:
    reach.start_pod(SERVES)
    with reach.yard.start("port-forward", "j1", ":8080") as process:
        assert process.stderr is not None
        port = forwarded(process)
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda _: fetch(port), range(16))) == {"from the pod\n"}
        reach.cluster.api.delete(f"{pods_of(reach.namespace)}/the-pod", gracePeriodSeconds=0)
        assert process.wait(60) == 2
        assert re.search(rb"pod the-pod of task 0 of job j1 (is gone|has ended)", process.stderr.read())


def test_a_port_where_nobody_listens_is_told_and_the_next_connection_is_tried_again(reach: Reach) -> None:
    reach.start_pod()
    with reach.yard.start("port-forward", "j1", ":8080") as process:
        assert process.stderr is not None
        port = forwarded(process)
        with pytest.raises(OSError, match=r"closed|reset|Remote end"):
            fetch(port)
        assert b"port 8080 of pod the-pod: " in process.stderr.readline()
        reach.yard.ok("exec", "j1", "--", "sh", "-c", "mkdir /www; echo now > /www/index.html; httpd -p 8080 -h /www")
        assert fetch(port) == "now\n"
        process.terminate()
        process.wait(60)


def test_a_port_here_that_is_taken_is_told_with_the_way_out(reach: Reach) -> None:
    reach.start_pod()
    with reach.yard.start("port-forward", "j1", ":8080") as process:
        taken = forwarded(process)
        done = reach.yard.run("port-forward", "j1", f"{taken}:8080")
        assert done.code == 2
        assert f"port {taken} cannot be used here" in done.err
        assert "OTHER:8080" in done.err
        process.terminate()
        process.wait(60)


def test_a_kubeconfig_that_is_gone_is_told_in_one_sentence(reach: Reach) -> None:
    reach.kubeconfig.unlink()
    done = reach.yard.run("exec", "j1", "--", "true")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "cluster kubernetes cannot be reached from here" in done.err
