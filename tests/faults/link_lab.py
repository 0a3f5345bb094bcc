"""A yard with machines over real sshds, and tasks that leave a trace of every start in a file that all of them see."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from sqlalchemy import create_engine
from tests.faults.live_yard import LiveYard
from tests.hosts import Host, Hosts, Unsupported, processes
from tests.waiting import long_until

from jobyard.agent.system.processes import Process
from jobyard.engine import invariants
from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.model.events import Event
from jobyard.model.node import NodeState
from jobyard.server.journal import Journal
from jobyard.wire.views import TaskView

AGENTS = ".local/share/jobyard/agents"


class LinkLab:
    """Tasks append `<task> <attempt> <node>` to the ledger; hosts made of namespaces see our disk outside /tmp."""

    def __init__(self, hosts: Hosts, *, lease: float = 30.0) -> None:
        if not hosts.can_cut:
            raise Unsupported("links cannot be cut: network namespaces need root")
        self.hosts = hosts
        self.live = LiveYard()
        self.live.env |= {
            "YARD_SSH_CONFIG": str(hosts.config_file),
            "YARD_ALIVE_SECONDS": "1",
            "YARD_LEASE_SECONDS": f"{lease:g}",
            "YARD_IDLE_SECONDS": "120",
        }
        self.shared = Path(tempfile.mkdtemp(prefix="yard-links-", dir="/var/lib"))
        self.shared.chmod(0o777)
        self.ledger = self.shared / "ledger"
        names = [host.name for host in hosts]
        # By force, and then waited for: under libfaketime 0.9.10 a sleeping python3 may fail, and so may the first try.
        done = self.live.yard("nodes", "add", "--force", *names, "--label", "lab")
        assert done.returncode == 0, done
        for name in names:
            self.until_state(name, NodeState.UP)

    def close(self) -> None:
        print(self.live.story())  # pytest shows it where the test failed
        for host in self.hosts:
            for log in (host.home / AGENTS).glob("*/agent.log"):
                print(f"--- {host.name}: {log.name}\n" + "\n".join(log.read_text().splitlines()[-20:]))
        self.live.remove()
        shutil.rmtree(self.shared, ignore_errors=True)

    # -- tasks

    @property
    def mark(self) -> str:
        """Said by a task as the first thing it does."""
        return f"echo $YARD_TASK $YARD_ATTEMPT $YARD_NODE >> {self.ledger}"

    def starts(self) -> Counter[tuple[int, int]]:
        """How often each attempt of each task has begun."""
        return Counter((task, attempt) for task, attempt, _ in self.begun())

    def begun(self) -> list[tuple[int, int, str]]:
        """Task, attempt and node of every start."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [(int(task), int(attempt), node) for task, attempt, node in map(str.split, lines)]

    def submit(self, *words: str) -> str:
        return self.live.submit("--on", "lab", *words)

    def tasks(self, job: str) -> list[TaskView]:
        return list(self.live.client.tasks(job, limit=1000))

    def all_run(self, job: str, count: int) -> None:
        long_until(lambda: self.live.client.job(job).counts.running == count)

    def succeed(self, job: str) -> list[TaskView]:
        """Its tasks, once all are done."""
        done = self.live.yard("wait", "--timeout", "230s", job)
        assert done.returncode == 0, (done, self.live.client.job(job), self.live.yard("nodes").stdout)
        return self.tasks(job)

    # -- nodes

    def state(self, node: str) -> NodeState:
        return next(view.state for view in self.live.client.nodes() if view.id == node)

    def until_state(self, node: str, *states: NodeState) -> None:
        long_until(lambda: self.live.server() is not None and self.state(node) in states)

    def agent(self, host: Host) -> int | None:
        """The pid of its agent, seen from here."""
        inner = {pid for path in (host.home / AGENTS).glob("*/agent.pid") if (pid := _number(path))}
        return next((found.pid for found in host.processes() if found.inner_pid in inner), None)

    def kill_agent(self, host: Host) -> bool:
        pid = self.agent(host)
        processes.end([pid] if pid else [])
        return pid is not None

    def running(self, host: Host, command: str) -> int:
        return sum(command in process.command for process in host.processes())

    # -- memory

    def events(self) -> list[Event]:
        """The journal, checked: what it rebuilds makes sense after every event."""
        engine, state, found = create_engine(f"sqlite:///{self.live.directory / 'yard.db'}"), YardState(), []
        for _, events in Journal(engine).read():
            for event in events:
                handle(state, event)
                found.append(event)
            invariants.check(state)
        engine.dispose()
        return found

    def strays(self) -> list[Process]:
        return self.live.processes()


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
