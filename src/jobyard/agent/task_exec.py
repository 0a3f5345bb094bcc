"""Exec beside a task: how does `--exec` run a command in a running task's directory and environment?

The command has a session of its own, and ends when the task does: what the task held belongs to the next one then.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Dict, List, NamedTuple, NoReturn, Optional

from jobyard.agent import running_task
from jobyard.agent.execution import memory_groups
from jobyard.agent.running_task import CannotReach, RunningTask
from jobyard.agent.system import processes
from jobyard.agent.task_terminal import TaskTerminal

EXIT_REFUSED = 2
_GRACE_SECONDS = 5.0  # for a command to leave after it was asked
_LOOK_SECONDS = 0.5  # between two looks at the task, where the kernel does not tell of its end
_PASSED_ON = (signal.SIGINT, signal.SIGQUIT)
_LEAVING = (signal.SIGTERM, signal.SIGHUP)
_CANNOT_RUN, _NOT_FOUND = 126, 127


class ExecOptions(NamedTuple):
    called: str  # the task, for people
    with_input: bool
    with_terminal: bool
    is_remote: bool  # whoever reads our output is behind a link, and may be gone without a signal


def run(state_dir: str, attempt: str, words: List[str], options: ExecOptions) -> int:
    """The command's exit code, as a shell has it; a refusal is one sentence on stderr."""
    try:
        running_task.become_owner(state_dir)
        task = running_task.find(state_dir, attempt)
    except (CannotReach, ValueError) as error:
        _say("%s %s" % (options.called, error))
        return EXIT_REFUSED
    words = _in_container(task, words, options) if task.container else words
    terminal = TaskTerminal(options.with_input) if options.with_terminal else None
    waiting = _Waiting(task, options, terminal)
    waiting.child = os.fork()
    if waiting.child == 0:
        _become(task, words, options, terminal)
    return waiting.until_end()


def _say(sentence: str) -> None:
    with suppress(OSError):
        sys.stderr.write("yard: %s\n" % sentence)
        sys.stderr.flush()


def _in_container(task: RunningTask, words: List[str], options: ExecOptions) -> List[str]:
    """The runtime knows the container's directory, variables and user: it gives them to the command too."""
    flags = ["--interactive"] * options.with_input + ["--tty"] * options.with_terminal
    return [*task.container, "exec", *flags, task.container_name, *words]


def _become(task: RunningTask, words: List[str], options: ExecOptions, terminal: Optional[TaskTerminal]) -> NoReturn:
    """The child's side of the fork: what is wrong with the command is said as a shell says it."""
    code = _CANNOT_RUN
    try:
        os.setsid()
        if terminal is not None:
            terminal.enter()
        elif not options.with_input:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.set_wakeup_fd(-1)
        for number in {*processes.default_signals(), signal.SIGWINCH}:
            signal.signal(number, signal.SIG_DFL)
        if task.group:
            with suppress(OSError):  # then without
                memory_groups.enter(task.group)
        _enter(task.directory)
        _exec(words, _environment(task, options))
    except FileNotFoundError:
        code = _NOT_FOUND
        _say("%s: command not found" % words[0])
    except OSError as error:
        _say("%s: %s" % (words[0], error.strerror))
    except ValueError as error:  # a NUL byte
        _say("%s" % error)
    finally:
        os._exit(code)


def _enter(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        _say("the task's directory %s cannot be entered: %s" % (directory, error.strerror))
        os._exit(_CANNOT_RUN)


def _environment(task: RunningTask, options: ExecOptions) -> Dict[str, str]:
    env = {**task.env, "PWD": task.directory}
    if options.with_terminal:
        env.setdefault("TERM", os.environ.get("TERM") or "xterm")
    return env


def _exec(words: List[str], env: Dict[str, str]) -> None:
    try:
        os.execvpe(words[0], words, env)
    except OSError as error:
        if error.errno != 8:  # ENOEXEC, a script without #!: every shell runs it with sh
            raise
        os.execve("/bin/sh", ["sh", *words], env)


class _Waiting:
    """Waits for a command, and for all that ends it before its time."""

    def __init__(self, task: RunningTask, options: ExecOptions, terminal: Optional[TaskTerminal]) -> None:
        self.child = 0
        self._task = task
        self._options = options
        self._terminal = terminal
        self._poll = select.poll()
        self._killed_at = 0.0  # when it will be, once it was asked to leave
        self._signals, waker = socket.socketpair()
        waker.setblocking(False)
        self._signals.setblocking(False)
        self._waker = waker  # kept: it ends with this object
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGWINCH, *_PASSED_ON, *_LEAVING):
            signal.signal(number, _noted)
        self._poll.register(self._signals, select.POLLIN)
        self._end_of_task = _watched(task)
        if self._end_of_task >= 0:
            self._poll.register(self._end_of_task, select.POLLIN)
        if options.is_remote and terminal is None:
            self._poll.register(1, 0)  # it only tells that nobody reads any more

    def until_end(self) -> int:
        if self._terminal is not None:
            self._terminal.begin(self._poll)
        try:
            while True:
                found, status = os.waitpid(self.child, os.WNOHANG)
                if found:
                    return _code(status)
                self._look()
        finally:
            if self._terminal is not None:
                self._terminal.finish()

    def _look(self) -> None:
        for descriptor, event in self._poll.poll(self._longest_wait_ms()):
            if descriptor == self._signals.fileno():
                self._take_signals()
            elif descriptor == self._end_of_task:
                self._poll.unregister(descriptor)
                self._task_has_ended()
            elif self._terminal is not None:
                if not self._terminal.carry(descriptor, event, self._poll):
                    self._leave()
            else:
                self._poll.unregister(descriptor)
                self._leave()
        if self._end_of_task < 0 and not self._killed_at and not self._task.is_alive:
            self._task_has_ended()
        if self._killed_at and time.monotonic() >= self._killed_at:
            processes.signal_sessions({self.child: signal.SIGKILL})

    def _longest_wait_ms(self) -> Optional[float]:
        """None: until something happens."""
        waits = [_LOOK_SECONDS] if self._end_of_task < 0 else []
        waits += [max(0.01, self._killed_at - time.monotonic())] if self._killed_at else []
        return min(waits) * 1000 if waits else None

    def _take_signals(self) -> None:
        with suppress(BlockingIOError):
            for number in self._signals.recv(4096):
                if number in _PASSED_ON:
                    processes.signal_sessions({self.child: number})
                elif number in _LEAVING:
                    self._leave()
                elif number == signal.SIGWINCH and self._terminal is not None:
                    self._terminal.take_size()

    def _task_has_ended(self) -> None:
        if not self._killed_at:
            _say("%s has ended, and what runs beside it ends with it" % self._options.called)
            self._leave()

    def _leave(self) -> None:
        if not self._killed_at:
            self._killed_at = time.monotonic() + _GRACE_SECONDS
            for number in (*_LEAVING, signal.SIGCONT):
                processes.signal_sessions({self.child: number})


def _noted(number: int, frame: object) -> None:
    """Python writes the number to the wakeup socket; it only does so where there is a handler."""


def _watched(task: RunningTask) -> int:
    """A descriptor that is readable when the task's process has ended; -1: somebody has to look."""
    try:
        descriptor: int = os.pidfd_open(task.pid)  # type: ignore[attr-defined,unused-ignore]
    except (AttributeError, OSError):  # Python 3.8, an old kernel, or it is gone
        return -1
    if task.is_alive:
        return descriptor
    os.close(descriptor)
    return -1


def _code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
