"""Do simulated devices fill up, overflow and show strangers as real ones would?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.agent.agent_process import SOURCE, AgentProcess, Client
from tests.unit.agent.conftest import MakeAgent
from tests.waiting import until

from jobyard.agent.devices.fake_gpu import FakeGpus, parse_devices, parse_mib

HOLD = f"exec {sys.executable} -m jobyard.agent.devices.fake_gpu hold"


@pytest.fixture
def agent(make_agent: MakeAgent) -> AgentProcess:
    return make_agent(PYTHONPATH=str(SOURCE)).start("--fake-gpus", "2x10GiB")


@pytest.fixture
def stranger(agent: AgentProcess) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "JOBYARD_FAKE_GPUS": "2x10GiB"}
    env["JOBYARD_FAKE_GPU_DIR"] = str(agent.directory / "fake-gpus")
    command = [sys.executable, "-m", "jobyard.agent.devices.fake_gpu", "hold", "4GiB", "--device", "1"]
    process = subprocess.Popen(command, env=env)
    yield process
    process.kill()
    process.wait()


def test_devices_are_announced_as_fake(server: Client) -> None:
    assert [(d["index"], d["memory_mib"], d["fake"]) for d in server.welcome["devices"]] == [
        (0, 10240, True),
        (1, 10240, True),
    ]


def test_memory_is_counted_for_the_attempt_that_holds_it(server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": f"{HOLD} 3GiB --util 40 -- sleep 1000"}, devices={"1": 4096})
    server.started("j.0.1")
    until(lambda: server.measured()["attempts"]["j.0.1"]["gpu_memory_mib"] == 3072)
    measured = server.measured()
    assert measured["devices"] == [
        {"index": 0, "used_mib": 0, "utilisation": 0},
        {"index": 1, "used_mib": 3072, "utilisation": 40},
    ]
    assert measured["attempts"]["j.0.1"]["gpu_percent"] == 40
    assert measured["foreign"]["device_mib"] == {}
    server.send(op="stop", ids=["j.0.1"], grace=5)
    assert server.finished("j.0.1")["peak_gpu_memory_mib"] == 3072


def test_memory_ramps_up(server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": f"{HOLD} 8GiB --ramp 2 -- sleep 1000"}, devices={"0": 8192})
    server.started("j.0.1")
    seen = [server.measured()["devices"][0]["used_mib"]]
    while seen[-1] < 8192:
        seen.append(server.measured()["devices"][0]["used_mib"])
    assert seen == sorted(seen)
    assert len(set(seen)) > 3


def test_a_full_device_fails_the_one_that_asks_for_more(agent: AgentProcess, server: Client) -> None:
    server.launch("a", {"id": "j.0.1", "shell": f"{HOLD} 6GiB -- sleep 1000"}, devices={"0": 6144})
    server.started("j.0.1")
    until(lambda: server.measured()["devices"][0]["used_mib"] == 6144)
    server.launch("b", {"id": "j.1.1", "shell": f"{HOLD} 6GiB --ramp 0.5 -- sleep 1000"}, devices={"0": 6144})
    outcome = server.finished("j.1.1")
    assert outcome["reason"] == "OutOfGpuMemory"
    assert outcome["exit_code"] == 1
    assert "CUDA out of memory" in agent.errors("j.1.1")
    assert "fake" in agent.errors("j.1.1")
    assert server.measured()["devices"][0]["used_mib"] == 6144


def test_a_stranger_on_a_device_is_foreign(server: Client, stranger: subprocess.Popen[bytes]) -> None:
    until(lambda: server.measured()["foreign"]["device_mib"] == {"1": 4096})
    (holder,) = server.measured()["foreign"]["holders"]
    assert holder.endswith(f"(pid {stranger.pid})")
    stranger.kill()
    stranger.wait()
    assert server.measured()["foreign"]["device_mib"] == {}


def test_the_exit_code_of_the_command_is_passed_on(server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": f"{HOLD} 1GiB -- bash -c 'exit 9'"}, devices={"0": 1024})
    assert server.finished("j.0.1")["exit_code"] == 9


@pytest.mark.parametrize(("text", "mib"), [("512", 512), ("512MiB", 512), ("1.5G", 1536), ("20GiB", 20480)])
def test_sizes_are_read(text: str, mib: int) -> None:
    assert parse_mib(text) == mib


@pytest.mark.parametrize("spec", ["4", "4x", "x80GiB", "4x80", "fourx80GiB"])
def test_a_spec_that_makes_no_sense_says_what_would(spec: str) -> None:
    with pytest.raises(ValueError, match="4x80GiB"):
        parse_devices(spec)


def test_a_hold_of_a_process_that_is_gone_is_swept(tmp_path: Path) -> None:
    gpus = FakeGpus(parse_devices("1x1GiB"), str(tmp_path))
    (tmp_path / "5.hold").write_text(
        '{"pid":99999999,"start_time":1,"device":0,"mib":9,"ramp":0,"begin":0,"utilisation":1}'
    )
    assert gpus.usage()[0].used_mib == 0
    assert list(tmp_path.iterdir()) == []


def test_devices_may_be_of_several_kinds_and_are_numbered_through() -> None:
    devices = parse_devices("2xH100:80GiB, 1xA100-SXM4:40GiB,1x8GiB")
    assert [(each.index, each.name, each.memory_mib) for each in devices] == [
        (0, "fake H100", 81920),
        (1, "fake H100", 81920),
        (2, "fake A100-SXM4", 40960),
        (3, "fake GPU", 8192),
    ]
    assert len({each.uuid for each in devices}) == 4
