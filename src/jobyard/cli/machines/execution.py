"""Exec beside a task on a machine: `yard` becomes the agent's program there, or the ssh that leads to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from jobyard.cli.machines.agent_words import agent_here, agent_there
from jobyard.cli.reaching import MachineTarget
from jobyard.errors import UserError


def execute(target: MachineTarget, command: Sequence[str], *, with_input: bool, with_terminal: bool) -> NoReturn:
    """In our place, so that signals, the terminal and the exit code are its own. Raises UserError where it cannot
    begin."""
    words = exec_words(target, command, with_input=with_input, with_terminal=with_terminal)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(words[0], words)
    except FileNotFoundError:
        raise UserError(f"there is no {words[0]} on this machine; install openssh-client") from None
    except OSError as error:  # more words than the kernel takes
        raise UserError(f"the command cannot be handed over: {error.strerror}") from error


def exec_words(target: MachineTarget, command: Sequence[str], *, with_input: bool, with_terminal: bool) -> list[str]:
    flags = ["--stdin"] * with_input + ["--tty"] * with_terminal
    arguments = ["--exec", target.process.attempt, *flags]
    if not target.process.host:
        return agent_here(target, [*arguments, "--", *command])
    ssh_flags = ["-tt" if with_terminal else "-T", *([] if with_input else ["-n"])]
    return agent_there(target, ssh_flags, [*arguments, "--remote", "--", *command])
