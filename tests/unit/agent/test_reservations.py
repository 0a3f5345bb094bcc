"""Do yards of different people keep out of each other's room?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_process import SOURCE
from tests.unit.agent.conftest import MakeAgent
from tests.waiting import until

from jobyard.agent.sharing.published import Capacity
from jobyard.agent.sharing.reservations import Reservations
from jobyard.agent.system import processes
from jobyard.agent_protocol import messages

CAPACITY = Capacity(cpu_millis=4000, memory_mib=1000, device_mib={0: 80, 1: 80})


@pytest.fixture
def neighbour(reservations_dir: Path) -> Any:
    """Publishes a reservation of another process that runs: our parent."""

    def publish(owner: int | None = None, **changes: Any) -> None:
        reservations_dir.mkdir(mode=0o1777, exist_ok=True)
        pid = os.getppid()
        content = {"uid": os.getuid(), "pid": pid, "start_time": processes.start_time(pid), "yard": "theirs"}
        content.update(
            boot_id=processes.boot_id(), slots={"s": {"memory_mib": 600, "devices": {"0": 50}, "whole_devices": [1]}}
        )
        content.update(changes)
        path = reservations_dir / f"{content['uid']}-{content['pid']}.json"
        path.write_text(json.dumps(content))
        if owner is not None:
            os.chown(path, owner, -1)

    return publish


def refused(reservations: Reservations, slot: str, amounts: dict[str, Any]) -> str | None:
    """Why this slot may not hold this; None: it does."""
    return reservations.update({slot: amounts}).get(slot)


@pytest.mark.parametrize(
    ("amounts", "fits"),
    [
        ({"memory_mib": 400}, True),
        ({"memory_mib": 401}, False),
        ({"cpu_millis": 4000}, True),
        ({"devices": {"0": 30}}, True),
        ({"devices": {"0": 31}}, False),
        ({"devices": {"1": 1}}, False),
        ({"whole_devices": [0]}, False),
        ({"whole_devices": [1]}, False),
        ({}, True),
    ],
)
def test_what_others_hold_is_not_taken(neighbour: Any, amounts: dict[str, Any], fits: bool) -> None:
    neighbour()
    refusal = refused(Reservations(CAPACITY), "mine", amounts)
    assert (refusal is None) == fits
    assert fits or "yard of " in str(refusal)


def test_what_others_have_of_a_devices_compute_is_told(neighbour: Any) -> None:
    slots = [{"devices": {"0": 10}, "device_percent": {"0": 50, "7": 50}}] * 2
    neighbour(slots=dict(enumerate(slots)))
    assert Reservations(CAPACITY).others().device_percent == {0: 100}, "of device 7 we know nothing"


def test_slots_of_our_own_count_too(neighbour: Any) -> None:
    neighbour()
    mine = Reservations(CAPACITY)
    assert refused(mine, "a", {"memory_mib": 300}) is None
    assert refused(mine, "b", {"memory_mib": 300}) is not None
    mine.update({}, released=["a"])
    assert refused(mine, "b", {"memory_mib": 300}) is None


def test_alone_on_a_machine_a_yard_may_overbook_itself() -> None:
    assert refused(Reservations(CAPACITY), "a", {"memory_mib": 5000, "cpu_millis": 9000}) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"start_time": 1},
        {"pid": 99999999},
        {"boot_id": "other"},
        {"uid": 12345},
        {"slots": []},
        {"slots": {"s": 3}},
        {"pid": "x"},
    ],
)
def test_what_nobody_vouches_for_is_not_believed(neighbour: Any, changes: dict[str, Any]) -> None:
    neighbour(**changes)
    assert Reservations(CAPACITY).others().memory_mib == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to play another user")
def test_nobody_speaks_for_another_users_process(neighbour: Any) -> None:
    neighbour(owner=65534, uid=65534)  # the file is theirs, the process is not
    assert Reservations(CAPACITY).others().memory_mib == 0
    neighbour(owner=65534)  # they say that they are us
    assert Reservations(CAPACITY).others().memory_mib == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_two_users_see_each_other(reservations_dir: Path, tmp_path: Path) -> None:
    assert refused(Reservations(CAPACITY), "a", {"memory_mib": 600}) is None
    code = f"""
import os, sys
sys.path.insert(0, {str(SOURCE)!r})
from jobyard.agent.sharing.published import Capacity
from jobyard.agent.sharing.reservations import Reservations
os.setuid(65534)
theirs = Reservations(Capacity(4000, 1000, {{}}))
print(theirs.update({{"b": {{"memory_mib": 600}}}}))
print(theirs.update({{"c": {{"memory_mib": 400}}}}))
"""
    for directory in [reservations_dir, *reservations_dir.parents]:
        if directory.is_relative_to("/tmp/pytest-of-root"):
            directory.chmod(directory.stat().st_mode | 0o755)
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = shown.stdout.splitlines()
    assert "yard of root" in first
    assert second == "{}"
    assert reservations_dir.stat().st_mode & 0o7777 == 0o1777


def test_a_directory_that_cannot_be_used_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBYARD_RESERVATIONS_DIR", "/proc/none")
    assert refused(Reservations(CAPACITY), "a", {"memory_mib": 600}) is None


def test_links_and_pipes_in_the_directory_are_passed_over(reservations_dir: Path) -> None:
    reservations_dir.mkdir()
    os.mkfifo(reservations_dir / "1-1.json")
    (reservations_dir / "2-2.json").symlink_to("/etc/passwd")
    (reservations_dir / "3-3.json").write_text("{")
    (reservations_dir / "4-4.json").write_text("[" * 5000)
    assert Reservations(CAPACITY).others().holders == []


@pytest.mark.parametrize(
    "amounts",
    [
        '{"memory_mib": 10485760}',
        '{"memory_mib": -5}',
        '{"memory_mib": NaN}',
        '{"memory_mib": Infinity}',
        '{"memory_mib": 1e999}',
        '{"memory_mib": %s}' % ("9" * 5000),
        '{"memory_mib": "600"}',
        '{"memory_mib": true}',
        '{"cpu_millis": 9000}',
        '{"devices": {"0": 81}}',
        '{"devices": {"x": 1}}',
        '{"devices": {"0": -1}}',
        '{"devices": [0]}',
        '{"whole_devices": [-1]}',
        '{"whole_devices": 3}',
    ],
)
def test_a_claim_that_cannot_be_is_ignored_and_its_owner_is_named(
    neighbour: Any, reservations_dir: Path, amounts: str
) -> None:
    neighbour(slots={"a": {"memory_mib": 1}, "b": "HERE"})
    (path,) = reservations_dir.iterdir()
    path.write_text(path.read_text().replace('"HERE"', amounts))
    mine = Reservations(CAPACITY)
    assert refused(mine, "mine", {"memory_mib": 1000, "whole_devices": [0, 1]}) is None
    others = mine.others()
    assert (others.holders, others.memory_mib) == ([], 0)
    assert [f"(agent {os.getppid()})" in doubt for doubt in others.doubts] == [True]


@pytest.mark.parametrize("text", ["{", "3", "[" * 100_000, '{"uid": 0}', "\0" * 2_000_000])
def test_a_file_that_is_no_reservation_is_ignored_and_named(neighbour: Any, reservations_dir: Path, text: str) -> None:
    neighbour()
    (path,) = reservations_dir.iterdir()
    path.write_text(text)
    others = Reservations(CAPACITY).others()
    assert others.holders == []
    assert len(others.doubts) == 1


def test_devices_that_this_machine_has_not_got_are_nobodys(neighbour: Any) -> None:
    neighbour(slots={"a": {"devices": {"7": 5}, "whole_devices": [8, 1]}})
    others = Reservations(CAPACITY).others()
    assert (others.device_mib, others.whole_devices) == ({}, {1})


def test_among_thousands_of_files_those_of_processes_that_run_are_found(neighbour: Any, reservations_dir: Path) -> None:
    neighbour()
    for number in range(2500):
        (reservations_dir / f"{number}.json").touch()
    others = Reservations(CAPACITY).others()
    assert others.memory_mib == 600
    assert "more than 2000 files" in others.doubts[0]


def test_who_keeps_the_lock_is_named_and_work_goes_on(reservations_dir: Path) -> None:
    reservations_dir.mkdir()
    code = f"import fcntl, os; fcntl.flock(os.open({str(reservations_dir)!r}, 0), 2); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        mine = Reservations(CAPACITY)
        for slot in range(200):  # nobody waits two seconds for each of them
            assert refused(mine, str(slot), {"memory_mib": 1}) is None
        assert f"(process {keeper.pid})" in mine.others().doubts[0]
        keeper.communicate(b"\n")
    assert mine.others().doubts == []


def test_a_trap_where_a_reservation_is_to_be_written_holds_nobody_up(reservations_dir: Path) -> None:
    reservations_dir.mkdir()
    stem = f"{os.getuid()}-{os.getpid()}.json"
    os.mkfifo(reservations_dir / f"{stem}.{os.getpid()}.tmp")
    (reservations_dir / stem).mkdir()
    mine = Reservations(CAPACITY)
    assert refused(mine, "a", {"memory_mib": 1}) is None
    assert "others do not see what is held here" in mine.others().doubts[0]
    assert not [path for path in reservations_dir.iterdir() if path.is_file()]


def test_an_agent_refuses_what_another_agent_holds(make_agent: MakeAgent) -> None:
    first, second = (make_agent(name).start().connect() for name in ("a", "b"))
    memory = first.welcome["memory_mib"]
    first.launch("s", {"id": "j.0.1", "shell": "sleep 1000"}, memory_mib=memory)
    first.started("j.0.1")
    assert second.measured()["foreign"]["memory_mib"] >= memory
    second.launch("s", {"id": "j.0.1", "argv": ["true"]}, memory_mib=1)
    refused = second.wait(lambda m: m["ev"] == "refused")
    assert refused["slot"] == "s"
    assert "memory" in refused["message"]
    second.withdrawn("j.0.1")
    first.send(op="stop", ids=["j.0.1"], grace=0)
    first.finished("j.0.1")
    first.send(op="close", slots=["s"])
    until(lambda: not second.measured()["foreign"]["holders"])
    second.launch("s", {"id": "j.0.2", "argv": ["true"]}, memory_mib=1)
    assert second.finished("j.0.2")["exit_code"] == 0


def test_a_new_agent_holds_again_what_it_took_over(make_agent: MakeAgent) -> None:
    agent, other = make_agent("a").start(), make_agent("b").start().connect()
    server = agent.connect()
    server.launch("s", {"id": "j.0.1", "shell": "sleep 1000"}, memory_mib=server.welcome["memory_mib"])
    server.started("j.0.1")
    agent.kill()
    agent.start().connect("j.0.1").started("j.0.1")
    other.launch("s", {"id": "j.0.1", "argv": ["true"]}, memory_mib=1)
    other.wait(lambda m: m["ev"] == "refused")


def test_an_open_slot_may_hold_more_or_less_and_the_next_agent_knows(
    make_agent: MakeAgent, reservations_dir: Path
) -> None:
    def publishes(**slots: Any) -> bool:
        return [json.loads(path.read_text())["slots"] for path in reservations_dir.glob("*.json")] == [slots]

    agent = make_agent().start()
    server = agent.connect()
    server.launch("s", {"id": "j.0.1", "shell": "sleep 1000"}, devices={"0": 4000})
    server.started("j.0.1")
    server.send(op="reserve", slot="s", reserve={"devices": {"0": 2500}})
    server.send(op="reserve", slot="gone", reserve={})
    until(lambda: publishes(s={"devices": {"0": 2500}}))
    agent.kill()
    again = agent.start().connect("j.0.1")
    again.measured()  # removes what the dead one published
    until(lambda: publishes(s={"devices": {"0": 2500}}))
    again.send(op="reserve", slot="s", reserve={"devices": {"0": 3000}})
    until(lambda: publishes(s={"devices": {"0": 3000}}))
    again.send(op="reserve", slot="s", reserve={"devices": {"0": "much"}})
    again.wait(lambda m: m["ev"] == "error")


def test_who_has_a_larger_slice_of_the_machine_than_we_is_believed(neighbour: Any) -> None:
    neighbour(slots={"s": {"memory_mib": 6000, "cpu_millis": 30_000, "devices": {"0": 50}, "whole_devices": [1]}})
    ours = Reservations(CAPACITY._replace(machine_cpu_millis=64_000, machine_memory_mib=8000))
    others = ours.others()
    assert (others.device_mib, others.whole_devices, others.doubts) == ({0: 50}, {1}, [])
    assert refused(ours, "a", {"whole_devices": [1]}) is not None
    assert refused(ours, "b", {"memory_mib": 1000, "cpu_millis": 4000}) is None  # theirs is no part of our slice


def test_more_than_the_whole_machine_has_is_not_believed(neighbour: Any) -> None:
    neighbour(slots={"s": {"memory_mib": 8001, "whole_devices": [1]}})
    others = Reservations(CAPACITY._replace(machine_memory_mib=8000)).others()
    assert (others.whole_devices, len(others.doubts)) == (set(), 1)


@pytest.mark.parametrize(
    "amounts", [{"memory_mib": -1}, {"cpu_millis": True}, {"devices": {"0": -1}}, {"whole_devices": [-1]}]
)
def test_what_is_no_amount_is_refused_where_it_is_read(amounts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="reserve: "):
        messages.launch({"slot": "s", "job": "j", "items": [], "reserve": amounts})
