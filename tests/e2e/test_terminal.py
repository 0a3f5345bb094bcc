"""On a terminal: the live display, and Ctrl-C once and twice. In a pipe: plain lines."""

from __future__ import annotations

import re
from pathlib import Path

from tests.waiting import until
from tests.yards import TemporaryYard, is_alive

DEAF = "trap '' TERM; echo ready $$; while :; do sleep 0.05; done"


def test_a_terminal_has_a_bar_counts_and_the_first_failure(yard: TemporaryYard) -> None:
    line = "if [ $YARD_TASK = 2 ]; then echo broken-here; exit 3; fi; while [ ! -e seen ]; do sleep 0.02; done"
    with yard.terminal("run", "-a", "0-5", "--cpus", "0.1", "--", line) as screen:
        screen.until(r"━+.*1/6 17%  5 running  1 failed")
        screen.until(r"first failure: task 2 on \S+, exit code 3")
        screen.until(r"broken-here")
        yard.write("seen", "")
        screen.until(r"5 succeeded, 1 failed of 6")
        assert screen.ended() == 1
        assert "\x1b[" in screen.text
    (yard.work / "seen").unlink()


def test_a_single_tasks_output_is_shown_as_it_comes(yard: TemporaryYard) -> None:
    with yard.terminal("run", "--", "echo hello; sleep 0.1; echo there") as screen:
        screen.until(r"hello\s+there")
        assert screen.ended() == 0


def test_a_pipe_gets_plain_lines_without_anything_that_steers(yard: TemporaryYard) -> None:
    done = yard.run(
        "run", "-a", "0-19", "--cpus", "0.1", "--", "[ $YARD_TASK != 3 ]", env={"YARD_PROGRESS_SECONDS": "0"}
    )
    assert done.out == ""
    assert "\x1b" not in done.err
    assert "\r" not in done.err
    lines = done.err.splitlines()
    assert all(line.startswith(("yard: ", "    ")) for line in lines)
    assert re.fullmatch(r"yard: job \d+ \(\S+\) submitted, 20 tasks", lines[0])
    assert any("19 succeeded, 1 failed of 20" in line for line in lines)


def test_colours_are_left_out_where_asked(yard: TemporaryYard) -> None:
    with yard.terminal("ls") as screen:
        screen.ended()
    yard.env["NO_COLOR"] = "1"
    try:
        with yard.terminal("ls") as screen:
            assert screen.ended() == 0
            assert "\x1b[" not in screen.text
    finally:
        del yard.env["NO_COLOR"]


def test_ctrl_c_cancels_and_the_task_may_clean_up(yard: TemporaryYard) -> None:
    line = "trap 'echo cleaned-up; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    with yard.terminal("run", "--", line) as screen:
        screen.until("ready")
        screen.press(b"\x03")
        screen.until("Ctrl-C again kills it")
        screen.until("cleaned-up")
        assert screen.ended() == 130
        assert "Traceback" not in screen.plain
    assert yard.job()["state"] == "CANCELLED"


def test_a_second_ctrl_c_kills(yard: TemporaryYard) -> None:
    with yard.terminal("run", "--", DEAF) as screen:
        pid = int(re.findall(r"ready (\d+)", screen.until(r"ready \d+\r"))[0])
        screen.press(b"\x03")
        screen.until("Ctrl-C again kills it")
        assert is_alive(pid)
        screen.press(b"\x03")
        assert screen.ended() == 130
    until(lambda: not is_alive(pid), seconds=8)
    until(lambda: yard.job()["state"] == "CANCELLED")


def test_ctrl_c_cancels_an_array_with_its_live_display(yard: TemporaryYard) -> None:
    with yard.terminal("run", "-a", "0-9", "--cpus", "0.1", "--", "sleep", "60") as screen:
        screen.until("10 running")
        screen.press(b"\x03")
        assert screen.ended() == 130
    assert yard.job()["counts"]["cancelled"] == 10


def test_a_closed_terminal_leaves_the_job_running(yard: TemporaryYard) -> None:
    with yard.terminal("run", "--", "echo ready; sleep 60") as screen:
        screen.until("ready")
        screen.process.send_signal(1)
        assert screen.ended() == 129
    assert yard.job()["state"] == "RUNNING"


def test_ctrl_c_while_waiting_leaves_the_job_alone(yard: TemporaryYard) -> None:
    job = yard.submit("--", "sleep", "60")
    with yard.terminal("wait", job) as screen:
        until(lambda: yard.job(job)["state"] == "RUNNING")
        until(lambda: len(list(Path(f"/proc/{screen.process.pid}/task").iterdir())) > 1)  # it watches by now
        screen.press(b"\x03")
        assert screen.ended() == 130
        assert "Traceback" not in screen.plain
    assert yard.job(job)["state"] == "RUNNING"


def test_a_reader_that_leaves_early_is_no_error(yard: TemporaryYard) -> None:
    yard.ok("run", "-q", "--", "seq", "100000")
    with yard.start("logs", "last") as logs:
        assert logs.stdout is not None
        assert logs.stderr is not None
        logs.stdout.readline()
        logs.stdout.close()
        assert b"Traceback" not in logs.stderr.read()
