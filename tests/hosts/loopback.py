"""A host that is an sshd on a loopback port: for anybody. The home is its own; kernel, network and /tmp are shared."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.hosts import processes, sshd
from tests.hosts.host import Host, Options, Unsupported
from tests.hosts.processes import Process
from tests.waiting import PATIENCE_SECONDS

MARKER = "YARD_TEST_HOST"  # in the environment of every login, and so of what it starts

# A login starts in the home of /etc/passwd; this one takes it to the host's.
LOGIN = """\
cd "$HOME" || exit 1
if [ -n "${SSH_ORIGINAL_COMMAND-}" ]; then exec "$SHELL" -c "$SSH_ORIGINAL_COMMAND"; fi
exec "$SHELL" -l
"""


class LoopbackHost(Host):
    """Its link cannot be cut, and it cannot be rebooted."""

    can_cut: ClassVar[bool] = False
    can_reboot: ClassVar[bool] = False

    def __init__(self, name: str, root: Path, options: Options) -> None:
        super().__init__(name, root, options)
        self.user = pwd.getpwuid(os.getuid()).pw_name  # an sshd without root lets in its own user only
        self.address = "127.0.0.1"
        self.port = _free_port()
        self.login_home = self.home
        self._sshd: subprocess.Popen[bytes] | None = None
        self._sessions: set[int] = set()  # of every sshd started here: its children keep the session id
        if options.home_mib is not None:
            raise Unsupported("a home of its own size needs root: these hosts are sshds on loopback ports")
        (self.directory / "etc" / "login").write_text(LOGIN)
        (self.directory / "etc" / "faketime").write_text("+0\n")
        self._configure()

    def processes(self) -> list[Process]:
        return [process for process in processes.all_processes() if self._is_mine(process)]

    def stop_sshd(self) -> None:
        if self._sshd is not None:
            self._sshd.send_signal(signal.SIGTERM)
            self._sshd.wait(PATIENCE_SECONDS)
        self._sshd = self._listener = None

    def kill_sshd(self) -> None:
        super().kill_sshd()
        if self._sshd is not None:
            self._sshd.wait(PATIENCE_SECONDS)
        self._sshd = None

    def start(self) -> None:
        self.start_sshd()

    def close(self) -> None:
        self.kill_sshd()
        processes.end(process.pid for process in self.processes())

    def _is_mine(self, process: Process) -> bool:
        if process.session in self._sessions:
            return True
        return processes.environment(process.pid).get(MARKER) == str(self.directory)

    def _enter(self, as_root: bool) -> list[str]:
        if as_root:
            raise self._unsupported("nothing can be run as root")
        return ["env", "-C", str(self.home)]

    def _login_environment(self) -> dict[str, str]:
        shell = pwd.getpwuid(os.getuid()).pw_shell
        return {**super()._login_environment(), "SHELL": shell}

    def _set_environment(self) -> dict[str, str]:
        own = {"HOME": str(self.home), MARKER: str(self.directory), "TMPDIR": str(self.directory / "tmp")}
        return {**super()._set_environment(), **own}

    def _launch_sshd(self) -> int:
        pid_file = self.directory / "etc" / "sshd.pid"
        pid_file.unlink(missing_ok=True)
        words = [sshd.PROGRAM, "-D", "-f", str(self.directory / "etc" / "sshd_config"), "-E", str(self.sshd_log)]
        self._sshd = subprocess.Popen(words, stdin=subprocess.DEVNULL, cwd="/", start_new_session=True)
        self._sessions.add(self._sshd.pid)
        return sshd.wait_for_pid(pid_file)

    def _configure(self) -> None:
        files = self._seen_inside()
        text = sshd.configuration(
            address=self.address,
            port=self.port,
            files=files,
            pid_file=files / "sshd.pid",
            environment=self._set_environment(),
            extra=f"ForceCommand sh {files}/login",
        )
        (files / "sshd_config").write_text(text)

    def _seen_inside(self) -> Path:
        return self.directory / "etc"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
