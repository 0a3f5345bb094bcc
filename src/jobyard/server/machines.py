"""Executors of a yard: which machines and clusters does it have, and how does its server talk to them?"""

from __future__ import annotations

import logging
import os
import pwd
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from jobyard import settings
from jobyard.agent.build import agent_zipapp
from jobyard.errors import UserError
from jobyard.executors.agent_process import LocalAgent
from jobyard.executors.machines import MachineExecutor
from jobyard.executors.mirror import Mirror
from jobyard.executors.registry import executor_class
from jobyard.executors.remote_agent import agent_name
from jobyard.executors.result_collector import RemoteFiles
from jobyard.executors.run_as import RunAsAgent, account_of, state_of
from jobyard.executors.ssh import SshAgent
from jobyard.model.events import NodeRemoved
from jobyard.model.node import ClusterConfig, NodeConfig, place_of
from jobyard.model.ssh_target import SshTarget
from jobyard.model.task import AttemptId
from jobyard.server.loop import YardLoop
from jobyard.server.result_collection import collect_results, tidy_up
from jobyard.settings import ServerKnobs

log = logging.getLogger(__name__)


def respawn_command(directory: Path, listen: str = "") -> list[str]:
    """What brings a dead server back as it was; the agent runs it while work is pending."""
    command = [sys.executable, "-P", "-m", "jobyard.server", "--yard", str(directory), "--background"]
    return [*command, "--listen", listen] if listen else command


class Machines:
    """Makes an executor for each machine and each cluster, and gives it to the loop."""

    def __init__(
        self,
        loop: YardLoop,
        directory: Path,
        yard_id: str,
        this_machine: str,
        listen: str,
        knobs: ServerKnobs,
        open_files: int = 0,
    ) -> None:
        """`open_files`: the limit that tasks on this machine get, ours being higher; 0: ours."""
        self.this_machine = this_machine
        self.agent_build = agent_zipapp()[1]
        self._loop = loop
        self._directory = directory
        self._yard_id = yard_id
        self._knobs = knobs
        self._account = account_of(knobs.run_as) if knobs.run_as else None
        self._open_files = open_files
        self.mirror = loop.mirror = Mirror(directory / "mirror")
        self._own_files = directory / "agent"  # of attempts on this machine
        self._links: dict[str, tuple[str, str, int | None, str]] = {}  # how each machine is reached
        self.problems: dict[str, str] = {}  # cluster -> why it has no executor
        self._one_at_a_time = threading.Lock()  # tasks of one job share a directory
        # The agent has little of our environment, because its tasks could read it; a restart of the server needs it.
        respawn = {"respawn": respawn_command(directory, listen), "respawn_env": dict(os.environ)}
        self._respawn: dict[str, Any] = {"yard": yard_id, **respawn}

    @property
    def file_places(self) -> tuple[Path, Path]:
        """Where files of attempts are, those on other machines and those on this one, each in an agent's layout."""
        return self.mirror.directory, self._own_files

    @property
    def own_state(self) -> Path:
        """The directory of the agent on this machine."""
        return self._own_files if self._account is None else state_of(self._account, self.known_as(self.this_machine))

    def known_as(self, node: str) -> str:
        """The name of this yard for an agent that runs under another account."""
        return agent_name(self._yard_id, node)

    def start(self) -> None:
        tidy_up(self.mirror, lambda job: self._loop.job(job) if job in self._loop.state.jobs else None)
        if self._knobs.own_machine:
            self._loop.add(self._this_machine())
        for config in self._loop.state.places.configs.values():
            self.add(config)
        clusters = self._loop.state.places.clusters
        for cluster in clusters.values():
            try:
                self.add_cluster(cluster)
            except UserError as error:  # the library is not installed any more: the rest goes on
                log.error("cluster %s: %s", cluster.id, error)
                self.problems[cluster.id] = str(error)
        # A machine without a link must not be given work.
        known = self._loop.state.places.nodes
        gone = [node for node in known if not self._loop.executor_of(node) and place_of(node) not in clusters]
        self._loop.report([NodeRemoved(node, time.time()) for node in gone])

    def _this_machine(self) -> MachineExecutor:
        if self._account is not None:
            return self._this_machine_as(self._account)
        agent_socket = settings.runtime_dir() / f"{settings.yard_key(self._directory)}.agent"
        files = self._own_files
        agent = LocalAgent(files, agent_socket, os.environ.get("JOBYARD_FAKE_GPUS", ""), self._open_files)
        machine: MachineExecutor = executor_class("local")(
            "local", self.this_machine, agent, self._loop, self._respawn, files, owner_only=True
        )
        return machine

    def _this_machine_as(self, account: pwd.struct_passwd) -> MachineExecutor:
        """Its tasks run as another user: they are not trusted, and their output comes as from another machine."""
        agent, hello = RunAsAgent(self.this_machine, account, self._yard_id), {"yard": self._yard_id}
        machine: MachineExecutor = executor_class("local")(
            "local",
            self.this_machine,
            agent,
            self._loop,
            hello,
            self.mirror.directory,
            self._remote_files(),
            shares_disk=True,
        )
        return machine

    def _remote_files(self) -> RemoteFiles:
        return RemoteFiles(self.mirror, self._directory / "snapshots", self._collect_results, self._knobs.lease_seconds)

    def add(self, config: NodeConfig) -> None:
        """Use a machine from now on. A link that is there already is kept; another one of that name is let go first."""
        if self._links.get(config.id) == config.link:
            return
        self.remove(config.id)
        self._links[config.id] = config.link
        agent, hello = self.agent(config), {"yard": self._yard_id}  # this agent cannot restart the server
        self._loop.add(
            executor_class("ssh")(
                "ssh", config.id, agent, self._loop, hello, self.mirror.directory, self._remote_files()
            )
        )

    def add_cluster(self, config: ClusterConfig) -> None:
        """Use a cluster from now on. Raises UserError where the library for it is not installed."""
        kind = executor_class("kubernetes")
        self.remove(config.id)
        self._loop.add(kind(config, self._loop, self._yard_id, self.mirror))

    def remove(self, place: str) -> None:
        """A machine or a cluster, not a single node of a cluster."""
        self.problems.pop(place, None)
        self._links.pop(place, None)
        self._loop.remove(place)

    def is_linked(self, config: NodeConfig) -> bool:
        """Whether this machine is used through exactly that link, and the link is up."""
        executor = self._loop.executor_of(config.id)
        is_same = self._links.get(config.id) == config.link
        return is_same and executor is not None and executor.status().is_connected

    def agent(self, config: NodeConfig) -> SshAgent:
        target = SshTarget(config.host, config.user, config.port, config.key_path)
        return SshAgent(config.id, target, self._yard_id, settings.runtime_dir(), self._knobs.alive_seconds)

    def _collect_results(self, attempt: AttemptId) -> None:
        """In a thread: a job's record never changes, and the mirror's files of an ended attempt do not either."""
        with self._one_at_a_time:
            collect_results(self.mirror, self._loop.job(attempt.job), attempt)


def this_host() -> str:
    return socket.gethostname().split(".")[0] or "localhost"
