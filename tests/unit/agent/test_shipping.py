"""Does everything that attempts write reach a server that does not share the disk: all of it, once, in order?"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client
from tests.waiting import until

from jobyard.agent.system import processes

EMPTY = {"out": 0, "err": 0, "results": 0}
TALKS = "echo begun; until [ -e go ]; do sleep 0.01; done; printf end; exit 5"


@pytest.fixture
def remote(agent: AgentProcess) -> Client:
    return agent.connect(ship=True)


def test_bytes_written_right_before_the_exit_arrive_before_the_end(remote: Client) -> None:
    (outcome,) = remote.run({"id": "j.0.1", "shell": "echo early; printf late; printf oops >&2; exit 3"})
    assert outcome["exit_code"] == 3
    assert outcome["streams"] == {"out": 10, "err": 4, "results": 0}
    assert remote.shipped("j.0.1", "out") == b"early\nlate"
    assert remote.shipped("j.0.1", "err") == b"oops"
    order = [message["ev"] for message in remote.messages if message["ev"] == "output" or message.get("finished")]
    assert order == ["output", "output", "attempts"]


def test_a_task_that_writes_nothing_has_empty_streams(remote: Client) -> None:
    assert remote.run({"id": "j.0.1", "argv": ["true"]})[0]["streams"] == EMPTY


def test_a_command_that_cannot_start_says_why_over_there_too(remote: Client) -> None:
    (outcome,) = remote.run({"id": "j.0.1", "argv": ["no-such-command"]})
    assert outcome["exit_code"] == 127
    assert remote.shipped("j.0.1", "err") == b"jobyard: no-such-command: command not found\n"


def test_output_comes_while_the_task_runs(agent: AgentProcess, remote: Client) -> None:
    remote.launch("s", {"id": "j.0.1", "shell": TALKS})
    remote.wait(lambda m: m["ev"] == "output")
    assert remote.shipped("j.0.1", "out") == b"begun\n"
    assert remote.everything_finished() == []
    (agent.work / "go").touch()
    assert remote.finished("j.0.1")["streams"] == {"out": 9, "err": 0, "results": 0}
    assert remote.shipped("j.0.1", "out") == b"begun\nend"


def test_bytes_of_any_kind_arrive_as_they_are(remote: Client) -> None:
    remote.run({"id": "j.0.1", "shell": r"printf '\000\377\012\"{}\\'"})
    assert remote.shipped("j.0.1", "out") == b'\x00\xff\n"{}\\'


def test_what_was_sent_is_not_sent_again_after_a_reconnect(agent: AgentProcess, remote: Client) -> None:
    remote.launch("s", {"id": "j.0.1", "shell": TALKS})
    remote.wait(lambda m: m["ev"] == "output")
    remote.close()
    again = agent.connect("j.0.1", have={"j.0.1": {"out": 6}}, ship=True)
    (agent.work / "go").touch()
    assert again.finished("j.0.1")["streams"]["out"] == 9
    assert again.shipped("j.0.1", "out", before=b"begun\n") == b"begun\nend"


def test_an_attempt_that_ended_while_nobody_listened_is_sent_from_where_the_server_has_it(
    agent: AgentProcess, remote: Client
) -> None:
    remote.launch("s", {"id": "j.0.1", "shell": TALKS})
    remote.wait(lambda m: m["ev"] == "output")
    remote.close()
    (agent.work / "go").touch()
    until(lambda: agent.has_ended("j.0.1"))
    again = agent.connect("j.0.1", have={"j.0.1": {"out": 2, "err": 0, "results": 0}}, ship=True)
    assert again.finished("j.0.1")["exit_code"] == 5
    assert again.shipped("j.0.1", "out", before=b"be") == b"begun\nend"


def test_an_agent_that_died_has_lost_no_output(agent: AgentProcess, remote: Client) -> None:
    remote.launch("s", {"id": "j.0.1", "shell": TALKS})
    remote.wait(lambda m: m["ev"] == "output")
    agent.kill()
    (agent.work / "go").touch()
    again = agent.start().connect("j.0.1", have={"j.0.1": {"out": 6}}, ship=True)
    assert again.finished("j.0.1")["exit_code"] == 5
    assert again.shipped("j.0.1", "out", before=b"begun\n") == b"begun\nend"


def test_a_connection_cut_in_the_middle_of_much_output_is_resumed_without_gap_or_repetition(
    agent: AgentProcess, remote: Client
) -> None:
    size = 8 << 20
    command = (
        f"import sys; data = bytes(range(256)) * 4096; [sys.stdout.buffer.write(data) for _ in range({size} >> 20)]"
    )
    remote.launch("s", {"id": "j.0.1", "argv": ["python3", "-c", command]})
    content = b""
    client = remote
    for _ in range(3):
        client.wait(lambda m: m["ev"] == "output")
        content = client.shipped("j.0.1", "out", content)
        client.close()
        client = agent.connect("j.0.1", have={"j.0.1": {"out": len(content)}}, ship=True)
    assert client.finished("j.0.1")["streams"]["out"] == size
    assert client.shipped("j.0.1", "out", content) == bytes(range(256)) * (size >> 8)


def test_a_slow_reader_of_much_output_costs_the_agent_no_memory(agent: AgentProcess, remote: Client) -> None:
    size = 50 << 20
    remote.launch("s", {"id": "j.0.1", "shell": f"head -c {size} /dev/zero"})
    until(lambda: Path(agent.files("j.0.1").record).exists() and agent.has_ended("j.0.1"))
    until(lambda: _waits_to_write(agent.pid))
    before = processes.inspect(agent.pid)
    assert before is not None
    assert before.rss_kib < 60 << 10
    # Others are served meanwhile, and nothing of it comes before its turn.
    remote.launch("t", {"id": "j.1.1", "argv": ["true"]})
    assert remote.finished("j.0.1")["streams"]["out"] == size
    assert remote.finished("j.1.1")["streams"] == EMPTY
    assert len(remote.shipped("j.0.1", "out")) == size


def _waits_to_write(pid: int) -> bool:
    """Has it stopped sending: does its processor time stand still?"""
    before = Path(f"/proc/{pid}/stat").read_text().split()[13:15]
    time.sleep(0.2)
    return Path(f"/proc/{pid}/stat").read_text().split()[13:15] == before


def test_two_thousand_quick_tasks_each_bring_their_line_home_once(remote: Client) -> None:
    for slot in range(2):
        remote.launch(f"s{slot}", *({"id": f"j.{n}.1", "argv": ["echo", str(n)]} for n in range(slot, 2000, 2)))
    while len(remote.everything_finished()) < 2000:
        remote.read()
    assert len(set(remote.everything_finished())) == 2000
    outputs = [message for message in remote.messages if message["ev"] == "output"]
    assert len(outputs) == len({message["id"] for message in outputs}) == 2000


def test_what_a_task_puts_into_its_output_directory_comes_as_results(remote: Client) -> None:
    (outcome,) = remote.run({"id": "j.0.1", "shell": "echo 42 > $YARD_OUTPUT_DIR/answer"})
    assert outcome["streams"]["results"] == len(remote.shipped("j.0.1", "results")) > 0


def test_quit_waits_until_everything_is_sent(agent: AgentProcess, remote: Client) -> None:
    size = 20 << 20
    remote.launch("s", {"id": "j.0.1", "shell": f"head -c {size} /dev/zero"})
    remote.send(op="quit")
    assert remote.finished("j.0.1")["streams"]["out"] == size
    assert agent.process is not None
    assert agent.process.wait(timeout=60) == 0


def test_a_superseded_attempt_ships_nothing(agent: AgentProcess, remote: Client) -> None:
    remote.launch("s", {"id": "j.0.1", "shell": "while echo more; do sleep 0.05; done"})
    remote.started("j.0.1")
    again = agent.connect(ship=True)
    until(lambda: agent.has_ended("j.0.1"))
    again.run({"id": "j.1.1", "argv": ["true"]})
    assert not any(message["ev"] == "output" for message in again.messages)


def test_a_server_on_the_same_disk_is_sent_no_output(agent: AgentProcess, server: Client) -> None:
    (outcome,) = server.run({"id": "j.0.1", "shell": "echo hello; echo x > $YARD_OUTPUT_DIR/x"})
    assert "streams" not in outcome
    assert not any(message["ev"] == "output" for message in server.messages)
    assert os.listdir(agent.files("j.0.1").output) == ["x"]
    assert not os.path.exists(agent.files("j.0.1").results)


def test_a_server_on_another_machine_is_not_started_here(agent: AgentProcess, tmp_path: Path) -> None:
    remote = agent.connect(ship=True, respawn=["touch", str(tmp_path / "respawned")])
    remote.launch("s", {"id": "j.0.1", "shell": "sleep 1.5"})
    remote.started("j.0.1")
    remote.close()
    until(lambda: agent.has_ended("j.0.1"))
    assert not (tmp_path / "respawned").exists()


def test_an_impossible_have_is_refused_with_a_sentence(agent: AgentProcess, remote: Client) -> None:
    remote.send(op="reconcile", live=["j.0.1"], have={"j.0.1": {"out": -1}})
    assert "have" in remote.wait(lambda m: m["ev"] == "error")["message"]


def test_a_lane_that_is_killed_while_its_task_runs_costs_no_output(agent: AgentProcess, remote: Client) -> None:
    remote.launch("s", {"id": "j.0.1", "shell": TALKS})
    remote.wait(lambda m: m["ev"] == "output")
    os.kill(agent.claim("j.0.1").lane_pid, signal.SIGKILL)
    (agent.work / "go").touch()
    assert remote.finished("j.0.1")["reason"] == "Unknown"
    assert remote.shipped("j.0.1", "out") == b"begun\nend"
