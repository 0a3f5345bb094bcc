"""Does an agent run what it is told, and tell the truth about it?"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.unit.agent.agent_process import AgentProcess, Client

from jobyard.agent.system import processes


def test_an_exit_code_is_reported_with_its_times(server: Client) -> None:
    good, bad = server.run({"id": "j.0.1", "argv": ["true"]}, {"id": "j.1.1", "shell": "exit 7"})
    assert good["exit_code"] == 0
    assert bad["exit_code"] == 7
    assert good["started_at"] <= good["finished_at"] <= bad["started_at"] <= bad["finished_at"]
    assert "signal" not in bad
    assert "reason" not in bad


def test_a_signal_is_reported_as_such(server: Client) -> None:
    (outcome,) = server.run({"id": "j.0.1", "shell": "kill -SEGV $$"})
    assert outcome["signal"] == 11
    assert "exit_code" not in outcome


def test_bytes_written_right_before_the_exit_are_kept(agent: AgentProcess, server: Client) -> None:
    server.run({"id": "j.0.1", "shell": "echo early; printf late; printf oops >&2"})
    assert agent.output("j.0.1") == "early\nlate"
    assert agent.errors("j.0.1") == "oops"


def test_what_a_task_left_writing_is_awaited(agent: AgentProcess, server: Client) -> None:
    server.run({"id": "j.0.1", "shell": "(sleep 0.3; echo the last word) & exit 0"})
    assert agent.output("j.0.1") == "the last word\n"


def test_what_a_task_left_running_is_ended_with_it(agent: AgentProcess, server: Client) -> None:
    server.run({"id": "j.0.1", "shell": "sleep 1000 & echo $!"})
    process = processes.inspect(int(agent.output("j.0.1")))
    assert process is None or process.state == "Z"


def test_a_task_leads_its_own_session_and_process_group(agent: AgentProcess, server: Client) -> None:
    code = "import os; print(os.getpid(), os.getpgid(0), os.getsid(0))"
    server.run({"id": "j.0.1", "argv": [sys.executable, "-c", code]}, {"id": "j.1.1", "shell": "echo $$"})
    pid, group, session = agent.output("j.0.1").split()
    assert pid == group == session
    assert agent.output("j.1.1").strip() != pid


def test_a_task_finds_signals_at_their_defaults_and_no_descriptors_of_ours(agent: AgentProcess, server: Client) -> None:
    server.run({"id": "j.0.1", "argv": ["sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd"]})
    *masks, zero, one, two, _listing = agent.output("j.0.1").split("\n")[:-1]
    of_the_c_library = 1 << 31 | 1 << 32  # signals 32 and 33, which nobody else may touch
    assert [int(mask.split()[1], 16) & ~of_the_c_library for mask in masks] == [0, 0]
    assert [zero, one, two] == ["0", "1", "2"]


def test_the_environment_is_the_jobs_then_the_items_then_ours(agent: AgentProcess, server: Client) -> None:
    show = 'echo "$FROM_JOB|$FROM_ITEM|$PWD|[$CUDA_VISIBLE_DEVICES]|$YARD_ERROR_FILE|$YARD_SPOOL"; '
    show += 'touch "$TMPDIR/x" "$YARD_OUTPUT_DIR/kept" "$YARD_CHECKPOINT_DIR/kept"'
    server.run({"id": "j.5.2", "shell": show, "env": {"FROM_ITEM": "too"}})
    files = agent.files("j.5.2")
    assert agent.output("j.5.2") == f"yes|too|{agent.work}|[]|{files.error}|{files.spool}\n"
    assert not os.path.exists(files.tmp)
    assert os.listdir(files.output) == ["kept"]
    assert os.listdir(files.checkpoint) == ["kept"]


def test_a_slot_has_the_lowest_number_that_is_free_in_its_job(agent: AgentProcess, server: Client) -> None:
    waits = 'echo "$YARD_SLOT"; until [ -e go ]; do sleep 0.01; done'
    for slot in ("a", "b"):
        server.launch(slot, {"id": f"j.{slot == 'b':d}.1", "shell": waits})
        server.started(f"j.{slot == 'b':d}.1")
    (agent.work / "go").touch()
    for attempt in ("j.0.1", "j.1.1"):
        server.finished(attempt)
    assert [agent.output("j.0.1"), agent.output("j.1.1")] == ["1\n", "2\n"]


def test_directories_that_stay_empty_are_removed(agent: AgentProcess, server: Client) -> None:
    server.run(*({"id": f"j.{n}.1", "argv": ["true"]} for n in range(9)))
    expected = [f"{n}.1.{kind}" for n in range(9) for kind in ("err", "out", "rec")]
    assert sorted(os.listdir(agent.files("j.0.1").directory)) == expected
    assert os.listdir(agent.state / "jobs" / "j" / "checkpoint") == []


def test_nothing_of_one_attempt_is_found_by_the_next(agent: AgentProcess, server: Client) -> None:
    look = "ls -A $TMPDIR $YARD_OUTPUT_DIR | grep -v -e : -e '^$'; "
    look += "touch $TMPDIR/mine $YARD_OUTPUT_DIR/mine; chmod 777 $TMPDIR"
    plain = [{"id": f"j.{n}.1", "argv": ["stat", "-c", "%a", agent.files(f"j.{n}.1").tmp]} for n in range(10, 20)]
    items = [item for n in range(10) for item in ({"id": f"j.{n}.1", "shell": look}, plain[n])]
    server.run(*items)
    assert [agent.output(f"j.{n}.1") for n in range(20)] == [""] * 10 + ["700\n"] * 10
    assert all(os.listdir(agent.files(f"j.{n}.1").output) == ["mine"] for n in range(10))


def test_a_checkpoint_is_found_by_the_next_attempt(agent: AgentProcess, server: Client) -> None:
    server.run(
        {"id": "j.0.1", "shell": "echo 3 > $YARD_CHECKPOINT_DIR/epoch"},
        {"id": "j.1.1", "argv": ["true"]},
        {"id": "j.0.2", "shell": "cat $YARD_CHECKPOINT_DIR/epoch"},
        {"id": "j.2.1", "shell": "ls -A $YARD_CHECKPOINT_DIR"},
    )
    assert agent.output("j.0.2") == "3\n"
    assert agent.output("j.2.1") == ""


def test_the_tasks_of_a_gang_share_a_checkpoint_directory_that_stays(agent: AgentProcess, server: Client) -> None:
    server.send(op="job", job="g", env={}, workdir=str(agent.work), gang=True)
    server.launch("a", {"id": "g.1.1", "shell": "echo $YARD_CHECKPOINT_DIR"}, job="g")
    server.finished("g.1.1")
    shared = agent.state / "jobs" / "g" / "checkpoint" / "0"
    assert agent.output("g.1.1") == f"{shared}\n"
    assert shared.is_dir()
    server.launch("b", {"id": "g.0.1", "shell": "echo saved > $YARD_CHECKPOINT_DIR/step"}, job="g")
    server.finished("g.0.1")
    server.launch("a", {"id": "g.1.2", "shell": "cat $YARD_CHECKPOINT_DIR/step"}, job="g")
    server.finished("g.1.2")
    assert agent.output("g.1.2") == "saved\n"


def test_a_command_that_is_not_there_ends_as_in_a_shell(agent: AgentProcess, server: Client) -> None:
    missing, there = server.run({"id": "j.0.1", "argv": ["no-such-command"]}, {"id": "j.1.1", "argv": ["/etc/passwd"]})
    assert missing["exit_code"] == 127
    assert agent.errors("j.0.1") == "jobyard: no-such-command: command not found\n"
    assert there["exit_code"] == 126
    assert "Permission denied" in agent.errors("j.1.1")


def test_a_script_without_a_first_line_is_run_by_sh(agent: AgentProcess, server: Client) -> None:
    script = agent.work / "script"
    script.write_text("echo hello $1\n")
    script.chmod(0o755)
    server.run({"id": "j.0.1", "argv": ["./script", "world"]})
    assert agent.output("j.0.1") == "hello world\n"


def test_a_program_is_looked_for_on_the_tasks_own_path(agent: AgentProcess, server: Client) -> None:
    script = agent.work / "only-here"
    script.write_text("#!/bin/sh\necho found\n")
    script.chmod(0o755)
    server.run({"id": "j.0.1", "argv": ["only-here"], "env": {"PATH": f"{agent.work}:/usr/bin:/bin"}})
    assert agent.output("j.0.1") == "found\n"


def test_a_missing_working_directory_fails_the_attempt_and_not_the_lane(agent: AgentProcess, server: Client) -> None:
    server.send(op="job", job="lost", env={}, workdir="/no/such/place")
    server.launch("s", {"id": "lost.0.1", "argv": ["true"]}, job="lost")
    assert server.finished("lost.0.1")["exit_code"] == 127
    assert "/no/such/place" in agent.errors("lost.0.1")
    assert server.run({"id": "j.0.1", "argv": ["true"]}, slot="t")[0]["exit_code"] == 0


def test_the_tasks_own_reason_is_the_message(server: Client) -> None:
    (outcome,) = server.run({"id": "j.0.1", "shell": "echo 'the data is gone' > $YARD_ERROR_FILE; exit 3"})
    assert outcome["message"] == "the data is gone"


def test_peak_memory_is_reported(server: Client) -> None:
    (outcome,) = server.run({"id": "j.0.1", "argv": [sys.executable, "-c", "x = b'x' * (200 << 20)"]})
    assert 200 <= outcome["peak_memory_mib"] < 300


def test_items_of_a_slot_run_one_after_another_and_slots_beside_each_other(server: Client) -> None:
    server.launch(
        "a", {"id": "j.0.1", "shell": "until [ -e go ]; do sleep 0.01; done"}, {"id": "j.1.1", "argv": ["true"]}
    )
    server.launch("b", {"id": "j.2.1", "shell": "touch go"})
    first, second = server.finished("j.0.1"), server.finished("j.1.1")
    assert first["finished_at"] <= second["started_at"]


def test_two_thousand_quick_tasks_are_reported_exactly_once(server: Client) -> None:
    for slot in range(2):
        server.launch(f"s{slot}", *({"id": f"j.{n}.1", "argv": ["true"]} for n in range(slot, 2000, 2)))
    while len(server.everything_finished()) < 2000:
        server.read()
    assert sorted(server.everything_finished()) == sorted(f"j.{n}.1" for n in range(2000))
    assert all(outcome["exit_code"] == 0 for m in server.messages for _, outcome in m.get("finished", ()))


def test_a_stop_is_heard_while_many_slots_wait_for_their_lanes(server: Client) -> None:
    """Each lane is a fork: all of them at once would keep the agent from hearing anything for minutes."""
    names = [f"j.{n}.1" for n in range(200)]
    for number, name in enumerate(names):
        server.launch(f"s{number}", {"id": name, "shell": "sleep 1000"})
    server.send(op="stop", ids=names, grace=0.0)
    told: set[str] = set()
    while len(told) < len(names):
        server.read()
        told = {*server.everything_finished(), *(name for m in server.messages for name in m.get("withdrawn", ()))}
    withdrawn = {name for m in server.messages for name in m.get("withdrawn", ())}
    assert len(withdrawn) > 100  # most never began


def test_an_attempt_that_is_launched_twice_runs_once(agent: AgentProcess, server: Client) -> None:
    item = {"id": "j.0.1", "shell": "echo ran >> ran; sleep 0.2"}
    server.launch("a", item)
    server.started("j.0.1")
    server.launch("b", item)
    server.finished("j.0.1")
    server.launch("c", item)
    server.run({"id": "j.1.1", "argv": ["true"]}, slot="c")
    assert (agent.work / "ran").read_text() == "ran\n"


def test_a_record_that_is_there_prevents_the_start(agent: AgentProcess, server: Client) -> None:
    record = Path(agent.files("j.0.1").record)
    record.parent.mkdir(parents=True)
    record.write_text("withdrawn 1.0\n")
    server.launch("s", {"id": "j.0.1", "shell": "touch started"})
    server.withdrawn("j.0.1")
    assert not (agent.work / "started").exists()


def test_messages_of_megabytes_pass_in_both_directions(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": "true"})
    server.finished("j.0.1")
    ids = [f"j.{n}.1" for n in range(200_000)]
    assert server.reconcile(*ids) == ids[1:]
    assert server.run({"id": "j.300000.1", "shell": ": " + "x" * 120_000})[0]["exit_code"] == 0
