"""Whatever is submitted, by whatever entrance: the jobs beside it never notice, and the server stays the same one."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tests.faults import poison_specs
from tests.faults.live_yard import LiveYard
from tests.marks import long
from tests.waiting import PATIENCE_SECONDS, long_until

from jobyard.errors import YardError
from jobyard.model.job import Reason, State
from jobyard.wire.requests import API
from jobyard.wire.views import JobView

SPECS = int(os.environ.get("JOBYARD_POISON_SPECS", "36"))
SEED = int(os.environ.get("JOBYARD_POISON_SEED", "1"))
AT_ONCE = 12 if SPECS < 1000 else 40  # then what was accepted is cancelled, and somebody looks
STEADY_TASKS = 60  # of the batch beside it, for each so many specs
PROGRAM_SHARE = 0.1  # of the specs go through a program of its own, which costs half a second


class Entrances:
    """Each takes a spec at random. What is refused is refused in words; a crash shows as a trace, or as HTTP 5xx."""

    def __init__(self, live: LiveYard, chance: random.Random) -> None:
        self._live = live
        self._chance = chance
        self.accepted = self.refused = 0
        self.all: list[Callable[[], None]] = [
            self.rest,
            self.command_line,
            lambda: self.manifest("native"),
            lambda: self.manifest("aichor"),
            lambda: self.manifest("kubernetes"),
            self.batch_file,
            self.run_scheduler,
            self.execute_batch,
        ]

    def next(self, number: int) -> None:
        if number < 2 * len(self.all):  # each of them, also where there are few specs
            self.all[number % len(self.all)]()
        else:
            (self._chance.choice(self.all) if self._chance.random() < PROGRAM_SHARE else self.rest)()

    def rest(self) -> None:
        body = poison_specs.spec(self._chance, self._live.work)
        if self._chance.random() < 0.8:
            body = poison_specs.poisoned(self._chance, body)
        status, answer = self._post("/jobs", {"spec": body})
        assert status < 500, (status, answer, body)
        self._count(status < 400)

    def command_line(self) -> None:
        self._program("jobyard.cli.main", "submit", "-q", *poison_specs.words(self._chance))

    def manifest(self, kind: str) -> None:
        path = self._live.work / f"{kind}.yaml"
        path.write_text(poison_specs.manifest(self._chance, kind), errors="surrogatepass")
        self._program("jobyard.cli.main", "submit", "-q", str(path))

    def batch_file(self) -> None:
        path = self._live.work / "batch.txt"
        path.write_bytes(poison_specs.batch_file(self._chance))
        self._program("jobyard.cli.main", "submit", "-q", str(path))

    def run_scheduler(self) -> None:
        (self._live.work / "quick.py").write_text("raise SystemExit(3)\n")
        odd = self._chance.choice(["1", "0", "-1", "nan", "²", "99999999999999999999"])
        flag = self._chance.choice(["--max_epochs", "--batch_size", "--estimated_memory", "--est_nhours"])
        words = ("--script_path", "/custom/quick.py", "--custom_dir", str(self._live.work), flag, odd, "odd")
        self._program("jobyard.compat.kubeprofiler.run_scheduler", *words)

    def execute_batch(self) -> None:
        """Nobody is at this address, or the file is none: the batch is refused before it begins."""
        machine = self._live.work / "machine.yaml"
        odd = self._chance.choice(["ip: ²", "- 1", "port: abc", "ip: &a [*a]", "\x00", "ip: 127.0.0.1\nport: 1"])
        machine.write_text(f"username: nobody\n{odd}\n")
        (self._live.work / "lines").write_text("true\n")
        self._program("jobyard.compat.ml_scheduler.execute_batch", "lines", "--machines", str(machine), "--dry-run")

    def _program(self, module: str, *words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, *[os.fsencode(word) for word in words]],
            env=self._live.env,
            cwd=self._live.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=90,
            check=False,
        )
        assert b"Traceback" not in done.stderr, (module, words, done.stderr.decode(errors="replace"))
        self._count(done.returncode == 0)

    def _post(self, path: str, body: Any) -> tuple[int, bytes]:
        with closing(_Unix(self._live.client.address.socket)) as connection:
            text = json.dumps(body).encode()
            connection.request("POST", API + path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()

    def _count(self, is_accepted: bool) -> None:
        self.accepted += is_accepted
        self.refused += not is_accepted


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("yard", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_SECONDS)
        self.sock.connect(self._path)


def cancel_all(live: LiveYard, steady: str) -> None:
    """What was accepted and has not ended: some of it asks for a million tasks, or for the whole machine."""
    for view in live.client.jobs(unfinished=True):
        if view.id != steady:
            try:
                live.client.cancel(view.id, force=True)
            except YardError:
                assert live.client.job(view.id).state.is_final  # it was quicker


def begin_steady(live: LiveYard) -> str:
    """A batch that goes before everybody, and of which each task runs once, and well."""
    lines = live.work / "steady"
    lines.write_text("\n".join(["sleep 0.05; echo $YARD_TASK >> steady.ran"] * STEADY_TASKS) + "\n")
    return live.submit("--priority", "1000000", "--limit", "2", "-c", "0.1", "--name", "steady", str(lines))


def has_ended_well(live: LiveYard, steady: str) -> None:
    view = live.wait(steady)
    assert (view.state, view.counts.succeeded) == (State.SUCCEEDED, STEADY_TASKS), view
    assert {task.attempt for task in live.tasks(steady).values()} == {1}
    ran = live.work / "steady.ran"
    assert len(ran.read_text().split()) == STEADY_TASKS
    ran.unlink()


def test_random_specs_by_every_entrance_hurt_nobody_else(live: LiveYard) -> None:
    live.env["YARD_IDLE_SECONDS"] = "3600"  # between two batches nothing may be pending
    live.yard("server", "start")
    server, agent = live.server_pid, live.agent_pid
    entrances = Entrances(live, random.Random(SEED))
    for first in range(0, SPECS, AT_ONCE):
        steady = begin_steady(live)
        for number in range(first, min(SPECS, first + AT_ONCE)):
            entrances.next(number)
            assert live.client.jobs(all=True, limit=20)  # the list can be shown, whatever is in it
        cancel_all(live, steady)
        has_ended_well(live, steady)
        assert (live.server_pid, live.agent_pid) == (server, agent)
    long_until(lambda: not live.client.jobs(unfinished=True))
    view = live.client.server()
    assert {each.what for each in view.troubles} <= {"launch", "message"}, view.troubles
    assert entrances.accepted
    assert entrances.refused
    print(f"poison: {SPECS} specs of seed {SEED}: {entrances.accepted} accepted, {entrances.refused} refused")


def test_a_job_that_cannot_be_launched_fails_alone_also_after_a_restart(live: LiveYard) -> None:
    """The request is right as far as anybody can check it; what it means shows when it is to start."""
    beside = live.submit("--", "bash", "-c", "until [ -e go ]; do sleep 0.02; done")
    server = live.server_pid
    spec = {
        "name": "poison",
        "workdir": str(live.work),
        "gang": True,
        "training": {"epochs": 1},
        "env": {"MASTER_PORT": "abc"},
        "groups": [{"command": {"argv": ["true"]}}],
    }
    status, answer = Entrances(live, random.Random(0))._post("/jobs", {"spec": spec})
    if status == 201 or status == 200:
        view: JobView = live.wait(json.loads(answer)["id"])
        assert (view.state, view.reason) == (State.FAILED, Reason.REFUSED)
        assert "MASTER_PORT 'abc'" in view.message
    else:
        assert status == 400, answer
    assert live.server_pid == server
    live.kill(server)
    assert live.yard("run", "--", "true").returncode == 0
    (live.work / "go").touch()
    assert live.wait(beside).state is State.SUCCEEDED


# -- what became of the disk


def test_a_damaged_row_is_told_and_accepted_by_the_command_line(live: LiveYard) -> None:
    job = live.submit("--", "true")
    live.wait(job)
    assert live.yard("server", "stop").returncode == 0
    (live.directory / "snapshot.json").unlink()
    with closing(sqlite3.connect(live.directory / "yard.db")) as database, database:
        database.execute("update journal set events = substr(events, 2), jobs = '' where seq = 2")
    told = live.yard("doctor")
    assert told.returncode == 1
    assert "row 2 is damaged" in told.stdout
    assert "yard doctor --accept 2" in told.stdout
    assert live.yard("ls", "-a").returncode == 0
    refused = live.yard("submit", "--", "true")
    assert refused.returncode == 2
    assert "can only be read" in refused.stderr
    assert live.yard("doctor", "--accept", "2").returncode == 0
    assert live.yard("run", "--", "true").returncode == 0
    live.yard("server", "stop", "--force")
    assert live.yard("run", "--", "true").returncode == 0  # it is written down
    assert "row 2 is damaged; it was accepted" in live.yard("doctor").stdout
    # The rows after it may name a job that nobody knows any more: it is held, and given up like any other.
    for held in live.client.jobs(unfinished=True):
        assert held.reason is Reason.HELD
        assert live.yard("cancel", held.id).returncode == 0
    long_until(lambda: not live.client.jobs(unfinished=True))


@pytest.mark.parametrize("harm", ["a page", *long("all of it", "a newer form")])
def test_a_database_that_is_no_good_is_told_in_a_sentence(live: LiveYard, harm: str) -> None:
    live.wait(live.submit("--", "true"))
    live.yard("server", "stop")
    path = live.directory / "yard.db"
    if harm == "a newer form":
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("update alembic_version set version_num = '9999'")
    else:
        with closing(sqlite3.connect(path)) as database:
            database.execute("pragma wal_checkpoint(truncate)")
        whole = path.read_bytes()
        path.write_bytes(b"" if harm == "all of it" else whole[:4096] + b"\xa5" * (len(whole) - 4096))
    before = path.read_bytes()
    for words in (("ls",), ("run", "--", "true"), ("doctor",)):
        done = live.yard(*words)
        assert done.returncode in (1, 2, 3), done
        assert "Traceback" not in done.stderr
        sentence = (done.stderr + done.stdout).replace("\n", " ")
        way_out = {"a newer form": "start it with that version"}.get(harm, "put a copy of it back")
        assert way_out in sentence, done
    assert path.read_bytes() == before
