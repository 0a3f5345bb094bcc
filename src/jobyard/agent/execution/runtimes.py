"""Container runtimes: which is on this machine, and does it answer?"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

VARIABLE = "JOBYARD_CONTAINER_RUNTIME"  # a command with its options, as in `docker -H unix:///run/other.sock`
NAMES = ("docker", "podman")  # in this order, where both answer
_ANSWER_SECONDS = 10.0
_LONGEST_QUOTE = 300


class Runtime(NamedTuple):
    """A command that runs images, or why there is none."""

    command: Tuple[str, ...] = ()
    kind: str = ""  # docker or podman; empty: none that answers
    problem: str = ""  # what goes after the machine's name: "has neither docker nor podman in its PATH"
    is_rootless: bool = False  # root in a container is the user outside
    limits: Tuple[str, ...] = ()  # of memory, swap and cpus, what it can hold a container to


class Runtimes:
    """What is known of the runtimes here. Asking one never keeps the loop waiting, unless somebody wants to wait."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._question: Optional[_Question] = None
        self._others: List[List[str]] = []  # that are asked if this one does not answer
        self._unusable: List[Runtime] = []
        self.current: Optional[Runtime] = None  # None: nobody has asked yet

    def look(self) -> None:
        """Begin to ask, unless that goes on already or one is known."""
        if self._question is not None or (self.current is not None and self.current.kind):
            return
        try:
            self._others = candidates(self._environ)
        except ValueError as error:
            self.current = Runtime(problem="has a %s that cannot be read: %s" % (VARIABLE, error))
            return
        self._unusable = []
        self._ask_next()

    def _ask_next(self) -> None:
        self._question = _Question(self._others.pop(0)) if self._others else None
        if self._question is None:
            nothing = Runtime(problem="has neither docker nor podman in its PATH")
            self.current = self._unusable[0] if self._unusable else nothing

    def poll(self) -> Optional[Runtime]:
        """What is known now; the first runtime that answers counts."""
        while self._question is not None and self._question.is_answered:
            answer = self._question.answer()
            if answer.kind:
                self._question, self.current = None, answer
            else:
                self._unusable.append(answer)
                self._ask_next()
        return self.current

    def found_within(self, seconds: float) -> Runtime:
        """What is known when one has answered, or after so long."""
        self.look()
        deadline = time.monotonic() + seconds
        while self._question is not None and time.monotonic() < deadline:
            self._question.wait(max(0.0, deadline - time.monotonic()))
            self.poll()
        return self.poll() or Runtime(problem="has a container runtime that has not answered yet")


def candidates(environ: Mapping[str, str]) -> List[List[str]]:
    """The commands that may be a runtime. Raises ValueError for words that cannot be split."""
    given = shlex.split(environ.get(VARIABLE, ""))
    search = environ.get("PATH")
    if given:
        return [[shutil.which(given[0], path=search) or given[0], *given[1:]]]
    found = [shutil.which(name, path=search) for name in NAMES]
    return [[path] for path in found if path]


class _Question:
    """One runtime is asked for what it can do."""

    def __init__(self, command: List[str]) -> None:
        self._command = command
        self._since = time.monotonic()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - read when it has ended
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._trouble = ""
        try:
            self._process = subprocess.Popen(
                [*command, "info", "--format", "{{json .}}"],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._trouble = os.strerror(error.errno or 0)

    @property
    def is_answered(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        if time.monotonic() - self._since > _ANSWER_SECONDS:
            self._process.kill()
            self._process.wait()
            self._trouble = "it took more than %d s" % _ANSWER_SECONDS
            return True
        return False

    def wait(self, seconds: float) -> None:
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)

    def answer(self) -> Runtime:
        self._output.seek(0)
        text = self._output.read().decode("utf-8", "replace")
        self._output.close()
        name = os.path.basename(self._command[0])
        if self._trouble:
            return Runtime(problem="has a %s that does not answer: %s" % (name, self._trouble))
        return runtime_from(self._command, text)


def runtime_from(command: List[str], text: str) -> Runtime:
    """What `info` told. Docker's words and podman's differ; `docker` may be podman in disguise."""
    name = os.path.basename(command[0])
    begin = text.find("{")
    try:
        info = json.JSONDecoder().raw_decode(text[begin:])[0] if begin >= 0 else {}
    except ValueError:
        info = {}
    if isinstance(info.get("host"), dict):
        return _podman(command, info["host"])
    if info.get("ServerVersion"):
        return _docker(command, info)
    said = info.get("ServerErrors") or [line for line in text.splitlines() if line.strip() and "{" not in line]
    quote = " ".join(str(said[0]).split())[:_LONGEST_QUOTE] if said else "it said nothing"
    return Runtime(problem="has a %s that does not answer: %s" % (name, quote.rstrip(".")))


def _docker(command: List[str], info: Dict[str, Any]) -> Runtime:
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    known = (("memory", "MemoryLimit"), ("swap", "SwapLimit"), ("cpus", "CpuCfsQuota"))
    limits = tuple(limit for limit, field in known if info.get(field))
    return Runtime(tuple(command), "docker", "", any("rootless" in option for option in options), limits)


def _podman(command: List[str], host: Dict[str, Any]) -> Runtime:
    controllers = host.get("cgroupControllers") or ()
    limits = ("memory", "swap") if "memory" in controllers else ()
    if "cpu" in controllers:
        limits = (*limits, "cpus")
    is_rootless = bool((host.get("security") or {}).get("rootless"))
    return Runtime(tuple(command), "podman", "", is_rootless, limits)
