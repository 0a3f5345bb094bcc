"""The hosts of the SSH tests keep their own promises: machines apart, links that can be cut, nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import Host, Hosts, Unsupported, leftovers, packages
from tests.hosts.fixtures import MakeHosts
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
SLEEP = "sleep 1234"
QUICKLY = ("-o", "ConnectTimeout=1")
pytestmark = [pytest.mark.slow, pytest.mark.long]  # of our test hosts: tests over SSH use them, and would fail too
needs_namespaces = pytest.mark.skipif(os.getuid() != 0, reason="network namespaces need root")


class Master:
    """One multiplexed connection to a host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.options = ("-o", f"ControlPath={host.directory}/master", "-o", "ControlMaster=no")
        host.ssh("true", "-o", f"ControlPath={host.directory}/master", "-o", "ControlMaster=yes", "-f", "-N")

    def round_trip(self, seconds: float = 30.0) -> float:
        begin = time.monotonic()
        self.host.ssh("true", *self.options, "-o", "ProxyCommand=false", seconds=seconds)
        return time.monotonic() - begin


@pytest.fixture
def own_leftovers() -> Iterator[None]:
    """What this process owns afterwards is what it owned before."""
    before = owned()
    yield
    assert owned() == before


def owned() -> set[str]:
    """Namespaces, devices, directories and mounts of this process; other test processes have theirs."""
    mounts = (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())
    mine = (f"/yard-{os.getpid()}-", f"/yard-hosts-{os.getpid()}-")
    mounted = {f"mount {point}" for point in mounts if any(word in point for word in mine)}
    return mounted | set(leftovers.left_by(lambda pid: pid == os.getpid()))


def start_sleeping(host: Host, *options: str) -> None:
    """Something that outlives its login, and is seen to run."""
    host.ssh(f"setsid {SLEEP} >/dev/null 2>&1 </dev/null &", *options)
    until(lambda: SLEEP in commands(host))


def commands(host: Host) -> list[str]:
    return [process.command for process in host.processes()]


def boot_id(host: Host) -> str:
    return host.ssh("cat /proc/sys/kernel/random/boot_id").stdout


# -- apart from each other


def test_three_hosts_answer_by_name(hosts: Hosts) -> None:
    assert len(hosts) == 3
    for host in hosts:
        expected = host.name if hosts.can_reboot else os.uname().nodename
        assert host.ssh("hostname").stdout.strip() == expected


def test_homes_are_apart_and_seen_from_outside(hosts: Hosts) -> None:
    for host in hosts:
        host.ssh('echo "$0" >~/who; pwd >>~/who; echo ' + host.name + " >>~/who")
    assert [(host.home / "who").read_text().split()[-1] for host in hosts] == ["gpu1", "gpu2", "gpu3"]
    assert hosts["gpu2"].run("tail -n 1 who").stdout == "gpu2\n"


@needs_namespaces
def test_hosts_are_machines_of_their_own(hosts: Hosts) -> None:
    ask = "cat /etc/machine-id /proc/sys/kernel/random/boot_id; ls /tmp"
    answers = {host.ssh("touch /tmp/$(hostname); " + ask).stdout for host in hosts}
    assert len(answers) == 3
    assert all(len(answer.split()) == 3 for answer in answers)


@needs_namespaces
def test_a_host_has_nothing_of_this_repository(hosts: Hosts) -> None:
    assert hosts[0].ssh(f"ls {ROOT}", check=False).stdout == ""


@needs_namespaces
def test_hosts_reach_each_other_so_one_can_be_a_jump_host(hosts: Hosts) -> None:
    proxy = f"ProxyCommand=ssh -F {hosts.config_file} -W %h:%p gpu1"
    assert hosts["gpu2"].ssh("hostname; echo $SSH_CLIENT", "-o", proxy).stdout.split()[:2] == [
        "gpu2",
        hosts["gpu1"].address,
    ]


@needs_namespaces
def test_a_login_without_root_is_invented(make_hosts: MakeHosts) -> None:
    host = make_hosts(1, user="ben")[0]
    assert host.ssh("id -un; pwd; touch mine; touch /etc/ssh/x 2>/dev/null || echo refused").stdout.split() == [
        "ben",
        "/home/ben",
        "refused",
    ]
    assert (host.home / "mine").exists()


def test_an_unknown_host_key_is_refused(hosts: Hosts) -> None:
    done = hosts[0].ssh("true", "-o", "UserKnownHostsFile=/dev/null", check=False)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


# -- links


def test_a_cut_link_is_silent_and_comes_back(hosts: Hosts) -> None:
    hosts[0].cut()
    done = hosts[0].ssh("true", *QUICKLY, check=False)
    assert done.returncode == 255
    assert "timed out" in done.stderr  # and not "no route to host": nobody is told
    assert hosts[1].ssh("hostname").stdout == "gpu2\n"
    hosts[0].restore()
    assert hosts[0].ssh("hostname").stdout == "gpu1\n"


def test_an_established_connection_survives_a_short_cut(hosts: Hosts) -> None:
    master = Master(hosts[0])
    hosts[0].cut()
    with pytest.raises(subprocess.TimeoutExpired):
        master.round_trip(seconds=0.5)
    hosts[0].restore()
    master.round_trip()


def test_a_delay_is_seen_and_ends_on_the_same_connection(hosts: Hosts) -> None:
    master = Master(hosts[0])
    hosts[0].delay(300)
    slow = min(master.round_trip() for _ in range(2))
    hosts[0].delay(0)
    quick = min(master.round_trip() for _ in range(3))
    assert slow >= 0.3
    assert quick < 0.3


def test_a_slow_link_carries_many_bytes_and_can_be_cut(hosts: Hosts) -> None:
    hosts[0].delay(2)
    assert len(hosts[0].ssh("head -c 20000000 /dev/zero | tr '\\0' x").stdout) == 20_000_000
    hosts[0].cut()
    assert "timed out" in hosts[0].ssh("true", *QUICKLY, check=False).stderr
    hosts[0].restore()
    assert hosts[0].ssh("hostname").stdout == "gpu1\n"


# -- sshd


def test_a_stopped_sshd_refuses_and_a_started_one_answers(hosts: Hosts) -> None:
    hosts[0].stop_sshd()
    assert "refused" in hosts[0].ssh("true", check=False).stderr
    hosts[0].start_sshd()
    hosts[0].ssh("true")


def test_a_connection_outlives_the_listener(hosts: Hosts) -> None:
    master = Master(hosts[0])
    hosts[0].stop_sshd()
    master.round_trip()


def test_killed_sessions_leave_what_they_started(hosts: Hosts) -> None:
    host = hosts[0]
    master = Master(host)
    start_sleeping(host, *master.options)
    host.kill_sshd_sessions()
    with pytest.raises(AssertionError):
        master.round_trip()
    assert SLEEP in commands(host)
    host.ssh("true")


# -- power, disk, clock, commands


def test_a_reboot_ends_every_process_and_keeps_the_home(hosts: Hosts) -> None:
    host = hosts[0]
    host.reboot()  # where it cannot be, this skips, with the reason
    before = boot_id(host)
    start_sleeping(host)
    host.ssh("touch /tmp/gone ~/stays")
    host.reboot()
    assert boot_id(host) != before
    assert host.ssh("ls /tmp ~").stdout.split() == ["/root:", "stays", "/tmp:"]
    assert SLEEP not in commands(host)


def test_a_host_that_is_off_is_silent(hosts: Hosts) -> None:
    hosts[0].power_off()
    assert hosts[0].processes() == []
    assert "timed out" in hosts[0].ssh("true", *QUICKLY, check=False).stderr
    hosts[0].power_on()
    hosts[0].ssh("true")


@needs_namespaces
def test_orphans_are_reaped(hosts: Hosts) -> None:
    hosts[0].ssh("for i in 1 2 3; do setsid true & done; (sleep 0.01 &); exit 0")
    until(lambda: hosts[0].run("cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '", check=False).stdout == "0\n")


@needs_namespaces
def test_a_full_disk_is_full_until_freed(make_hosts: MakeHosts, own_leftovers: None) -> None:
    hosts = make_hosts(1, home_mib=2)
    hosts[0].fill_disk()
    assert "No space left" in hosts[0].ssh("echo x >~/file", check=False).stderr
    hosts[0].reboot()
    assert "No space left" in hosts[0].ssh("echo x >~/file", check=False).stderr
    hosts[0].free_disk()
    hosts[0].ssh("echo x >~/file")
    hosts.close()


def test_a_home_can_be_read_only(hosts: Hosts) -> None:
    hosts[0].protect_home()
    assert "Read-only" in hosts[0].ssh("echo x >~/file", check=False).stderr
    hosts[0].protect_home(read_only=False)
    hosts[0].ssh("echo x >~/file")


def test_a_command_can_be_missing_or_another(hosts: Hosts) -> None:
    hosts[0].replace_command("python3", None)
    assert hosts[0].ssh("command -v python3", check=False).stdout == ""
    assert hosts[0].ssh("python3 -V", check=False).returncode == 127
    hosts[0].replace_command("python3", "#!/bin/sh\necho Python 2.7\n")
    assert hosts[0].ssh("python3 -V; hostname").stdout.split()[:2] == ["Python", "2.7"]


def test_a_clock_can_be_ahead(make_hosts: MakeHosts) -> None:
    host = make_hosts(1, skewable_clock=True)[0]
    assert abs(float(host.ssh("date +%s.%N").stdout) - time.time()) < 5
    host.skew_clock(3600)
    assert abs(float(host.ssh("date +%s.%N").stdout) - time.time() - 3600) < 5


def test_the_next_test_finds_the_hosts_as_new(hosts: Hosts) -> None:
    host = hosts[0]
    start_sleeping(host)
    host.ssh("mkdir -p ~/.cache/x; touch ~/.cache/x/y")
    host.stop_sshd()
    if hosts.can_cut:
        host.cut()
    hosts.renew()
    assert list(host.home.iterdir()) == []
    assert [process.name for process in host.processes()] == ["sshd"]
    host.ssh("true")


# -- nothing is left


def test_three_hosts_leave_nothing(own_leftovers: None) -> None:
    with Hosts(3) as hosts:
        start_sleeping(hosts[1])
        pids = [process.pid for host in hosts for process in host.processes()]
        if hosts.can_cut:
            hosts[2].delay(5)
            hosts[0].cut()
        assert len(pids) >= 4
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not hosts.directory.exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_process_leaves_nothing_for_the_next(how: signal.Signals) -> None:
    program = (
        "import signal, time; signal.signal(signal.SIGINT, signal.default_int_handler); "  # ignored in the background
        "from tests.hosts import Hosts; h = Hosts(2); "
        "print(*[p.pid for host in h for p in host.processes()], flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        pids = [int(word) for word in child.stdout.readline().split()]
        child.send_signal(how)
    assert pids
    leftovers.remove()
    assert leftovers.left_by(lambda pid: pid == child.pid) == []
    if os.getuid() == 0:
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


# -- without root, and without packages


@needs_namespaces
def test_without_root_the_hosts_are_loopback_ports(make_hosts: MakeHosts) -> None:
    """These tests once more, as somebody without root: ben, who lives in a host of ours."""
    host = make_hosts(1, user="ben")[0]
    shutil.copytree(ROOT / "tests" / "hosts", host.home / "tests" / "hosts")
    shutil.copy(ROOT / "tests" / "waiting.py", host.home / "tests")
    (host.home / "check.py").write_text(
        "from tests.hosts import Hosts, Unsupported\n"
        "with Hosts(2) as hosts:\n"
        "    assert not hosts.can_cut\n"
        "    assert [h.ssh('pwd').stdout.strip() for h in hosts] == [str(h.home) for h in hosts]\n"
        "    hosts[0].ssh('setsid sleep 1234 >/dev/null 2>&1 </dev/null &')\n"
        "    while 'sleep 1234' not in [p.command for p in hosts[0].processes()]: pass\n"
        "    assert 'sleep 1234' not in [p.command for p in hosts[1].processes()]\n"
        "    hosts[0].kill_sshd_sessions()\n"
        "    assert 'sleep 1234' in [p.command for p in hosts[0].processes()]\n"
        "    hosts[1].stop_sshd()\n"
        "    assert 'refused' in hosts[1].ssh('true', check=False).stderr\n"
        "    hosts[1].replace_command('python3', None)\n"
        "    hosts[1].start_sshd()\n"
        "    assert hosts[1].ssh('python3 -V', check=False).returncode == 127\n"
        "    hosts.renew()\n"
        "    assert hosts[1].ssh('true').returncode == 0\n"
        "    try:\n"
        "        hosts[0].cut()\n"
        "    except Unsupported as reason:\n"
        "        print(reason)\n"
    )
    assert "need root" in host.run("/usr/bin/env python3 check.py").stdout
    assert host.run("ls /tmp").stdout == ""
    assert [process.name for process in host.processes()] == ["sshd"]


def test_what_hosts_cannot_do_here_is_a_skip_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "from tests.hosts import Unsupported\n"
        "@pytest.fixture(scope='session')\n"
        "def hosts():\n"
        "    raise Unsupported('This needs the Debian package openssh-server.')\n"
        "def test_with_hosts(hosts): ...\n"
        "def test_a_cut(): raise Unsupported('links cannot be cut')\n"
    )
    words = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "2 skipped" in done.stdout
    assert "openssh-server" in done.stdout
    assert "links cannot be cut" in done.stdout


def test_a_missing_package_is_a_skip_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "packages.txt").write_text("no-such-package-anywhere no-such-command\n")
    (tmp_path / "need").write_text("#!/bin/sh\necho This needs the Debian package $1. >&2; exit 1\n")
    (tmp_path / "need").chmod(0o755)
    monkeypatch.setattr(packages, "LIST", tmp_path / "packages.txt")
    monkeypatch.setattr(packages, "NEED", tmp_path / "need")
    with pytest.raises(Unsupported, match="no-such-package-anywhere"):
        Hosts(1)
