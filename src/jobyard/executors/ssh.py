"""SSH agent: how is the agent of a machine behind SSH reached? By the system's ssh, one multiplexed connection a node.

Nothing is installed there: sshd and python3 are enough. The user's ssh configuration, jump hosts and agents all work,
and host keys are checked the way that configuration says.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

from jobyard.errors import Unavailable
from jobyard.executors.remote_agent import RemoteAgent, last_line
from jobyard.model.ssh_target import SshTarget

CONNECT_SECONDS = 10
ALIVE_SECONDS = 5.0  # three unanswered ones, and the link counts as cut


class SshAgent(RemoteAgent):
    """A transport: connects to a remote machine's agent."""

    def __init__(
        self, node: str, target: SshTarget, yard_id: str, control_dir: Path, alive_seconds: float = ALIVE_SECONDS
    ) -> None:
        super().__init__(node, yard_id)
        self._alive_seconds = max(1, round(alive_seconds))
        self._target = target
        self._control_dir = control_dir

    async def _start(self, remote_command: str, stdin: int, stdout: int) -> Process:
        try:
            return await asyncio.create_subprocess_exec(
                *self.ssh_words(),
                remote_command,
                stdin=stdin,
                stdout=stdout,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise Unavailable(f"node {self.node}: there is no ssh on this machine; install openssh-client") from None

    def ssh_words(self) -> Sequence[str]:
        """The ssh command line up to the remote command. Never asks for anything: nobody is there to answer."""
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": str(min(CONNECT_SECONDS, 5 * self._alive_seconds)),
            "ServerAliveInterval": str(self._alive_seconds),
            "ServerAliveCountMax": "3",
            "ControlMaster": "auto",
            "ControlPath": f"{self._control_dir}/%C",
            "ControlPersist": "60",
        }
        words = ["ssh", "-T"]
        if config := os.environ.get("YARD_SSH_CONFIG"):
            words += ["-F", config]
        for name, value in options.items():
            words += ["-o", f"{name}={value}"]
        return [*words, *self._target.arguments()]

    def _explain_failure(self, code: int | None, said: str) -> str:
        last = last_line(said)
        target = self._target
        port = f"port {target.port}" if target.port else "the port"
        known = shlex.quote(target.known_as)
        for sign, way_out in _WAYS_OUT.items():
            if sign in said:
                return way_out.format(host=target.host, port=port, ssh=target.by_hand, known=known, last=last)
        return f"ssh failed: {last or f'exit code {code}'}; try `{target.by_hand} true` by hand"


_WAYS_OUT = {
    "Permission denied": "the login was refused ({last}); check the user and the key with `{ssh} true`",
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "its host key has changed; find out why, then `ssh-keygen -R {known}`",
    "Host key verification failed": "its host key is not known; log in once with `{ssh}` to check and add it",
    "Connection refused": "nothing listens there (connection refused); check {port} and that sshd runs",
    "Could not resolve hostname": "the name {host} cannot be resolved; check it or add it to ~/.ssh/config",
    "timed out": "{host} does not answer (timed out); check the address, {port} and the network",
    "No route to host": "there is no route to {host}; check the address and the network",
}
