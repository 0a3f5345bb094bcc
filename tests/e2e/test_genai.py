"""The endpoints and commands of genai-workload-manager, over a real yard with fake GPUs."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cluster.processes import free_port
from tests.waiting import PATIENCE_SECONDS, until
from tests.yards import TemporaryYard

pytestmark = pytest.mark.slow
WAIT = "while [ ! -e {} ]; do sleep 0.02; done"
TRAIN = """
import os, time
from jobyard.sdk import yard_job
job = yard_job()
for epoch in job.epochs(10_000):
    time.sleep(0.2)
    job.measure()
    (job.checkpoint_dir / "epoch").write_text(str(epoch))
    job.saved()
    if os.path.exists("enough"):
        break
"""
PROGRAM = [sys.executable, "-P", "-m", "jobyard.compat.genai"]


@dataclass(frozen=True)
class Answer:
    status: int
    data: Any
    reason: str


@dataclass(frozen=True)
class Manager:
    """`monitor`, as it runs, and the yard that it looks at."""

    yard: TemporaryYard
    port: int

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
                return Answer(response.status, json.load(response), response.headers.get("X-Jobyard-Reason", ""))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, json.load(error), error.headers.get("X-Jobyard-Reason", ""))

    def names(self, path: str) -> list[str]:
        return [job["job_name"] for job in self("GET", path).data]

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *words], capture_output=True, text=True, cwd=self.yard.work, env=self.yard.env, timeout=60
        )

    def train(self, name: str, gpus: str) -> str:
        """A job that has been seen to save."""
        job = self.yard.submit("-n", name, "--cpus", "0", "--gpus", gpus, "--", sys.executable, "train.py")
        until(lambda: (self.yard.job(job)["training"] or {}).get("saved_at"))
        return job


@contextmanager
def monitoring(yard: TemporaryYard, **env: str) -> Iterator[Manager]:
    port = free_port()
    words = {**yard.env, "MPORT": str(port), **env}
    with subprocess.Popen([*PROGRAM, "monitor"], cwd=yard.work, env=words) as process:
        manager = Manager(yard, port)
        try:
            until(lambda: _is_answered(manager))
            yield manager
        finally:
            process.terminate()


def _is_answered(manager: Manager) -> bool:
    try:
        return manager("GET", "/freegpu").status < 500
    except urllib.error.URLError:
        return False


@pytest.fixture(scope="module")
def gpus() -> Iterator[TemporaryYard]:
    with TemporaryYard(JOBYARD_FAKE_GPUS="4x16GiB") as yard:
        yard.write("train.py", TRAIN)
        yield yard


@pytest.fixture(scope="module")
def running(gpus: TemporaryYard) -> Iterator[Manager]:
    with monitoring(gpus, FLASK_PORT=str(free_port())) as manager:
        yield manager


@pytest.fixture
def manager(running: Manager) -> Iterator[Manager]:
    try:
        yield running
    finally:
        running.yard.settle()


def test_the_views_show_a_training_job_as_it_is(manager: Manager) -> None:
    manager.train("alpha", "1..2")
    job = manager("GET", "/get_job/alpha").data
    assert (job["gpu_req"], job["gpu_lim"], job["gpu_assigned"], job["replicas"]) == (1, 2, 2, 1)
    assert job["status"] == "running"
    assert job["total_epochs"] == 10_000
    assert job["completed_epochs"] >= 1
    assert job["last_checkpoint_time"] > job["job_arrival_time"]
    assert isinstance(job["job_arrival_time"], int)
    until(lambda: manager("GET", "/get_job/alpha").data["time_bw_checkpoints"])
    for path in ("/get_all_jobs", "/get_jobs_by_arrival", "/get_jobs_by_difference/0"):
        assert "alpha" in manager.names(path)
    assert manager.names("/get_scale_down_jobs_by_checkpoint/1") == ["alpha"]
    assert manager.names("/get_scale_down_jobs_by_checkpoint/2") == []
    assert manager.names("/get_jobs_by_checkpoint_limit") == []
    assert list(manager("GET", "/freegpu").data.values()) == [2]


def test_what_is_not_there_is_said_in_the_shape_of_the_original(manager: Manager) -> None:
    for method, path, body in (
        ("GET", "/get_job/nobody", None),
        ("GET", "/resourcequota/default", None),
        ("GET", "/get_jobs_by_difference/many", None),
        ("GET", "/nothing", None),
        ("PUT", "/update_job_status", {"job_name": "nobody", "status": "completed"}),
        ("PUT", "/update_last_checkpoint", {"job_name": "nobody", "last_checkpoint_time": 1, "completed_epochs": 1}),
        ("PUT", "/increment_restarts", {"job_name": "nobody"}),
        ("PUT", "/update_job", {"job_name": "nobody"}),
        ("DELETE", "/delete_job", {"job_name": "nobody"}),
        ("POST", "/add_job", {"job_name": "nobody", "gpu_req": 1, "gpu_lim": 2, "gpu_assigned": 1}),
        ("POST", "/scale/nobody", None),
    ):
        answer = manager(method, path, body)
        assert (answer.status, list(answer.data)) == (404, ["error"]), path


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/add_job", {"job_name": "x"}, "gpu_req: it is missing"),
        ("POST", "/add_job", {"job_name": "x", "gpu_req": 2, "gpu_lim": 1, "gpu_assigned": 1}, "gpu_lim: 1 is less"),
        ("POST", "/add_job", {"job_name": "x", "gpu_req": "2", "gpu_lim": 1, "gpu_assigned": 1}, "gpu_req: '2' is not"),
        ("POST", "/add_job", b"no", "the request has no JSON object"),
        ("PUT", "/update_last_checkpoint", {"job_name": "x"}, "last_checkpoint_time: it is missing"),
        (
            "PUT",
            "/update_last_checkpoint",
            {"job_name": "x", "last_checkpoint_time": "now", "completed_epochs": 1},
            "last_checkpoint_time: 'now' is not a number",
        ),
        ("PUT", "/update_job_status", {"job_name": "x"}, "status: it is missing"),
        ("PUT", "/increment_restarts", {}, "job_name: it is missing"),
        ("PUT", "/update_job", [], "the request has no JSON object"),
        ("DELETE", "/delete_job", {"job_name": 7}, "job_name: 7 is no text"),
    ],
)
def test_bad_requests_are_one_sentence(manager: Manager, method: str, path: str, body: Any, says: str) -> None:
    answer = manager(method, path, body)
    assert answer.status == 400
    assert answer.data["error"].startswith(says)


def test_what_the_yard_measures_is_not_overwritten_by_hand(manager: Manager) -> None:
    manager.train("beta", "1..2")
    add = {"job_name": "beta", "gpu_req": 1, "gpu_lim": 2, "gpu_assigned": 1}
    assert manager("POST", "/add_job", add) == Answer(400, {"error": "job 'beta' exists already"}, "")
    wrong = manager("PUT", "/update_job_status", {"job_name": "beta", "status": "completed"})
    assert wrong.status == 400
    assert wrong.data["error"].startswith("job 'beta' is running: that is seen, not set")
    same = manager("PUT", "/update_job_status", {"job_name": "beta", "status": "running"})
    assert (same.status, same.data["job"]["job_name"]) == (200, "beta")
    sized = manager("PUT", "/update_job", {"job_name": "beta", "gpu_assigned": 1})
    assert sized.data["error"] == "gpu_assigned: it is 2, which is seen and not set; POST /scale/beta changes it"
    assert manager("PUT", "/update_job", {"job_name": "beta", "gpu_assigned": 2}).status == 200
    assert manager("PUT", "/update_job", {"job_name": "beta", "colour": 2}).status == 400
    assert manager("PUT", "/increment_restarts", {"job_name": "beta"}).data["job"]["restarts"] == 0
    assert manager("DELETE", "/delete_job", {"job_name": "beta"}).status == 400


def test_a_job_tells_of_a_checkpoint(manager: Manager) -> None:
    """As the trainer controller does: also by the name of its object in a cluster."""
    job = manager.yard.submit("-n", "gamma", "--cpus", "0", "--gpus", "1..2", "--", WAIT.format("enough"))
    manager.yard.wait_state(job, "RUNNING")
    at = time.time()
    told = {"job_name": f"gamma-{job}-a1", "last_checkpoint_time": at, "completed_epochs": 1.5, "total_epochs": 3}
    answer = manager("PUT", "/update_last_checkpoint", told)
    assert (answer.status, answer.data["job"]["job_name"]) == (200, "gamma")
    told |= {"last_checkpoint_time": at + 7, "completed_epochs": 2}
    record = manager("PUT", "/update_last_checkpoint", told).data["job"]
    assert record["time_bw_checkpoints"] == pytest.approx(7)
    assert (record["last_checkpoint_time"], record["completed_epochs"]) == (at + 7, 2)
    assert (record["total_epochs"], record["status"]) == (3, "running")
    (line,) = [line for line in manager.command("status").stdout.splitlines() if line.startswith("gamma ")]
    assert line.split()[3] == "2/3", "another process shows them too"
    with monitoring(manager.yard) as another:
        assert another("GET", "/get_job/gamma").data == record


def test_scale_gives_a_job_what_fits(manager: Manager) -> None:
    filler = manager.yard.submit("--cpus", "0", "--gpus", "3", "--", WAIT.format("over"))
    manager.yard.wait_state(filler, "RUNNING")
    job = manager.train("delta", "1..4")
    full = manager("POST", "/scale/delta")
    assert (full.status, full.data) == (409, ["Did not scale", 401])
    assert full.reason == "job delta has 1 of 4 GPUs, and there is no room for more"
    assert manager.command("scale").returncode == 1
    manager.yard.run("cancel", filler)
    # Either we were faster, or the yard had its own idea already: both make it grow.
    until(lambda: manager("POST", "/scale/delta").status == 200 or manager.yard.job(job)["training"]["gpus"] == 4)
    until(lambda: manager("GET", "/get_job/delta").data["gpu_assigned"] == 4)
    assert manager("GET", "/get_job/delta").data["restarts"] >= 1
    assert "has all the GPUs that it can have (4)" in manager("POST", "/scale/delta").reason


def test_a_job_that_is_scaled_by_hand_may_be_resized_by_the_scheduler_afterwards(manager: Manager) -> None:
    filler = manager.yard.submit("--cpus", "0", "--gpus", "3", "--", WAIT.format("over"))
    manager.yard.wait_state(filler, "RUNNING")
    job = manager.train("epsilon", "1..3")
    manager.yard.ok("scale", job, "1")  # or the yard itself would be quicker
    manager.yard.ok("cancel", filler)
    until(lambda: manager("POST", "/scale/epsilon").status == 200)
    until(lambda: manager("GET", "/get_job/epsilon").data["gpu_assigned"] == 3)
    guest = manager.yard.submit("--cpus", "0", "-p", "5", "--gpus", "3", "--", "true")
    assert manager.yard.run("wait", guest).code == 0
    assert manager.yard.job(job)["training"]["resizes"] >= 1


def hold(yard: TemporaryYard, name: str, count: int) -> None:
    """A job that has so many GPUs until it is over."""
    words = ("--cpus", "0", "--epochs", "1", "--gpus", str(count), "--", WAIT.format(f"{name}-over"))
    yard.wait_state(yard.submit("-n", name, *words), "RUNNING")


def test_when_a_job_completes_the_next_grows_after_its_checkpoint(gpus: TemporaryYard) -> None:
    """One that counts no epochs: the yard alone would leave it as it is."""
    with monitoring(gpus) as manager:
        first = gpus.submit(
            "-n", "first", "--cpus", "0", "--epochs", "1", "--gpus", "3", "--", WAIT.format("first-over")
        )
        gpus.wait_state(first, "RUNNING")
        words = ("--cpus", "0", "--preemptible", "--gpus", "1..4", "--", WAIT.format("enough"))
        second = gpus.submit("-n", "second", *words)
        gpus.wait_state(second, "RUNNING")
        until(lambda: manager.names("/get_jobs_by_checkpoint_limit") == ["second"])
        gpus.write("first-over", "")
        until(lambda: manager("GET", "/get_job/first").data["status"] == "completed")
        assert manager("PUT", "/update_job_status", {"job_name": "first", "status": "completed"}).status == 200
        assert manager("GET", "/get_job/second").data["gpu_assigned"] == 1
        told = {"job_name": "second", "last_checkpoint_time": time.time(), "completed_epochs": 1}
        assert manager("PUT", "/update_last_checkpoint", told).status == 200
        until(lambda: manager("GET", "/get_job/second").data["gpu_assigned"] == 4)
        # Nobody else can grow: what is so is so all the same.
        assert manager("PUT", "/update_job_status", {"job_name": "first", "status": "completed"}).status == 200
        assert manager("DELETE", "/delete_job", {"job_name": "first"}).status == 200
        assert manager.names("/get_all_jobs").count("first") == 0
    gpus.settle()


def test_when_a_job_completes_the_next_can_grow_at_once(gpus: TemporaryYard) -> None:
    with monitoring(gpus, GENAI_SCALE="now") as manager:
        third = gpus.submit(
            "-n", "third", "--cpus", "0", "--epochs", "1", "--gpus", "3", "--", WAIT.format("third-over")
        )
        gpus.wait_state(third, "RUNNING")
        words = ("--cpus", "0", "--preemptible", "--gpus", "1..4", "--", WAIT.format("enough"))
        fourth = gpus.submit("-n", "fourth", *words)
        gpus.wait_state(fourth, "RUNNING")
        until(lambda: "fourth" in manager.names("/get_jobs_by_checkpoint_limit"))
        gpus.write("third-over", "")
        until(lambda: manager("GET", "/get_job/fourth").data["gpu_assigned"] == 4)
    gpus.settle()


def test_delete_stops_and_says_404_of_what_is_not_there(manager: Manager) -> None:
    job = manager.train("zeta", "1..2")
    done = manager.command("delete", "-n", "zeta", "-n", "nobody")
    assert done.stdout.splitlines() == ["zeta is stopped and deleted", "404: there is no job 'nobody'"]
    assert done.returncode == 1
    manager.yard.wait_state(job, "CANCELLED")
    assert "zeta" not in manager.names("/get_all_jobs")


def test_what_one_process_deletes_is_gone_from_the_lists_of_another_at_once(manager: Manager) -> None:
    ended = manager.yard.submit("-n", "theta", "--cpus", "0", "--gpus", "1..2", "--", "exit 3")
    stubborn = "trap '' TERM; echo ready; " + WAIT.format("over")
    stopping = manager.yard.submit("-n", "iota", "--cpus", "0", "--gpus", "1..2", "--", stubborn)
    manager.yard.wait_state(ended, "FAILED")
    until(lambda: manager.yard.run("logs", stopping).out == "ready\n")
    assert {"theta", "iota"} <= set(manager.names("/get_all_jobs"))
    assert manager.command("delete", "-n", "theta", "-n", "iota").returncode == 0
    assert not {"theta", "iota"} & set(manager.names("/get_all_jobs"))
    assert manager.yard.job(stopping)["state"] == "STOPPING", "it is not waited for"
    manager.yard.write("over", "")


def test_status_is_a_table(manager: Manager) -> None:
    manager.train("eta", "1..2")
    lines = manager.command("status").stdout.splitlines()
    assert lines[0].split() == ["JOB", "GPUS", "RANGE", "EPOCHS", "CHECKPOINT", "RESTARTS", "STATUS", "WHY"]
    (line,) = [line for line in lines if line.startswith("eta ")]
    assert line.split()[1:3] == ["2/2", "1..2"]
    assert "running" in line


def test_commands_tell_the_truth_by_their_exit_codes(manager: Manager) -> None:
    manager.yard.write("native.yaml", "command: echo hello\n")
    for words, code, says in (
        (("scale", "-n", "nobody"), 2, "there is no job 'nobody'"),
        (("deploy",), 2, "missing option '-f' / '--filename'"),
        (("deploy", "-f", "nothing.yaml"), 2, "--filename: there is no file 'nothing.yaml'"),
        (("deploy", "-f", "native.yaml"), 2, "it is no Kubernetes object"),
        (("delete",), 2, "missing option '-n' / '--name'"),
    ):
        done = manager.command(*words)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_token_is_needed_where_there_is_one(gpus: TemporaryYard) -> None:
    with monitoring(gpus, JOBYARD_GENAI_TOKEN="secret", MHOST="0.0.0.0") as manager:
        assert manager("GET", "/get_all_jobs").status == 401
        assert manager("GET", "/get_all_jobs", Authorization="Bearer wrong").status == 401
        assert manager("GET", "/get_all_jobs", Authorization="Bearer secret").status == 200
        password = base64.b64encode(b"job:secret").decode()
        assert manager("GET", "/get_all_jobs", Authorization=f"Basic {password}").status == 200
        assert manager("GET", "/get_all_jobs", Authorization="Basic !").status == 401
    refused = subprocess.run(
        [*PROGRAM, "monitor"], capture_output=True, text=True, env={**gpus.env, "MHOST": "0.0.0.0"}, timeout=60
    )
    assert refused.returncode == 2
    assert "MHOST: 0.0.0.0 can be reached from elsewhere" in refused.stderr


def test_a_wrong_word_for_when_jobs_grow_is_one_sentence(gpus: TemporaryYard) -> None:
    refused = subprocess.run(
        [*PROGRAM, "monitor"], capture_output=True, text=True, env={**gpus.env, "GENAI_SCALE": "soon"}, timeout=60
    )
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert "GENAI_SCALE: 'soon' is neither now nor checkpoint" in refused.stderr


def test_a_name_that_is_not_this_machines_is_refused(manager: Manager) -> None:
    """As a page in a browser would use, whose own name leads here."""
    answer = manager("GET", "/get_all_jobs", Host="evil.example")
    assert (answer.status, list(answer.data)) == (403, ["error"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_without_a_token_another_user_of_this_machine_is_not_served(manager: Manager) -> None:
    ask = f"""
import urllib.request
try:
    print(urllib.request.urlopen('http://127.0.0.1:{manager.port}/get_all_jobs').status)
except urllib.error.HTTPError as error:
    print(error.status, error.read().decode())
"""
    other = subprocess.run(["/usr/bin/env", "python3", "-c", ask], user=65534, capture_output=True, text=True, cwd="/")
    assert "403" in other.stdout
    assert "only programs of the user who started it are served" in other.stdout
    assert manager("GET", "/get_all_jobs").status == 200
