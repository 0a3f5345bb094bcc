"""Start of an agent: alone on its state directory, listening, and out of everybody's way."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from typing import Callable, List, NoReturn, Optional

from jobyard.agent import bridge, receiving, task_end, task_exec
from jobyard.agent.devices.fake_gpu import FakeGpus, default_directory, parse_devices
from jobyard.agent.devices.gpus import Gpus, find_gpus
from jobyard.agent.files import places
from jobyard.agent.supervisor import Agent

EXIT_ALREADY_RUNNING = 3
_LARGEST_LOG = 1 << 20


class CannotBegin(Exception):
    """Said to whoever started the agent; `exit_code` tells whether another one runs."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def main(argv: Optional[List[str]] = None, build: str = "source") -> int:
    given = sys.argv[1:] if argv is None else argv
    cut = given.index("--") if "--" in given else len(given)
    options = _parser().parse_args(given[:cut])
    if options.exec or options.until_end:
        return _beside_task(options, given[cut + 1 :])
    if options.bridge:
        return bridge.run(options.yard, options.fake_gpus)
    if options.receive:
        return receiving.run(options.yard, options.receive)
    if not (options.state and options.socket):
        print("jobyard agent: give --state and --socket, or --bridge or --receive with --yard", file=sys.stderr)
        return 2
    if options.detach:
        return _detached(options, build)
    try:
        _serve(options, build, lambda: None)
    except CannotBegin as error:
        print("jobyard agent: %s" % error, file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agent", description="Supervises attempts of one yard on this machine.")
    parser.add_argument("--state", metavar="DIR", help="records and output of attempts")
    parser.add_argument("--socket", metavar="PATH", help="where the server connects")
    parser.add_argument("--fake-gpus", default=os.environ.get("JOBYARD_FAKE_GPUS", ""), metavar="4x80GiB")
    parser.add_argument("--idle-seconds", type=float, default=300.0, metavar="N", help="leave when unused for so long")
    parser.add_argument("--detach", action="store_true", help="return when the agent listens")
    parser.add_argument("--bridge", action="store_true", help="carry bytes to the yard's agent, started if need be")
    parser.add_argument("--receive", metavar="HASH", help="unpack a tar on stdin as a snapshot")
    parser.add_argument("--yard", default="", metavar="ID", help="whose agent: tells where state and socket are")
    beside = parser.add_argument_group("beside a task that runs", "with --state, or --yard")
    beside.add_argument("--exec", metavar="ATTEMPT", help="run the command after -- in its directory and environment")
    beside.add_argument("--stdin", action="store_true", help="the command reads our stdin")
    beside.add_argument("--tty", action="store_true", help="the command gets a terminal")
    beside.add_argument("--remote", action="store_true", help="our stdout is a link, whose end ends the command")
    beside.add_argument("--until-end", metavar="ATTEMPT", help="say that it runs, and return when it has ended")
    beside.add_argument("--called", default="the task", metavar="WORDS", help="what sentences call the task")
    return parser


def _beside_task(options: argparse.Namespace, words: List[str]) -> int:
    try:
        state = (
            os.path.abspath(options.state) if options.state else places.state_of(options.yard, os.path.expanduser("~"))
        )
    except ValueError as error:
        print("jobyard agent: %s" % error, file=sys.stderr)
        return 2
    if options.until_end:
        return task_end.run(state, options.until_end, options.called)
    asked = task_exec.ExecOptions(options.called, options.stdin, options.tty, options.remote)
    return task_exec.run(state, options.exec, words, asked)


def _serve(options: argparse.Namespace, build: str, ready: Callable[[], None]) -> None:
    """Run an agent to its end. Raises CannotBegin if it cannot even listen."""
    state_dir, path = os.path.abspath(options.state), os.path.abspath(options.socket)
    # 1. Alone: the lock ends with this process, however it ends. Lanes close their copy of it.
    try:
        os.makedirs(state_dir, mode=0o700, exist_ok=True)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        lock, lock_path = _lock(os.path.dirname(path), state_dir)
        gpus = _gpus(options.fake_gpus)
        listener = _listen(path)
    except (OSError, ValueError) as error:
        raise CannotBegin(1, str(error)) from error
    # 2. Ignore a terminal's signals.
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    log = Log(state_dir + "/agent.log")
    agent = Agent(state_dir, listener, gpus, build, options.idle_seconds, log)
    # The handler needs a descriptor to wake the loop with: select() resumes after a signal otherwise.
    wake, waker = socket.socketpair()
    waker.setblocking(False)
    agent.loop.leave_when_readable(wake)
    # A cleaner of temporary files may delete lock and socket: then nobody can reach us, and another agent may start.
    agent.leave_when(lambda: not (_is_at(lock, lock_path) and os.path.exists(path)))
    signal.signal(signal.SIGTERM, lambda number, frame: waker.send(b"x"))
    with open(state_dir + "/agent.pid", "w") as file:
        file.write("%d\n" % os.getpid())
    # 3. Serve.
    ready()
    log("agent %d begins, build %s" % (os.getpid(), build))
    try:
        agent.run()
    except BaseException:
        log(traceback.format_exc())
        raise
    log("agent %d leaves" % os.getpid())
    if _is_at(lock, lock_path):  # otherwise they may be another agent's
        for leftover in (path, state_dir + "/agent.pid"):
            with suppress(OSError):
                os.unlink(leftover)
    os.close(lock)


def _lock(directory: str, state_dir: str) -> "tuple[int, str]":
    name = hashlib.sha256(os.path.realpath(state_dir).encode()).hexdigest()[:12]
    path = os.path.join(directory, "agent-%s.lock" % name)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise CannotBegin(EXIT_ALREADY_RUNNING, "another agent runs on %s" % state_dir) from None
    return descriptor, path


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _gpus(spec: str) -> Gpus:
    if not spec:
        return find_gpus()
    # Tasks simulate on the same devices.
    os.environ["JOBYARD_FAKE_GPUS"], os.environ["JOBYARD_FAKE_GPU_DIR"] = spec, default_directory()
    return FakeGpus(parse_devices(spec))


def _listen(path: str) -> socket.socket:
    if len(path.encode()) > 107:
        raise ValueError("the socket's path has more than 107 bytes: %s" % path)
    if os.path.lexists(path):
        os.unlink(path)  # of an agent that died: we have its lock
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(16)
    return listener


def _detached(options: argparse.Namespace, build: str) -> int:
    """Begin in the background; returns when the agent listens, or why it does not."""
    reader, writer = os.pipe()
    options.state, options.socket = os.path.abspath(options.state), os.path.abspath(options.socket)
    child = os.fork()
    if child:
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader) as file:
            code, _, message = file.read().partition(" ")
        if message:
            print("jobyard agent: %s" % message, file=sys.stderr)
        return int(code or 1)
    os.setsid()
    if os.fork():
        os._exit(0)
    _be_the_background(options, build, writer)


def _be_the_background(options: argparse.Namespace, build: str, writer: int) -> NoReturn:
    code = 1
    try:
        os.chdir("/")
        os.makedirs(options.state, mode=0o700, exist_ok=True)
        null = os.open(os.devnull, os.O_RDWR)
        errors = os.open(options.state + "/agent.err", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        for source, target in ((null, 0), (null, 1), (errors, 2)):
            os.dup2(source, target)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != writer:
                with suppress(OSError):  # the listing's own descriptor is closed by now
                    os.close(int(name))
        _serve(options, build, lambda: _tell(writer, "0 "))
        code = 0
    except CannotBegin as error:
        code = error.exit_code
        _tell(writer, "%d %s" % (code, error))
    except BaseException as error:
        traceback.print_exc()
        _tell(writer, "1 %r" % (error,))
    finally:
        os._exit(code)


def _tell(writer: int, text: str) -> None:
    try:
        os.write(writer, text.encode())
        os.close(writer)
    except OSError:
        pass  # reported already, or nobody waits


class Log:
    """A file for people, that never grows beyond two pieces of a megabyte."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, text: str) -> None:
        try:
            if os.path.exists(self._path) and os.path.getsize(self._path) > _LARGEST_LOG:
                os.replace(self._path, self._path + ".1")
            with open(self._path, "a") as file:
                file.write("%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%S%z"), text))
        except OSError:
            pass  # a full disk must not take the agent down


if __name__ == "__main__":
    sys.exit(main())
