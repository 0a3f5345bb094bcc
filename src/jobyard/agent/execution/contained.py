"""Contained attempts: how does a lane run them in containers?"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Dict, List, Optional, Tuple

from jobyard.agent.execution import container_words, containers
from jobyard.agent.execution.spawn import CannotStart
from jobyard.agent.execution.task_environment import TaskEnvironment
from jobyard.agent.files import results
from jobyard.agent.system.kernel_kills import KernelKills
from jobyard.agent_protocol import records
from jobyard.agent_protocol.records import Paths


class Contained:
    """The containers of one slot, one after another."""

    def __init__(self, state_dir: str, message: Dict[str, Any], environment: TaskEnvironment) -> None:
        self._state_dir = state_dir
        self._container = container_words.from_message(message)
        self._environment = environment
        self.kernel_kills = KernelKills(["/proc/vmstat"])  # containers are in none of our own cgroups

    def record_line(self, attempt: str) -> bytes:
        """For the record, so that somebody else can end the container if the lane cannot."""
        name = container_words.name_of(self._state_dir, attempt)
        return records.contain_line(name, list(self._container.runtime.command))

    def call(
        self,
        attempt: str,
        files: Paths,
        directory: str,
        argv: List[str],
        inside: Dict[str, str],
        outside: Dict[str, str],
    ) -> Tuple[List[str], Dict[str, str]]:
        """The command and its environment. Raises CannotStart, or OSError."""
        runtime = self._container.runtime
        shared = [self._environment.sdk, self._environment.token_file]
        if not runtime.kind:
            raise CannotStart(126, "no container can be run: this machine %s" % runtime.problem)
        try:
            call = container_words.call_of(
                self._container,
                self._state_dir,
                attempt,
                files,
                directory,
                argv,
                inside,
                outside,
                shared,
            )
        except ValueError as error:
            raise CannotStart(126, str(error)) from error
        if call.file:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            with os.fdopen(os.open(container_words.file_of_variables(files), flags, 0o600), "wb") as file:
                file.write(os.fsencode(call.file))  # as the environment itself would have it
        return call.argv, call.env

    def clear(self, attempt: str, files: Paths, exit_code: Optional[int]) -> None:
        """The client is gone: see to it that the container is too, and say what went wrong. Never raises."""
        container = self._container
        has_failed = exit_code == container_words.RUNTIME_FAILED
        if (exit_code is None or has_failed) and container.runtime.kind:
            name = container_words.name_of(self._state_dir, attempt)
            trouble = containers.remove(container.runtime.command, name, container.runtime.kind)
            if trouble:
                results.say(files.err, "container %s is left behind: %s" % (name, trouble))
        if has_failed or exit_code in container_words.COMMAND_FAILED:
            containers.explain(container.image, container.runtime.kind, files, is_certain=has_failed)
        for path in (container_words.file_of_variables(files), container_words.file_of_id(files)):
            with suppress(OSError):
                os.unlink(path)
