"""What does one sshd need: keys, a configuration, and the proof that it answers?"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS

PROGRAM = "/usr/sbin/sshd"
POLL_SECONDS = 0.005


def make_key(path: Path, comment: str) -> str:
    """A new ed25519 key pair without a passphrase; returns the public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path], check=True)
    return path.with_suffix(".pub").read_text().strip()


def configuration(
    *, address: str, port: int, files: Path, pid_file: Path, environment: Mapping[str, str], extra: str = ""
) -> str:
    """`files` holds host_key and authorized_keys, as the sshd itself will see it."""
    set_environment = " ".join(f'"{name}={value}"' for name, value in environment.items())
    return f"""\
ListenAddress {address}
Port {port}
HostKey {files}/host_key
AuthorizedKeysFile {files}/authorized_keys
PidFile {pid_file}
StrictModes no
UsePAM no
UseDNS no
PermitRootLogin prohibit-password
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding yes
AllowAgentForwarding yes
AllowStreamLocalForwarding yes
PrintMotd no
PrintLastLog no
MaxStartups 200
MaxSessions 100
LoginGraceTime 30
LogLevel VERBOSE
Subsystem sftp /usr/lib/openssh/sftp-server
{f"SetEnv {set_environment}" if environment else ""}
{extra}
"""


def wait_for_banner(address: str, port: int, seconds: float = PATIENCE_SECONDS) -> None:
    """Return once an sshd has said who it is."""
    deadline = time.monotonic() + seconds
    heard = ""
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((address, port), timeout=1) as connection:
                heard = connection.recv(64).decode(errors="replace")
                if heard.startswith("SSH-2.0-"):
                    return
        except OSError as error:
            heard = str(error)
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"no sshd answered at {address}:{port} for {seconds:g} s (last: {heard!r})")


def wait_for_pid(pid_file: Path, seconds: float = PATIENCE_SECONDS) -> int:
    """The pid an sshd wrote, which it does once it listens."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (text := _read(pid_file)).endswith("\n"):
            return int(text)
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"no sshd wrote {pid_file} for {seconds:g} s")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
