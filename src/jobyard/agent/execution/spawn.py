"""Spawn: how does a task's process begin?"""

from __future__ import annotations

import errno
import os
import signal
from typing import Any, Dict, List, NoReturn, Tuple

from jobyard.agent.execution import memory_groups
from jobyard.agent.system import processes

_DEFAULTS = processes.default_signals()
_OPEN = os.POSIX_SPAWN_OPEN
_APPEND = os.O_CREAT | os.O_WRONLY | os.O_APPEND
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_own_session: Dict[str, Any] = {"setsid": True}


class CannotStart(Exception):
    """The command did not become a process; `exit_code` is what a shell would have answered."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class CannotEnter(OSError):
    """The cgroup does not take it; nothing has begun."""


class Spawner:
    """Starts commands as leaders of their own sessions. Remembers where programs lie, as shells do."""

    def __init__(self) -> None:
        self._found: Dict[Tuple[str, str], str] = {}

    def spawn(
        self, argv: List[str], env: Dict[str, str], out: str, err: str, group: str = "", stdin: str = "/dev/null"
    ) -> int:
        """The pid of the new process, in a cgroup if one is given. Raises CannotStart when there is none.

        `out` and `err` may be one file: each write goes to its end.
        """
        actions = [
            (_OPEN, 0, stdin, os.O_RDONLY, 0),
            (_OPEN, 1, out, _APPEND, 0o600),
            (_OPEN, 2, err, _APPEND, 0o600),
        ]
        key = (argv[0], env.get("PATH", _DEFAULT_PATH))
        try:
            for fresh in (False, True):
                try:
                    return _begin(self._program(key, fresh), argv, env, actions, group)
                except FileNotFoundError:
                    if fresh or "/" in argv[0]:
                        raise
            raise AssertionError("unreachable")
        except CannotEnter:
            raise
        except OSError as error:
            if error.errno == errno.ENOEXEC:  # a script without #!: every shell runs it with sh
                script = self._program(key, False)
                return _begin("/bin/sh", ["sh", script, *argv[1:]], env, actions, group)
            raise _explained(argv[0], error) from error
        except (ValueError, TypeError) as error:  # a NUL byte, a name with "=", a value that is no string
            raise CannotStart(126, "cannot start %s: %s" % (argv[0], error)) from error

    def _program(self, key: Tuple[str, str], fresh: bool) -> str:
        name, search = key
        if "/" in name:
            return name
        if fresh or key not in self._found:
            self._found[key] = _look_up(name, search)
        return self._found[key]


def _look_up(name: str, search: str) -> str:
    """Where a program lies on this PATH. Raises what exec would: nowhere, or there but not ours to run."""
    denied = False
    for directory in search.split(os.pathsep):
        path = os.path.join(directory or ".", name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            denied = True
    raise OSError(errno.EACCES if denied else errno.ENOENT, os.strerror(errno.EACCES if denied else errno.ENOENT))


def _begin(path: str, argv: List[str], env: Dict[str, str], actions: Any, group: str) -> int:
    return _fork_into(group, path, argv, env, actions) if group else _posix_spawn(path, argv, env, actions)


def _fork_into(group: str, path: str, argv: List[str], env: Dict[str, str], actions: Any) -> int:
    """The same as by posix_spawn, which cannot do it: it is in its cgroup before it is anything. Raises OSError."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(group, path, argv, env, actions, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        told = file.read()
    if not told:
        return pid
    os.waitpid(pid, 0)
    kind, _, number = told.decode().partition(" ")
    if kind == "enter":
        raise CannotEnter(int(number), os.strerror(int(number)))
    if kind == "words":
        raise ValueError(number)
    raise OSError(int(number), os.strerror(int(number)))


def _become(group: str, path: str, argv: List[str], env: Dict[str, str], actions: Any, writer: int) -> NoReturn:
    """The child's side of the fork. What goes wrong is told through the pipe, which a successful exec closes."""
    try:
        os.setsid()
        for _, target, name, flags, mode in actions:
            descriptor = os.open(name, flags, mode)
            os.dup2(descriptor, target)
        for number in _DEFAULTS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        try:
            memory_groups.enter(group)
        except OSError as error:
            os.write(writer, b"enter %d" % (error.errno or 0))
            os._exit(126)
        os.execve(path, argv, env)
    except OSError as error:
        os.write(writer, b"exec %d" % (error.errno or 0))
    except BaseException as error:
        os.write(writer, ("words %s" % error).encode("utf-8", "replace")[:1000])
    os._exit(126)


def _posix_spawn(path: str, argv: List[str], env: Dict[str, str], actions: Any) -> int:
    try:
        return os.posix_spawn(path, argv, env, file_actions=actions, setsigmask=[], setsigdef=_DEFAULTS, **_own_session)
    except NotImplementedError:  # an old C library: at least a process group of its own
        _own_session.clear()
        _own_session["setpgroup"] = 0
        return os.posix_spawn(path, argv, env, file_actions=actions, setsigmask=[], setsigdef=_DEFAULTS, **_own_session)


def _explained(name: str, error: OSError) -> CannotStart:
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and "/" not in name:
        return CannotStart(127, "%s: command not found" % name)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return CannotStart(127, "%s: No such file or directory" % name)
    return CannotStart(126, "%s: %s" % (name, os.strerror(error.errno or 0)))
