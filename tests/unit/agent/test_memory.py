"""Is a task that asked for a limit kept within it, by a cgroup or by the agent's watch?"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client
from tests.unit.agent.conftest import MakeAgent
from tests.waiting import until

from jobyard.agent.attempts import memory_watch
from jobyard.agent.execution import memory_groups
from jobyard.agent.execution.memory_groups import MODE, MemoryGroups
from jobyard.agent.system import probe, processes
from jobyard.agent_protocol import records

ALLOCATE = f"{sys.executable} -c 'import sys, time; held = b\"x\" * (int(sys.argv[1]) << 20); {{}}'"
TAKE = ALLOCATE.format("time.sleep(1000)")
BRIEFLY = ALLOCATE.format('open("held", "w")')


@pytest.fixture(scope="module")
def cgroups(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where the machine has none that we may use."""
    state = str(tmp_path_factory.mktemp("state"))
    group = MemoryGroups(state).make("j.0.1", 64)
    memory_groups.remove_leftovers(state, ())
    if not group:
        pytest.skip("no cgroup with a memory limit can be made on this machine: it needs root, or a delegated cgroup")


@pytest.fixture(params=["cgroup", "watch"])
def mode(request: pytest.FixtureRequest) -> str:
    if request.param == "cgroup":
        request.getfixturevalue("cgroups")
    return str(request.param)


@pytest.fixture
def limited(make_agent: MakeAgent, mode: str) -> Iterator[AgentProcess]:
    agent = make_agent(**{MODE: mode}).start()
    yield agent
    agent.stop_everything()
    memory_groups.remove_leftovers(str(agent.state), ())


def groups_of(agent: AgentProcess) -> list[Path]:
    name = memory_groups.name_of(str(agent.state))
    bases = [Path(above) / name for above in probe.cgroup_directories("memory")]
    return [entry for base in bases if base.is_dir() for entry in base.iterdir() if entry.is_dir()]


def launch(client: Client, *items: dict[str, Any], limit: int, slot: str = "s") -> None:
    client.launch(slot, *items, memory_mib=limit, memory_limit_mib=limit)


def test_a_task_over_its_limit_is_out_of_memory_and_says_its_peak(limited: AgentProcess) -> None:
    client = limited.connect()
    launch(client, {"id": "j.0.1", "shell": TAKE + " 300"}, limit=100)
    ended = client.finished("j.0.1")
    assert ended["reason"] == "OutOfMemory"
    assert ended["message"].startswith("killed because it used more than its memory limit of 100 MiB (peak: ")
    assert ended["peak_memory_mib"] >= 99
    until(lambda: not groups_of(limited))


def test_a_task_that_goes_on_when_a_part_of_it_was_killed_is_out_of_memory_too(limited: AgentProcess) -> None:
    """Version 1 of cgroups ends one process alone, and a shell says 0 for what it did afterwards."""
    client = limited.connect()
    launch(client, {"id": "j.0.1", "shell": TAKE + " 300 || true; exit 0"}, limit=100)
    ended = client.finished("j.0.1")
    assert ended["reason"] == "OutOfMemory"
    assert "because it used more than its memory limit of 100 MiB (peak: " in ended["message"]


def test_a_task_within_its_limit_runs(limited: AgentProcess, mode: str) -> None:
    client = limited.connect()
    launch(client, {"id": "j.0.1", "shell": BRIEFLY + " 50; cat /proc/self/cgroup"}, limit=400)
    assert client.finished("j.0.1")["exit_code"] == 0
    is_in_a_group = memory_groups.name_of(str(limited.state)) + "/j.0.1" in limited.output("j.0.1")
    assert is_in_a_group == (mode == "cgroup")


def test_all_processes_of_a_task_count_together_also_its_daemons(limited: AgentProcess) -> None:
    client = limited.connect()
    # Version 1 of cgroups ends the largest process alone; the task then fails by itself.
    shell = f"for i in 1 2 3; do (setsid {TAKE} 60 &); done; until [ -e over ]; do sleep 0.02; done; exit 1"
    launch(client, {"id": "j.0.1", "shell": shell, "grace": 1}, limit=100)
    until(lambda: is_over(limited))
    (limited.work / "over").touch()
    assert client.finished("j.0.1")["reason"] == "OutOfMemory"
    assert not list(processes.with_environment("YARD_ERROR_FILE=" + limited.files("j.0.1").error))


def is_over(agent: AgentProcess) -> bool:
    record = records.read(agent.files("j.0.1").record) or records.Record()
    group = record.limit.group if record.limit is not None else ""
    return bool(record.over_kib or (group and memory_groups.has_killed(group)))


def test_what_processes_share_counts_once(limited: AgentProcess) -> None:
    client = limited.connect()
    script = limited.work / "share.py"
    script.write_text(
        "import os, time\n"
        "held = b'x' * (60 << 20)\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(1.5)\n"
        "        os._exit(0)\n"
        "for _ in range(4):\n"
        "    os.wait()\n"
    )
    launch(client, {"id": "j.0.1", "shell": f"exec {sys.executable} {script}"}, limit=150)
    assert client.finished("j.0.1")["exit_code"] == 0


def test_a_limit_holds_when_the_agent_is_killed(limited: AgentProcess) -> None:
    client = limited.connect()
    launch(client, {"id": "j.0.1", "shell": f"until [ -e go ]; do sleep 0.02; done; {TAKE} 300"}, limit=100)
    client.started("j.0.1")
    limited.kill()
    client = limited.start().connect("j.0.1")
    (limited.work / "go").touch()
    ended = client.finished("j.0.1")
    assert ended["reason"] == "OutOfMemory"
    assert "memory limit of 100 MiB" in ended["message"]
    until(lambda: not groups_of(limited))


def test_a_limit_holds_when_agent_and_lane_are_killed(limited: AgentProcess) -> None:
    client = limited.connect()
    launch(client, {"id": "j.0.1", "shell": f"until [ -e go ]; do sleep 0.02; done; exec {TAKE} 300"}, limit=100)
    client.started("j.0.1")
    limited.kill()
    processes.send(limited.claim("j.0.1").lane_pid, signal.SIGKILL)
    client = limited.start().connect("j.0.1")
    (limited.work / "go").touch()
    ended = client.finished("j.0.1")
    assert ended["reason"] == "OutOfMemory"
    assert "memory limit of 100 MiB" in ended["message"]
    until(lambda: not groups_of(limited))


def test_a_reservation_alone_is_no_limit(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": BRIEFLY + " 300"}, memory_mib=100)
    assert server.finished("j.0.1")["exit_code"] == 0
    assert b"limit" not in Path(agent.files("j.0.1").record).read_bytes()


def test_a_limited_command_that_is_not_there_fails_as_any_other(limited: AgentProcess) -> None:
    client = limited.connect()
    (limited.work / "plain").write_text("echo by sh\n")
    (limited.work / "plain").chmod(0o755)
    items = [{"id": "j.0.1", "argv": ["nowhere-to-be-found"]}, {"id": "j.1.1", "argv": ["./plain"]}]
    launch(client, *items, limit=100)
    assert client.finished("j.0.1")["exit_code"] == 127
    assert "nowhere-to-be-found: command not found" in limited.errors("j.0.1")
    assert client.finished("j.1.1")["exit_code"] == 0
    assert limited.output("j.1.1") == "by sh\n"


def test_a_limited_task_has_its_own_session_and_signals_as_any_other(limited: AgentProcess) -> None:
    client = limited.connect()
    show = (
        "import os, signal as s; print(os.getsid(0) == os.getpid(), s.getsignal(s.SIGHUP), os.listdir('/proc/self/fd'))"
    )
    item = {"argv": [sys.executable, "-c", show]}
    launch(client, {"id": "j.0.1", **item}, limit=200)
    client.launch("plain", {"id": "j.1.1", **item})
    assert client.finished("j.0.1")["exit_code"] == client.finished("j.1.1")["exit_code"] == 0
    assert limited.output("j.0.1") == limited.output("j.1.1")


@pytest.mark.usefixtures("cgroups")
def test_a_group_that_a_killed_lane_left_is_removed(make_agent: MakeAgent) -> None:
    agent = make_agent(**{MODE: "cgroup"}).start()
    client = agent.connect()
    launch(client, {"id": "j.0.1", "shell": "sleep 1000"}, limit=100)
    client.started("j.0.1")
    claim, start = agent.claim("j.0.1"), agent.start_of("j.0.1")
    agent.kill()
    processes.send(claim.lane_pid, signal.SIGKILL)
    records.append_end(agent.files("j.0.1").record, 1.0, "Unknown")  # as if it had been about to clear away
    assert groups_of(agent)
    agent.start()
    until(lambda: not groups_of(agent))
    until(lambda: processes.start_time(start.pid) == 0)


@pytest.mark.usefixtures("cgroups")
def test_an_agent_that_leaves_leaves_no_group_behind(make_agent: MakeAgent) -> None:
    agent = make_agent(**{MODE: "cgroup"}).start()
    client = agent.connect()
    launch(client, {"id": "j.0.1", "shell": "true"}, limit=100)
    client.finished("j.0.1")
    name = memory_groups.name_of(str(agent.state))
    assert any(os.path.isdir(f"{above}/{name}") for above in probe.cgroup_directories("memory"))
    client.send(op="quit")
    assert agent.process is not None
    assert agent.process.wait() == 0
    assert not any(os.path.isdir(f"{above}/{name}") for above in probe.cgroup_directories("memory"))


def test_files_that_are_mapped_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1 << 20) * 64)
    show = (
        "import mmap, sys\nfile = open(sys.argv[1], 'rb')\nmapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
        "sum(mapped[i] for i in range(0, len(mapped), 4096))\nprint('ready', flush=True)\nsys.stdin.read()"
    )
    reader, writer = os.pipe()
    quiet, told = os.pipe()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", show, str(path)],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0), (os.POSIX_SPAWN_DUP2, told, 1)],
    )
    try:
        assert os.read(quiet, 5) == b"ready"
        found = processes.inspect(pid)
        assert found is not None
        assert found.rss_kib > 64 << 10
        assert memory_watch._held_kib(found) < 50 << 10
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for descriptor in (reader, writer, quiet, told):
            os.close(descriptor)


@pytest.mark.parametrize("answer", ["exit 1", "exit 0"])
def test_a_systemd_that_gives_no_scope_means_the_watch(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked once, for a scope of our own that we may divide; it may refuse, or say yes and do nothing."""
    busctl = tmp_path / "busctl"
    busctl.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n{answer}\n')
    busctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(memory_groups, "_usable", lambda name: "")
    monkeypatch.setattr(memory_groups, "_ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert MemoryGroups(str(tmp_path)).make("j.0.1", 100) == ""
    asked = (tmp_path / "asked").read_text()
    assert f"PIDs au 1 {os.getpid()} Delegate b true" in asked
    assert "--user call org.freedesktop.systemd1" in asked


def test_version_2_gets_its_limit_no_swap_and_ends_as_a_whole(tmp_path: Path) -> None:
    for name in ("memory.max", "memory.swap.max", "memory.oom.group"):
        (tmp_path / name).write_text("")
    memory_groups._limit(str(tmp_path), 100)
    assert (tmp_path / "memory.max").read_text() == str(100 << 20)
    assert (tmp_path / "memory.swap.max").read_text() == "0"
    assert (tmp_path / "memory.oom.group").read_text() == "1"


def test_what_version_2_tells_is_read(tmp_path: Path) -> None:
    (tmp_path / "memory.peak").write_text("104857600\n")
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 0\n")
    assert memory_groups.peak_kib(str(tmp_path)) == 102400
    assert not memory_groups.has_killed(str(tmp_path))
    (tmp_path / "memory.events").write_text("low 0\noom_kill 2\n")
    assert memory_groups.has_killed(str(tmp_path))
