"""Run as another user: how do tasks on the server's own machine do so? Through an agent that is that user's.

It is reached as one on another machine is, and keeps its files in that user's home: what its tasks wrote comes through
the connection, and the server, which is root, opens no file that they could have replaced by a link.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from asyncio.subprocess import Process
from pathlib import Path

from jobyard.agent.files import places
from jobyard.agent_protocol import inherited
from jobyard.errors import Unavailable, UserError
from jobyard.executors.remote_agent import RemoteAgent, last_line

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def account_of(user: str) -> pwd.struct_passwd:
    """Raises UserError where tasks cannot run as this user, or the user is the server's own."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise UserError(
            f"--run-as {user}: this machine has no such user; make one, for example: useradd -m {user}"
        ) from None
    if os.getuid() != 0:
        raise UserError(f"--run-as {user}: only root can start tasks as another user; serve as root, or leave it out")
    if account.pw_uid == 0:
        raise UserError(f"--run-as {user}: that is the server's own account; name another user")
    return account


def state_of(account: pwd.struct_passwd, name: str) -> Path:
    """Where the agent of this name keeps its files."""
    return Path(places.state_of(name, account.pw_dir))


class RunAsAgent(RemoteAgent):
    def __init__(self, node: str, account: pwd.struct_passwd, yard_id: str) -> None:
        super().__init__(node, yard_id)
        self._account = account

    async def _start(self, remote_command: str, stdin: int, stdout: int) -> Process:
        account = self._account
        try:
            return await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                remote_command,
                stdin=stdin,
                stdout=stdout,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                cwd="/",
                env=environment_of(account, os.environ),
                user=account.pw_uid,
                group=account.pw_gid,
                extra_groups=os.getgrouplist(account.pw_name, account.pw_gid),
                umask=0o022,
            )
        except OSError as error:
            raise Unavailable(f"node {self.node}: {self._explain_failure(None, str(error))}") from error

    def _explain_failure(self, code: int | None, said: str) -> str:
        why = last_line(said) or f"exit code {code}"
        return f"the agent of user {self._account.pw_name} did not start: {why}"


def environment_of(account: pwd.struct_passwd, environ: os._Environ[str]) -> dict[str, str]:
    """As a login has it, and nothing of the server's own but the language and what is the agent's."""
    kept = ("LANG", "LC_", "TZ", "JOBYARD_")
    own = {name: value for name, value in inherited.for_agent(environ).items() if name.startswith(kept)}
    shell = account.pw_shell or "/bin/sh"
    named = {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name, "SHELL": shell, "PATH": PATH}
    return {**own, **named, inherited.PRIVATE: ""}
