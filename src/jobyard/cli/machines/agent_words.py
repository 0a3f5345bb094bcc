"""Agent words: which command runs the agent's program beside a task, on this machine or on one behind SSH?"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from jobyard.agent_protocol import remote_program
from jobyard.cli.reaching import MachineTarget
from jobyard.errors import UserError
from jobyard.model.node import NodeConfig
from jobyard.model.ssh_target import SshTarget

CONNECT_SECONDS, ALIVE_SECONDS = 10, 15
_BUILD = re.compile(r"[0-9a-f]{16}")


def agent_here(target: MachineTarget, arguments: Sequence[str]) -> list[str]:
    """-P: no module of the user's directory gets in."""
    state = ["--state", target.process.state_dir, "--called", target.name]
    return [sys.executable, "-P", "-m", "jobyard.agent.main", *state, *arguments]


def agent_there(target: MachineTarget, ssh_flags: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """The caller's own ssh, which may ask for a passphrase. Raises UserError for a login that no yard would use."""
    process = target.process
    if NodeConfig(target.unit.node, process.host, process.user).odd_login or not _BUILD.fullmatch(process.agent):
        raise UserError(f"{target.name}: the server says in odd words how its machine is reached")
    login = SshTarget(process.host, process.user, process.port, process.key_path if target.has_keys else "")
    called = ["--yard", process.yard, "--called", f"{target.name} on {target.unit.node}"]
    missing = f"yard: the agent's program is not on {target.unit.node} any more; `yard nodes probe` brings it back"
    old = f"yard: the python3 of {target.unit.node} is older than 3.8"
    command = remote_program.command(process.agent, [*called, *arguments], missing, old)
    return ["ssh", *ssh_flags, *_options(), *login.arguments(), command]


def _options() -> list[str]:
    config = os.environ.get("YARD_SSH_CONFIG")
    words = ["-F", config] if config else []
    return [*words, "-o", f"ConnectTimeout={CONNECT_SECONDS}", "-o", f"ServerAliveInterval={ALIVE_SECONDS}"]
