"""Does every attempt run in a private copy of the tree that came with the job, and do its results come home?"""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client
from tests.unit.agent.conftest import MakeAgent
from tests.unit.agent.trees_of_files import archive_of, results
from tests.waiting import until

from jobyard.agent.files import snapshots


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a user's directory may look like."""
    tree = tmp_path / "tree"
    (tree / "sub" / "deeper").mkdir(parents=True)
    (tree / "data").write_text("data\n")
    (tree / "big").write_bytes(b"x" * 200_000)
    (tree / "script").write_text("#!/bin/sh\necho script\n")
    (tree / "script").chmod(0o755)
    (tree / "sub" / "with space\nand line").write_text("odd\n")
    (tree / "sub" / "link").symlink_to("../data")
    (tree / "sub" / "nowhere").symlink_to("/no/such/file")
    os.utime(tree / "data", ns=(1_000_000_000_000_000_000, 1_234_567_890_000_000_000))
    return tree


def send(agent: AgentProcess, tree: Path, snapshot: str = "abc") -> None:
    snapshots.receive(str(agent.state), snapshot, io.BytesIO(archive_of(tree)))


def describe(client: Client, snapshot: str = "abc", copy_back: list[str] | None = None, **more: Any) -> Client:
    paths = ["."] if copy_back is None else copy_back
    client.send(op="job", job="j", env={}, snapshot=snapshot, copy_back=paths, **more)
    return client


@pytest.fixture
def remote(agent: AgentProcess, tree: Path) -> Client:
    """A server whose job `j` has the tree, and wants everything back."""
    send(agent, tree)
    return describe(agent.connect(ship=True))


def fingerprint(tree: Path) -> dict[str, Any]:
    found = {}
    for path in sorted(tree.rglob("*")):
        seen = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        time = 0 if path.is_symlink() else seen.st_mtime_ns
        found[str(path.relative_to(tree))] = (seen.st_mode, time, content)
    return found


def stored(agent: AgentProcess, snapshot: str = "abc") -> Path:
    return Path(snapshots.tree(str(agent.state), snapshot))


def test_a_task_starts_in_a_copy_that_is_like_the_tree(agent: AgentProcess, remote: Client) -> None:
    before = fingerprint(stored(agent))
    script = "find . -mindepth 1 -printf '%P|%m|%T@|%s|%l\\0' | sort -z"
    remote.run({"id": "j.0.1", "shell": f"echo $PWD; pwd; {script}"})
    work = agent.files("j.0.1").work
    first, second, rest = remote.shipped("j.0.1", "out").decode().split("\n", 2)
    assert first == second == work
    seen = {entry.split("|")[0]: entry.split("|")[1:] for entry in rest.split("\0")[:-1]}
    assert seen.keys() == before.keys()
    assert seen["script"][0] == "755"
    assert float(seen["data"][1]) == 1_234_567_890
    assert seen["sub/link"][3] == "../data"
    assert seen["sub/nowhere"][3] == "/no/such/file"
    assert fingerprint(stored(agent)) == before
    assert not os.path.exists(work)


def test_a_task_starts_where_the_job_says(agent: AgentProcess, remote: Client) -> None:
    describe(remote, subdir="sub/deeper")
    remote.run({"id": "j.0.1", "shell": "pwd; cat ../link"})
    assert remote.shipped("j.0.1", "out").decode() == f"{agent.files('j.0.1').work}/sub/deeper\ndata\n"


def test_a_start_directory_that_is_not_in_the_tree_fails_the_attempt(remote: Client) -> None:
    describe(remote, subdir="not/there")
    assert remote.run({"id": "j.0.1", "argv": ["true"]})[0]["exit_code"] == 127
    assert b"not/there" in remote.shipped("j.0.1", "err")


def test_attempts_never_see_what_others_did_to_their_copies(agent: AgentProcess, remote: Client) -> None:
    before = fingerprint(stored(agent))
    look = "find . -mindepth 1 -printf '%P|%m|%T@|%s|%l\\0' | sort -z | sha256sum; cat data big | sha256sum; "
    wreck = [
        "echo more >> data; touch new; mkdir -p dir/in/dir; touch dir/in/dir/x",
        "cp -p data kept; echo DATA > data; touch -r kept data; rm kept",  # same size, same time
        "rm -rf sub script; ln -s data sub; mkdir script",
        "chmod 000 big; chmod 500 sub; mv sub/link sub/moved; ln data second-name",
        "rm -rf * .git; mkdir .git job_results; touch .git/x job_results/x; chmod 755 .",
        "ln -sf /etc/passwd sub/link; mkfifo sub/pipe; touch -d 2001-01-01 sub",
        "true",
    ]
    items = [{"id": f"j.{n}.1", "shell": look + wreck[n % len(wreck)]} for n in range(21)]
    outcomes = remote.run(*items)
    assert [outcome["exit_code"] for outcome in outcomes] == [0] * 21
    seen = {remote.shipped(item["id"], "out") for item in items}
    assert len(seen) == 1
    assert fingerprint(stored(agent)) == before
    assert not any(name.endswith(".work") for name in os.listdir(agent.files("j.0.1").directory))


def test_a_process_that_stays_behind_does_not_meet_the_next_attempt(agent: AgentProcess, remote: Client) -> None:
    stays = (
        "setsid sh -c 'until [ -e \"$0/go\" ]; do sleep 0.01; done; echo late > late' $FLAG >/dev/null 2>&1 & sleep 0.1"
    )
    look = "touch $FLAG/go; sleep 0.3; ls"
    env = {"FLAG": str(agent.work)}
    remote.run({"id": "j.0.1", "shell": stays, "env": env}, {"id": "j.1.1", "shell": look, "env": env})
    assert remote.shipped("j.1.1", "out") == b"big\ndata\nscript\nsub\n"


def test_only_new_and_changed_files_come_home(remote: Client) -> None:
    change = "echo more >> data; mkdir -p out/empty; echo r > 'out/a result\nof two lines'; rm big; "
    change += "ln -s data out/link; chmod 644 script; ln -sfn data sub/link; touch sub/nothing; mkfifo out/pipe; "
    change += "echo x > job_results; mkdir .git sub/.git; touch .git/x sub/.git/x; ln out/a* out/twin"
    (outcome,) = remote.run({"id": "j.0.1", "shell": change})
    assert outcome["exit_code"] == 0, remote.shipped("j.0.1", "err")
    assert results(remote, "j.0.1") == {
        "data": b"data\nmore\n",
        "out": None,
        "out/a result\nof two lines": b"r\n",
        "out/twin": b"r\n",
        "out/empty": None,
        "out/link": "data",
        "script": b"#!/bin/sh\necho script\n",
        "sub/link": "data",
        "sub/nothing": b"",
    }


def test_only_what_lies_under_the_asked_paths_comes_home(agent: AgentProcess, remote: Client) -> None:
    describe(remote, copy_back=["sub/deeper/", "./single", "not there"])
    remote.run({"id": "j.0.1", "shell": "touch sub/deeper/a sub/b single single-not sub/deeper-not"})
    assert sorted(results(remote, "j.0.1")) == ["single", "sub/deeper/a"]


def test_nothing_is_brought_home_that_was_not_asked_for(remote: Client) -> None:
    describe(remote, copy_back=[])
    assert remote.run({"id": "j.0.1", "shell": "touch new"})[0]["streams"]["results"] == 0


def test_no_change_is_an_empty_stream(agent: AgentProcess, remote: Client) -> None:
    (outcome,) = remote.run({"id": "j.0.1", "shell": "cat data"})
    assert outcome["streams"] == {"out": 5, "err": 0, "results": 0}
    assert os.path.getsize(agent.files("j.0.1").results) == 0


def test_the_output_directory_comes_home_beside_the_tree(agent: AgentProcess, remote: Client) -> None:
    remote.run({"id": "j.0.1", "shell": "mkdir $YARD_OUTPUT_DIR/d; echo 1 > $YARD_OUTPUT_DIR/d/f; echo 2 > here"})
    assert results(remote, "j.0.1") == {"here": b"2\n", "output/d": None, "output/d/f": b"1\n"}
    assert not os.path.exists(agent.files("j.0.1").output)


def test_results_are_the_same_bytes_for_the_same_files(remote: Client) -> None:
    make = "mkdir z a; echo 1 > z/1; echo 2 > a/2; touch -d @1000000000 z/1 a/2 z a"
    remote.run({"id": "j.0.1", "shell": make}, {"id": "j.1.1", "shell": make})
    assert remote.shipped("j.0.1", "results") == remote.shipped("j.1.1", "results")


def test_a_failed_task_brings_its_results_home_too(remote: Client) -> None:
    (outcome,) = remote.run({"id": "j.0.1", "shell": "echo half > partial; exit 9"})
    assert outcome["exit_code"] == 9
    assert results(remote, "j.0.1") == {"partial": b"half\n"}


def test_a_task_that_is_stopped_brings_home_what_it_has(remote: Client) -> None:
    remote.launch("s", {"id": "j.0.1", "shell": "echo half > partial; echo made; sleep 1000"})
    remote.wait(lambda m: m["ev"] == "output")
    remote.send(op="stop", ids=["j.0.1"], grace=5)
    assert remote.finished("j.0.1")["signal"] == 15
    assert results(remote, "j.0.1") == {"partial": b"half\n"}


def test_the_results_of_an_attempt_whose_lane_was_killed_are_gathered_by_the_agent(
    agent: AgentProcess, remote: Client
) -> None:
    waits = "echo half > partial; echo made; until [ -e $FLAG ]; do sleep 0.01; done"
    remote.launch("s", {"id": "j.0.1", "shell": waits, "env": {"FLAG": str(agent.work / "go")}})
    remote.wait(lambda m: m["ev"] == "output")
    os.kill(agent.claim("j.0.1").lane_pid, signal.SIGKILL)
    (agent.work / "go").touch()
    assert remote.finished("j.0.1")["reason"] == "Unknown"
    assert results(remote, "j.0.1") == {"partial": b"half\n"}
    assert not os.path.exists(agent.files("j.0.1").work)


@pytest.mark.parametrize("point", ["lane-ended", "lane-gathered"])
def test_a_lane_that_dies_around_the_gathering_loses_no_results(
    point: str, make_agent: MakeAgent, tmp_path: Path, tree: Path
) -> None:
    (tmp_path / "faults").mkdir()
    agent = make_agent(JOBYARD_FAULTS=str(tmp_path / "faults")).start()
    send(agent, tree)
    remote = describe(agent.connect(ship=True))
    (tmp_path / "faults" / point).touch()
    remote.launch("s", {"id": "j.0.1", "shell": "echo half > partial; exit 4"})
    assert remote.finished("j.0.1")["exit_code"] == 4
    assert not (tmp_path / "faults" / point).exists()
    assert results(remote, "j.0.1") == {"partial": b"half\n"}
    assert remote.run({"id": "j.1.1", "argv": ["true"]})[0]["exit_code"] == 0


def test_agent_and_lane_killed_before_the_gathering_lose_no_results(
    make_agent: MakeAgent, tmp_path: Path, tree: Path
) -> None:
    (tmp_path / "faults").mkdir()
    agent = make_agent(JOBYARD_FAULTS=str(tmp_path / "faults")).start()
    send(agent, tree)
    remote = describe(agent.connect(ship=True))
    (tmp_path / "faults" / "lane-ended").touch()
    remote.launch(
        "s",
        {
            "id": "j.0.1",
            "shell": "echo made > new; echo made; until [ -e $FLAG ]; do sleep 0.01; done",
            "env": {"FLAG": str(agent.work / "go")},
        },
    )
    remote.wait(lambda m: m["ev"] == "output")
    agent.kill()
    (agent.work / "go").touch()
    until(lambda: agent.has_ended("j.0.1"))
    again = agent.start().connect("j.0.1", have={"j.0.1": {"out": 5}}, ship=True)
    assert again.finished("j.0.1")["exit_code"] == 0
    assert results(again, "j.0.1") == {"new": b"made\n"}


def test_results_that_nobody_waited_for_are_sent_later_and_from_the_middle(agent: AgentProcess, remote: Client) -> None:
    remote.launch("s", {"id": "j.0.1", "shell": "head -c 3000000 /dev/urandom > noise"})
    outcome = remote.finished("j.0.1")
    whole = remote.shipped("j.0.1", "results")
    assert len(whole) == outcome["streams"]["results"] > 3_000_000
    agent.kill()
    again = agent.start().connect("j.0.1", have={"j.0.1": {"results": 1_000_001}}, ship=True)
    again.finished("j.0.1")
    assert again.shipped("j.0.1", "results", before=whole[:1_000_001]) == whole


def test_a_job_whose_snapshot_is_not_here_waits_for_it(agent: AgentProcess, tree: Path) -> None:
    remote = describe(agent.connect(ship=True))
    remote.launch("s", {"id": "j.0.1", "shell": "cat data"}, {"id": "j.1.1", "shell": "cat data"})
    assert remote.wait(lambda m: m["ev"] == "missing") == {"ev": "missing", "snapshot": "abc", "job": "j"}
    remote.measured()
    assert not os.path.exists(agent.files("j.0.1").record)
    send(agent, tree)
    remote.send(op="staged", snapshot="abc")
    assert remote.finished("j.1.1")["exit_code"] == 0
    assert remote.shipped("j.0.1", "out") == b"data\n"
    assert len([message for message in remote.messages if message["ev"] == "missing"]) == 1


def test_a_snapshot_that_did_not_come_is_asked_for_again(agent: AgentProcess, tree: Path) -> None:
    remote = describe(agent.connect(ship=True))
    remote.launch("s", {"id": "j.0.1", "shell": "cat data"})
    remote.send(op="staged", snapshot="abc")
    until(lambda: remote.measured() and len([m for m in remote.messages if m["ev"] == "missing"]) == 2)
    again = agent.connect("j.0.1", ship=True)
    again.wait(lambda m: m["ev"] == "missing")
    send(agent, tree)
    agent.connect("j.0.1", ship=True).finished("j.0.1")


def test_what_waits_for_a_snapshot_that_cannot_come_fails_with_the_reason(agent: AgentProcess, tree: Path) -> None:
    remote = describe(agent.connect(ship=True))
    remote.launch("s", {"id": "j.0.1", "shell": "cat data"}, {"id": "j.1.1", "shell": "cat data"})
    remote.wait(lambda m: m["ev"] == "missing")
    remote.send(op="staged", snapshot="abc", trouble="the disk is full")
    for attempt in ("j.0.1", "j.1.1"):
        outcome = remote.finished(attempt)
        assert (outcome["exit_code"], outcome["message"]) == (126, "the disk is full")
    remote.launch("s", {"id": "j.0.2", "shell": "cat data"})  # there may be room by now
    until(lambda: remote.measured() and len([m for m in remote.messages if m["ev"] == "missing"]) == 2)
    send(agent, tree)
    remote.send(op="staged", snapshot="abc")
    assert remote.finished("j.0.2")["exit_code"] == 0


def test_what_waits_for_a_snapshot_can_be_withdrawn(agent: AgentProcess) -> None:
    remote = describe(agent.connect(ship=True))
    remote.launch("s", {"id": "j.0.1", "argv": ["true"]}, {"id": "j.1.1", "argv": ["true"]})
    remote.send(op="withdraw", ids=["j.0.1"])
    remote.withdrawn("j.0.1")
    remote.send(op="stop", ids=["j.1.1"], grace=1)
    remote.withdrawn("j.1.1")


@pytest.mark.parametrize(
    "field",
    [
        {"snapshot": "../x"},
        {"snapshot": 3},
        {"snapshot": "a", "subdir": "../x"},
        {"snapshot": "a", "subdir": "/x"},
        {"snapshot": "a", "copy_back": ["a/../../x"]},
        {"snapshot": "a", "copy_back": ["/etc"]},
        {"snapshot": "a", "copy_back": "x"},
    ],
)
def test_paths_that_lead_out_are_refused_with_a_sentence(field: dict[str, Any], server: Client) -> None:
    server.send(op="job", job="k", env={}, **field)
    message = server.wait(lambda m: m["ev"] == "error")["message"]
    assert any(name in message for name in field)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_ends_the_attempt_with_a_sentence_and_not_the_lane(make_agent: MakeAgent, tree: Path) -> None:
    agent = make_agent()
    agent.state.mkdir(parents=True)
    (tree / "big").write_bytes(b"x" * (3 << 20))
    assert os.system(f"mount -t tmpfs -o size=5m tmpfs {agent.state}") == 0
    try:
        agent.start()
        send(agent, tree)
        remote = describe(agent.connect(ship=True))
        full, next_one = remote.run({"id": "j.0.1", "argv": ["true"]}, {"id": "j.1.1", "argv": ["true"]})
        assert full["exit_code"] == next_one["exit_code"] == 126
        said = remote.shipped("j.0.1", "err")
        assert said == b"jobyard: cannot copy the job's files: No space left on device\n"
        assert not os.path.exists(agent.files("j.0.1").work)
    finally:
        agent.stop_everything()
        os.system(f"umount -l {agent.state}")


def test_a_thousand_small_files_are_in_every_copy(agent: AgentProcess, tmp_path: Path) -> None:
    tree = tmp_path / "many"
    for n in range(1000):
        path = tree / f"d{n % 20}" / f"f{n}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * n)
    send(agent, tree, "many")
    remote = describe(agent.connect(ship=True), snapshot="many")
    outcomes = remote.run(*({"id": f"j.{n}.1", "shell": "find . -type f | wc -l; echo > new"} for n in range(10)))
    assert all(outcome["exit_code"] == 0 for outcome in outcomes)
    assert [remote.shipped(f"j.{n}.1", "out") for n in range(10)] == [b"1000\n"] * 10
