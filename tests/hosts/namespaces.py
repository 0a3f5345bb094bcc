"""A host that is a set of namespaces: network, mounts, processes, name and clocks of its own. Needs root."""

from __future__ import annotations

import contextlib
import pwd
import shutil
import subprocess
import time
import uuid
from pathlib import Path
from typing import ClassVar

from tests.hosts import processes, sshd
from tests.hosts.host import DEFAULT_PATH, Host, Options, empty, new_boot_id
from tests.hosts.network import Link, Network
from tests.hosts.packages import SEARCH
from tests.hosts.processes import Process
from tests.waiting import PATIENCE_SECONDS

BOOT = Path(__file__).with_name("boot.sh")
NSENTER = shutil.which("nsenter", path=SEARCH) or "nsenter"
INVENTED_UID = 61500  # beyond what Debian gives out to people


class NamespaceHost(Host):
    """Cut, delay and reboot it."""

    can_cut: ClassVar[bool] = True
    can_reboot: ClassVar[bool] = True

    def __init__(self, name: str, root: Path, options: Options, network: Network) -> None:
        super().__init__(name, root, options)
        self.port = 22
        self._machine: subprocess.Popen[str] | None = None
        self._init = self._watch = 0  # pids: the first process, seen from here; its helper, seen from inside
        self._account = _account(options.user, self.directory / "accounts")
        self.login_home = Path(self._account.pw_dir)  # as the host sees it
        self._make_disk()
        (self.directory / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
        (self.directory / "etc" / "faketime").write_text("+0\n")
        self._link = Link(network)
        self.address = self._link.address
        self._configure()

    # -- its link

    def cut(self) -> None:
        self._link.down()

    def restore(self) -> None:
        self._link.up()

    def delay(self, milliseconds: float) -> None:
        self._link.delay(milliseconds)

    # -- its power

    def power_off(self) -> None:
        """As pulling the plug: not even a FIN gets out. Off already: nothing."""
        if self._machine is None:
            return
        was_up = self._link.is_up
        self._link.down()
        self._link.is_up = was_up  # the cable is where it was
        processes.end([self._init])
        for stream in (self._machine.stdin, self._machine.stdout):
            assert stream is not None
            stream.close()
        self._machine.wait(PATIENCE_SECONDS)
        self._machine = self._listener = None
        for part in ("tmp", "var-tmp"):
            empty(self.directory / part)

    def power_on(self) -> None:
        """On already: nothing."""
        if self._machine is None:
            (self.directory / "boot-id").write_text(new_boot_id())
            self._boot()
            if self._link.is_up:
                self._link.up()
            self.start_sshd()

    def _boot(self) -> None:
        words = [NSENTER, f"--net=/run/netns/{self._link.namespace}", "unshare", "--mount", "--uts", "--ipc"]
        words += ["--pid", "--fork", "--kill-child", *_clocks_from_zero(), "sh", str(BOOT)]
        words += [str(path) for path in self.options.hide if path.is_dir() and not path.is_relative_to("/tmp")]
        places = {"DIR": str(self.directory), "NAME": self.name, "LOGIN_HOME": str(self.login_home)}
        console = self.directory / "console"
        with console.open("w") as errors:
            machine = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the tests; they close the hosts
                env={"PATH": DEFAULT_PATH, **places},
            )
        assert machine.stdout is not None
        pids = machine.stdout.readline().split()
        if len(pids) != 2:
            machine.communicate(timeout=PATIENCE_SECONDS)
            raise RuntimeError(f"host {self.name} did not boot: {console.read_text().strip()}")
        self._machine, self._init, self._watch = machine, int(pids[0]), int(pids[1])

    # -- its disk

    def _make_disk(self) -> None:
        """Mounted here and not in the host: it outlives a reboot, and the test sees into it."""
        if self.options.home_mib is not None:
            size = f"size={self.options.home_mib}m,mode=700"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "yard-home", self.home], check=True)
        shutil.chown(self.home, self._account.pw_uid, self._account.pw_gid)
        self.home.chmod(0o700)

    def protect_home(self, read_only: bool = True) -> None:
        mode = "ro" if read_only else "rw"
        self.run(f"mount -o remount,bind,{mode} {self.login_home}", as_root=True)

    # -- its life

    def processes(self) -> list[Process]:
        if self._machine is None:
            return []
        inside = processes.in_pid_namespace(self._init)
        return [process for process in inside if process.inner_pid not in (1, self._watch)]

    def start(self) -> None:
        self.power_on()

    def renew(self) -> None:
        self.power_on()
        self.protect_home(read_only=False)
        self.delay(0)
        self.restore()
        if self.options.skewable_clock:
            self.skew_clock(0)
        super().renew()

    def close(self) -> None:
        self.power_off()
        self._link.close()
        if self.options.home_mib is not None and self.home.is_mount():
            subprocess.run(["umount", "--lazy", self.home], check=True)

    # -- what this kind of host says

    def _enter(self, as_root: bool) -> list[str]:
        words = [NSENTER, f"--target={self._init}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        if Path("/proc/self/ns/time_for_children").exists():
            words.append("--time")
        user = "0" if as_root else str(self._account.pw_uid)
        group = "0" if as_root else str(self._account.pw_gid)
        return [*words, f"--wdns={self.login_home}", "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]

    def _login_environment(self) -> dict[str, str]:
        return {**super()._login_environment(), "HOME": str(self.login_home), "SHELL": self._account.pw_shell}

    def _launch_sshd(self) -> int:
        pid_file = self.directory / "etc" / "sshd.pid"
        pid_file.unlink(missing_ok=True)
        words = [sshd.PROGRAM, "-f", "/etc/ssh/sshd_config", "-E", "/etc/ssh/sshd.log"]
        env = {"PATH": self._login_environment()["PATH"]}
        subprocess.run([*self._enter(as_root=True), *words], check=True, env=env, cwd="/", timeout=PATIENCE_SECONDS)
        inner_pid = sshd.wait_for_pid(pid_file)
        return next(process.pid for process in self.processes() if process.inner_pid == inner_pid)

    def _configure(self) -> None:
        inside = self._seen_inside()
        text = sshd.configuration(
            address=self.address,
            port=self.port,
            files=inside,
            pid_file=inside / "sshd.pid",
            environment={"PATH": self._login_environment()["PATH"], **self._set_environment()},
        )
        (self.directory / "etc" / "sshd_config").write_text(text)

    def _seen_inside(self) -> Path:
        return Path("/etc/ssh")

    def _is_reachable(self) -> bool:
        return self._link.is_up


def _account(user: str, directory: Path) -> pwd.struct_passwd:
    """The login user; when this machine has none of that name, files in `directory` that the host sees add one."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(user)
    home = f"/home/{user}"
    directory.mkdir()
    for name, line, mode in (
        ("passwd", f"{user}:x:{INVENTED_UID}:{INVENTED_UID}::{home}:/bin/bash", 0o644),
        ("group", f"{user}:x:{INVENTED_UID}:", 0o644),
        ("shadow", f"{user}:*:19000:0:99999:7:::", 0o600),
    ):
        (directory / name).write_text(f"{Path('/etc', name).read_text().rstrip()}\n{line}\n")
        (directory / name).chmod(mode)
    return pwd.struct_passwd((user, "x", INVENTED_UID, INVENTED_UID, "", home, "/bin/bash"))


def _clocks_from_zero() -> list[str]:
    """A machine's monotonic clocks count from its own boot, so start times of two boots, or two hosts, may be equal."""
    if not Path("/proc/self/ns/time_for_children").exists():
        return []
    monotonic, boot = int(time.monotonic()), int(time.clock_gettime(time.CLOCK_BOOTTIME))
    return ["--time", f"--monotonic=-{monotonic}", f"--boottime=-{boot}"]
