"""What can a test do with one host? The parts that do not depend on how the host is made."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import unittest
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.hosts import processes, sshd
from tests.hosts.processes import Process

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
Finished = subprocess.CompletedProcess[str]


class Unsupported(unittest.SkipTest):
    """These hosts cannot do that here; the message says why. pytest skips the test."""


@dataclass(frozen=True)
class Options:
    """How the hosts of one group are made."""

    user: str = "root"  # the login user; one that this machine does not have is invented (namespaces only)
    home_mib: int | None = None  # the home is a disk of this size (namespaces only)
    skewable_clock: bool = False  # logins get libfaketime, for `skew_clock`
    environment: Mapping[str, str] = field(default_factory=dict)  # of every login
    hide: Sequence[Path] = (Path(__file__).resolve().parents[2],)  # not there in the host: by default this repository


class Host(ABC):
    """One machine that can be reached with `ssh -F <config_file> <name>`."""

    can_cut: ClassVar[bool]  # cut, restore, delay
    can_reboot: ClassVar[bool]  # power_off, power_on, reboot, a new boot id

    def __init__(self, name: str, root: Path, options: Options) -> None:
        self.name = name
        self.options = options
        self.user = options.user
        self.address = ""
        self.port = 0
        self.directory = root / name
        self.home = self.directory / "home"
        self.config_file = root / "config"
        self.key = root / "key"
        self.known_hosts = root / "known_hosts"
        self.sshd_log = self.directory / "etc" / "sshd.log"
        self._environment: dict[str, str] = {}
        self._listener: int | None = None  # pid of the sshd that accepts connections
        for part in ("home", "etc", "tmp", "var-tmp"):
            (self.directory / part).mkdir(parents=True)
        for part in ("tmp", "var-tmp"):
            (self.directory / part).chmod(0o1777)
        shutil.copy(self.key.with_suffix(".pub"), self.directory / "etc" / "authorized_keys")
        self.host_key = sshd.make_key(self.directory / "etc" / "host_key", name)

    # -- reaching it

    def config(self) -> str:
        """The `Host` block of an ssh config file."""
        lines = {
            "HostName": self.address,
            "Port": self.port,
            "User": self.user,
            "IdentityFile": self.key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
        }
        return f"Host {self.name}\n" + "".join(f"    {word} {value}\n" for word, value in lines.items())

    def known_hosts_line(self) -> str:
        place = self.address if self.port == 22 else f"[{self.address}]:{self.port}"
        return f"{place} {' '.join(self.host_key.split()[:2])}\n"

    def ssh(self, command: str, *options: str, check: bool = True, seconds: float = 30.0) -> Finished:
        """One `ssh` from this machine, with the group's config file."""
        words = ["ssh", "-F", str(self.config_file), *options, self.name, command]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
        return _checked(done) if check else done

    def run(self, command: str, *, check: bool = True, seconds: float = 60.0, as_root: bool = False) -> Finished:
        """Run bash in the host, past sshd and the link, as the login user and in its home."""
        done = subprocess.run(
            [*self._enter(as_root), "bash", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=self._login_environment(),
            cwd="/",
        )
        return _checked(done) if check else done

    # -- its sshd

    def start_sshd(self) -> None:
        """Return once it answers (over a cut link: once it listens). Runs already: nothing."""
        if self._listener is None:
            self._listener = self._launch_sshd()
            if self._is_reachable():
                sshd.wait_for_banner(self.address, self.port)

    def stop_sshd(self) -> None:
        """New connections are refused; sessions that stand go on, as with `systemctl stop ssh`."""
        if self._listener is not None:
            processes.end([self._listener], signal.SIGTERM)
            self._listener = None

    def kill_sshd_sessions(self) -> None:
        """SIGKILL to every sshd that serves a connection. What they started goes on."""
        processes.end(process.pid for process in self._sshds() if process.pid != self._listener)

    def kill_sshd(self) -> None:
        """SIGKILL to every sshd of the host."""
        processes.end(process.pid for process in self._sshds())
        self._listener = None

    # -- its processes

    @abstractmethod
    def processes(self) -> list[Process]:
        """All that runs in the host, sshd included, but not what makes it a host."""

    def _sshds(self) -> list[Process]:
        return [process for process in self.processes() if process.name.startswith("sshd")]

    # -- its link

    def cut(self) -> None:
        """Packets vanish silently in both directions, and no address goes away."""
        raise self._unsupported("links cannot be cut")

    def restore(self) -> None:
        """Undo `cut`; a delay stays."""
        raise self._unsupported("links cannot be restored")

    def delay(self, milliseconds: float) -> None:
        """A round trip takes this much longer; 0 ends it. Connections survive the change."""
        raise self._unsupported("links cannot be delayed")

    # -- its power

    def power_off(self) -> None:
        raise self._unsupported("hosts cannot be switched off")

    def power_on(self) -> None:
        raise self._unsupported("hosts cannot be switched on")

    def reboot(self) -> None:
        """Every process dies, /tmp and /run are empty, the boot id is new, the home is as it was, sshd answers."""
        self.power_off()
        self.power_on()

    # -- its disk, clock and commands

    def fill_disk(self) -> None:
        """Not one more byte fits into the home."""
        if self.options.home_mib is None:
            raise Unsupported("the home of this host is not a disk of its own: ask for Hosts(home_mib=...)")
        with open(self.home / ".filler", "ab", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(1 << 16))
            except OSError:
                pass

    def free_disk(self) -> None:
        (self.home / ".filler").unlink(missing_ok=True)

    def protect_home(self, read_only: bool = True) -> None:
        """Make the home read-only, as a broken disk or an NFS export would be; False undoes it."""
        raise self._unsupported("homes cannot be made read-only")

    def skew_clock(self, seconds: float) -> None:
        """Logins, and what they started, see a wall clock that is ahead by this much, within a second."""
        if not self.options.skewable_clock:
            raise Unsupported("the clock of this host is not skewable: ask for Hosts(skewable_clock=True)")
        (self.directory / "etc" / "faketime").write_text(f"{seconds:+f}\n")

    def replace_command(self, name: str, script: str | None) -> None:
        """Logins find this script as `name`, or with None do not find `name` at all. Restarts sshd's listener."""
        shadow = self.directory / "etc" / "bin"
        shadow.mkdir(exist_ok=True)
        for directory in DEFAULT_PATH.split(":"):  # the first one counts
            for program in os.scandir(directory):
                if not (shadow / program.name).is_symlink() and program.name != name:
                    (shadow / program.name).symlink_to(program.path)
        (shadow / name).unlink(missing_ok=True)
        if script is not None:
            (shadow / name).write_text(script)
            (shadow / name).chmod(0o755)
        self._environment["PATH"] = str(self._seen_inside() / "bin")
        self._configure()
        if self._listener is not None:
            self.stop_sshd()
            self.start_sshd()

    # -- its life

    @abstractmethod
    def start(self) -> None:
        """Return when its sshd answers."""

    def renew(self) -> None:
        """As if just made, for the next test: link whole, nothing running but sshd, home and /tmp empty."""
        self.kill_sshd()
        processes.end(process.pid for process in self.processes())
        for part in ("home", "tmp", "var-tmp"):
            empty(self.directory / part)
        shutil.rmtree(self.directory / "etc" / "bin", ignore_errors=True)
        self._environment.clear()
        self._configure()
        self.start_sshd()

    @abstractmethod
    def close(self) -> None:
        """End all its processes and take away its network. Closed already: nothing."""

    # -- what each kind of host says

    @abstractmethod
    def _enter(self, as_root: bool) -> list[str]:
        """The words before a command that make it run in the host."""

    @abstractmethod
    def _launch_sshd(self) -> int:
        """Start the sshd; its pid, seen from here, once it listens."""

    @abstractmethod
    def _configure(self) -> None:
        """Write sshd's configuration."""

    @abstractmethod
    def _seen_inside(self) -> Path:
        """Where the host itself sees `directory/etc`."""

    def _is_reachable(self) -> bool:
        return True

    def _login_environment(self) -> dict[str, str]:
        return {"PATH": DEFAULT_PATH, "USER": self.user, "LANG": "C.UTF-8", **self._set_environment()}

    def _set_environment(self) -> dict[str, str]:
        environment = {**self.options.environment, **self._environment}
        if self.options.skewable_clock:
            if not FAKETIME:
                raise Unsupported("This needs the Debian package faketime; `make packages` installs it.")
            environment |= {
                "LD_PRELOAD": str(FAKETIME[0]),
                "FAKETIME_TIMESTAMP_FILE": str(self._seen_inside() / "faketime"),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "NO_FAKE_STAT": "1",
            }
        return environment

    def _unsupported(self, what: str) -> Unsupported:
        return Unsupported(f"{what}: these hosts are sshds on loopback ports; network namespaces need root")


def new_boot_id() -> str:
    return f"{uuid.uuid4()}\n"


def empty(directory: Path) -> None:
    """Remove all that is in it; it stays, with its own mode."""
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            Path(entry.path).chmod(stat.S_IRWXU)
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _checked(done: Finished) -> Finished:
    if done.returncode:
        raise AssertionError(f"exit status {done.returncode} of {done.args}\n{done.stdout}{done.stderr}")
    return done
