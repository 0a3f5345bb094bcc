"""Ended containers: how is one ended for certain, and what became of those that nobody ended?"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from typing import Callable, Dict, List, Optional, Pattern, Sequence

from jobyard.agent.execution import container_words
from jobyard.agent.execution.runtimes import Runtimes
from jobyard.agent.system import probe
from jobyard.agent.system.forking import Background
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import records
from jobyard.agent_protocol.records import Paths

_REMOVE_SECONDS = 60.0
_AGAIN_SECONDS = 20.0  # a client that was killed may have asked for a container that the engine is still making
_TAIL_BYTES = 1 << 14
_LONGEST_QUOTE = 400
_ERROR = re.compile(
    r"(?:docker: |podman: )?(?:Error response from daemon|Error): *(?P<rest>.*)"
    r"|(?:docker: |podman: )(?P<own>.*)|(?P<whole>Cannot connect to the Docker daemon.*)"
)
_ERROR_OF_COMMAND = re.compile(r"docker: (?:Error response from daemon: )?(.*)|Error: ((?:crun|runc|OCI|.*OCI ).*)")


def remove(command: Sequence[str], name: str, kind: str = "") -> str:
    """End a container of this name, at once, if there is one. Returns what the runtime says if that did not work."""
    if kind != "docker":  # podman's rm is polite first, and its flag for that is not in all versions
        _call(command, ["kill", "--signal", "KILL", name])
    done = _call(command, ["rm", "--force", name])
    if done is None:
        return "the runtime does not answer"
    said = done.stderr.decode("utf-8", "replace").strip()
    is_gone = done.returncode == 0 or re.search(r"(?i)no such|no container with|already in progress", said)
    return "" if is_gone else said


def _call(command: Sequence[str], words: List[str]) -> "Optional[subprocess.CompletedProcess[bytes]]":
    try:
        return subprocess.run(
            [*command, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_REMOVE_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None


def id_of(state_dir: str, attempt: str) -> str:
    """The id of an attempt's container; empty: there is none yet."""
    try:
        with open(container_words.file_of_id(records.paths(state_dir, attempt))) as file:
            return file.read().strip()
    except OSError:
        return ""


def session_of(pid: int, session: int, contained: Dict[str, int]) -> int:
    """Whose process this is: what is in a container counts for its attempt, the container's client does not."""
    if session in contained.values():
        return 0
    groups = probe.read_text("/proc/%d/cgroup" % pid)
    return next((owner for container, owner in contained.items() if container in groups), session)


def remove_leftovers(command: Sequence[str], kind: str, state_dir: str) -> None:
    """Remove the containers of attempts that have ended, or that nobody knows any more."""
    label = "label=jobyard.state=%s" % container_words.state_label(state_dir)
    words = ["ps", "--all", "--filter", label, "--format", '{{.ID}} {{.Label "jobyard.attempt"}}']
    done = _call(command, words)
    for line in done.stdout.decode("utf-8", "replace").splitlines() if done is not None else ():
        container, _, attempt = line.strip().partition(" ")
        if container and _is_over(state_dir, attempt):
            remove(command, container, kind)


def _is_over(state_dir: str, attempt: str) -> bool:
    try:
        record = records.read(records.paths(state_dir, attempt).record)
    except (ValueError, OSError):
        return True
    return record is None or record.ending is not None


def explain(image: str, kind: str, files: Paths, is_certain: bool) -> None:
    """The runtime could not run it: make its words the attempt's own reason, unless the task has given one.

    Other codes than its own are the runtime's only if it says so in so many words.
    """
    sentence = "%s could not run image %s" % (kind, image)
    said = said_by_runtime(_tail(files.err), _ERROR if is_certain else _ERROR_OF_COMMAND)
    if said is None or os.path.exists(files.error):
        return
    with suppress(OSError), open(files.error, "w") as file:
        file.write("%s: %s\n" % (sentence, said) if said else sentence + "\n")


def said_by_runtime(text: str, error: "Pattern[str]" = _ERROR) -> Optional[str]:
    """Its last words about an error; None: there are none, so the exit code was the task's own."""
    for line in reversed(text.splitlines()):
        match = error.match(line.strip())
        if match:
            return next(filter(None, match.groups()), "").strip().rstrip(".")[:_LONGEST_QUOTE]
    return None


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


class ContainerRemover:
    """Leaves no container behind that outlived everybody who could have ended it."""

    def __init__(self, background: Background, timers: Timers, state_dir: str, runtimes: Runtimes) -> None:
        self._background = background
        self._timers = timers
        self._state_dir = state_dir
        self._runtimes = runtimes
        self._is_due = False

    def begin(self) -> None:
        """Once, when a runtime is known: an agent before us may have died."""
        runtime = self._runtimes.current
        if runtime is None or not runtime.kind:
            return
        command, kind = runtime.command, runtime.kind
        with suppress(OSError):  # too many processes on this machine: the next one does it
            self._background.run(lambda: remove_leftovers(command, kind, self._state_dir), lambda: None)

    def later(self) -> None:
        """An attempt did not end as containers do."""
        if not self._is_due:
            self._is_due = True
            self._timers.after(_AGAIN_SECONDS, self._now)

    def _now(self) -> None:
        self._is_due = False
        self.begin()

    def remove(self, command: Sequence[str], name: str, then: Callable[[], None]) -> None:
        """In the background. Raises OSError."""
        self._background.run(lambda: _removed(command, name), then)


def _removed(command: Sequence[str], name: str) -> None:
    remove(command, name)
