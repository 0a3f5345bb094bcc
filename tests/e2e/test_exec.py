"""`yard exec` and `yard port-forward` on this machine: the task's directory and environment, the caller's streams."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from typing import IO

from jobyard.agent.system import processes
from jobyard.agent_protocol import records
from tests.waiting import until
from tests.yards import TemporaryYard, is_alive

SERVES = """
import http.server
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
open("port", "w").write(str(server.server_address[1]))
server.serve_forever()
"""


def running(yard: TemporaryYard, *words: str) -> str:
    job = yard.submit(*words)
    yard.wait_state(job, "RUNNING")
    return job


def record_of(yard: TemporaryYard, job: str) -> Path:
    return Path(records.paths(f"{yard.directory}/agent", f"{job}.0.1").record)


def test_a_command_runs_in_the_tasks_directory_and_environment(yard: TemporaryYard, tmp_path: Path) -> None:
    """A task that went elsewhere meanwhile is met there."""
    job = running(yard, "-e", "A=1  2\n3", "-e", "PATH=/usr/bin:/bin:/mine", "--", "mkdir deep; cd deep; sleep 60")
    script = 'pwd; echo "$A|$PATH|$YARD_TASK|$YARD_OUTPUT_DIR|${STRANGE-}"'
    until((yard.work / "deep").exists)
    done = yard.run("exec", job, "--", "sh", "-c", script, cwd=tmp_path, env={"STRANGE": "x"})
    output = records.paths(f"{yard.directory}/agent", f"{job}.0.1").output
    assert done.out == f"{yard.work}/deep\n1  2\n3|/usr/bin:/bin:/mine|0|{output}|\n", done.err


def test_output_errors_input_and_exit_code_are_the_commands_own(yard: TemporaryYard) -> None:
    job = running(yard, "--", "sleep 60")
    done = yard.run("exec", "-i", job, "--", "sh", "-c", "cat; echo wrong >&2; exit 3", input=b"\x00\xff" * 100_000)
    assert (done.code, done.stdout, done.err) == (3, b"\x00\xff" * 100_000, "wrong\n")
    without = yard.run("exec", job, "--", "cat", input="not read")
    assert (without.code, without.out) == (0, "")
    assert yard.run("exec", job, "--", "sh", "-c", "kill -TERM $$").code == 128 + signal.SIGTERM
    words = yard.run("exec", job, "--", "printf", "%s|", "a b", "$HOME", "--", "--help")
    assert words.out == "a b|$HOME|--|--help|"


def test_a_command_that_is_not_there_is_127_and_one_that_cannot_run_126(yard: TemporaryYard) -> None:
    yard.write("plain", "no program")
    job = running(yard, "-e", "PATH=/usr/bin:/bin", "--", "sleep 60")
    missing = yard.run("exec", job, "--", "no-such-program")
    assert (missing.code, missing.err) == (127, "yard: no-such-program: command not found\n")
    refused = yard.run("exec", job, "--", "./plain")
    assert (refused.code, refused.err) == (126, "yard: ./plain: Permission denied\n")


def test_a_command_gets_a_terminal_of_the_callers_size_and_hears_of_a_new_one(yard: TemporaryYard) -> None:
    job = running(yard, "--", "sleep 60")
    script = (
        "trap 'stty size' WINCH; trap 'exit 130' INT; "
        "tty; stty size; echo ready; read line; echo got-$line; while :; do sleep 0.1; done"
    )
    with yard.terminal("exec", "-it", job, "--", "bash", "-c", script, columns=91) as screen:
        screen.until(r"/dev/pts/\d+\s+30 91\s+ready")
        screen.press(b"word\r")
        screen.until("got-word")
        ioctl(screen._master, termios.TIOCSWINSZ, struct.pack("HHHH", 41, 77, 0, 0))
        screen.until("41 77")
        screen.press(b"\x03")  # the terminal of the command makes a signal of it
        assert screen.ended() == 130


def test_ctrl_c_without_a_terminal_reaches_the_command(yard: TemporaryYard) -> None:
    job = running(yard, "--", "sleep 60")
    script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.1; done"
    with yard.start("exec", job, "--", "bash", "-c", script) as process:
        assert line_of(process.stdout) == "ready\n"
        process.send_signal(signal.SIGINT)
        assert (line_of(process.stdout), process.wait()) == ("caught\n", 7)


def line_of(stream: IO[bytes] | None) -> str:
    assert stream is not None
    return stream.readline().decode()


def test_a_command_ends_with_its_task_and_leaves_nobody_behind(yard: TemporaryYard) -> None:
    job = running(yard, "--", "until [ -e go ]; do sleep 0.05; done")
    with yard.start("exec", job, "--", "bash", "-c", "sleep 1000 & echo $! $$; wait") as process:
        pids = [int(word) for word in line_of(process.stdout).split()]
        yard.write("go", "")
        assert process.stderr is not None
        assert re.fullmatch(r"yard: task 0 of job \d+ has ended, and what runs .*\n", process.stderr.read().decode())
        assert process.wait() == 128 + signal.SIGTERM
    until(lambda: not any(map(is_alive, pids)))


def test_who_leaves_takes_the_command_along(yard: TemporaryYard) -> None:
    job = running(yard, "--", "sleep 60")
    with yard.start("exec", job, "--", "bash", "-c", "echo $$; exec sleep 1000") as process:
        pid = int(line_of(process.stdout))
        process.send_signal(signal.SIGHUP)
        until(lambda: not is_alive(pid))


# -- what is refused


def test_a_task_that_does_not_run_is_refused_in_a_sentence(yard: TemporaryYard) -> None:
    job = yard.submit("--", "true")
    yard.ok("wait", job)
    for verb in (["exec", job, "--", "true"], ["port-forward", job, "8000"]):
        done = yard.run(*verb)
        assert (done.code, "it does not run now" in done.err) == (2, True), done.err


def test_a_job_of_several_tasks_wants_one_named(yard: TemporaryYard) -> None:
    job = running(yard, "-a", "0-1", "--cpus", "0.1", "--", "sleep 60")
    done = yard.run("exec", job, "--", "true")
    assert (done.code, re.search(r"has 2 tasks; name one: \d+/0", done.err) is not None) == (2, True)
    until(lambda: yard.job(job)["counts"]["running"] == 2)
    assert yard.ok("exec", f"{job}/1", "--", "sh", "-c", "echo $YARD_TASK").out == "1\n"


def test_a_process_that_only_has_the_tasks_number_is_not_taken_for_it(yard: TemporaryYard) -> None:
    job = running(yard, "--", "sleep 60")
    path = record_of(yard, job)
    before, record = path.read_bytes(), records.read(str(path))
    assert record is not None
    assert record.start is not None
    other = os.getpid()
    assert processes.start_time(other) != record.start.start_time
    start = records.start_line(record.start.pid, record.start.start_time, record.start.started_at)
    path.write_bytes(before.replace(start, records.start_line(other, record.start.start_time, record.start.started_at)))
    try:
        done = yard.run("exec", job, "--", "env")
        assert (done.code, done.out) == (2, "")
        assert re.fullmatch(r"yard: task 0 of job \d+ has ended\n", done.err)
    finally:
        path.write_bytes(before)


def test_flags_of_pods_are_refused_for_a_process(yard: TemporaryYard) -> None:
    job = running(yard, "--", "sleep 60")
    done = yard.run("exec", "--context", "lab", job, "--", "true")
    assert (done.code, "is no pod; leave --kubeconfig and --context out" in done.err) == (2, True)


# -- ports


@contextmanager
def forwarded(yard: TemporaryYard, job: str, *ports: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with yard.start("port-forward", job, *ports) as process:
        try:
            line = line_of(process.stderr)
            found = re.match(r"yard: 127\.0\.0\.1:(\d+) is port \d+ of task 0 of job \d+; Ctrl-C ends it", line)
            assert found, line
            yield process, int(found[1])
        finally:
            if process.poll() is None:
                process.kill()


def fetched(port: int, name: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/{name}") as answer:
        return bytes(answer.read())


def test_a_port_of_a_task_is_reached_under_another_number_until_the_task_ends(yard: TemporaryYard) -> None:
    yard.write("large", os.urandom(3_000_000))
    yard.write("serve.py", SERVES)
    job = running(yard, "--", f"exec {sys.executable} serve.py 2> /dev/null")
    until(lambda: (yard.work / "port").exists() and (yard.work / "port").read_text())
    port = (yard.work / "port").read_text()
    with forwarded(yard, job, f":{port}") as (process, local):
        assert fetched(local, "large") == (yard.work / "large").read_bytes()
        yard.ok("cancel", "--force", job)
        assert (process.wait(), "has ended; its ports are no longer forwarded" in told(process)) == (2, True)


def told(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    return process.stderr.read().decode()


def test_a_port_that_is_here_already_is_said_and_one_where_nobody_listens_too(yard: TemporaryYard) -> None:
    job = running(yard, "--", "sleep 60")
    same = yard.run("port-forward", job, "8000")
    assert (same.code, "runs on this machine: its port 8000 is 127.0.0.1:8000 already" in same.err) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        refused = yard.run("port-forward", job, f"{number}:{number - 1}")
        assert (refused.code, f"port {number} cannot be used here" in refused.err) == (2, True)
        closed = number
    with forwarded(yard, job, f":{closed}") as (process, local), socket.create_connection(("127.0.0.1", local)) as end:
        assert end.recv(1) == b""
        assert "Connect" in line_of(process.stderr)


def test_ctrl_c_ends_forwarding_without_a_word_and_leaves_nobody_behind(yard: TemporaryYard) -> None:
    job = running(yard, "--", "sleep 60")
    with forwarded(yard, job, ":9") as (process, _):
        process.send_signal(signal.SIGINT)
        assert (process.wait(), told(process).strip()) == (130, "")
    watchers = [each.pid for each in processes.scan() if f"--until-end\0{job}.0.1".encode() in _command(each.pid)]
    assert watchers == []


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
