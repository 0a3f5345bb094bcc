"""Outcomes: what did the calls of a task return or raise? Read from the results that the server hands out.

Unpickling runs what the other side wrote, which is what runs our own function anyway. Nobody but the caller unpickles,
and of no job that another user submitted (`functions.calls_of_job`).
What a task wrote is no more than its own: whatever is odd in it is the error of this task, and of no other.
"""

from __future__ import annotations

import pickle
import tarfile
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from jobyard.client.api import YardClient
from jobyard.errors import NotFound, TaskFailed
from jobyard.python_api.in_task import RESULT

_IN_MEMORY = 16 << 20  # bytes of an answer, before it goes to a temporary file


class RemoteTraceback(Exception):
    """Where an error was raised in the task: it is the cause of the one that is raised here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text.rstrip()}"


class Outcome(NamedTuple):
    """Of one call: its result, or what it raised."""

    value: Any = None
    error: BaseException | None = None


def outcomes_of(client: YardClient, job: str, task: str | None = None) -> Iterator[tuple[str, list[Outcome]]]:
    """By the label of each task that wrote some, or of one task."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
        try:
            file.writelines(client.results(job, task=task))
        except NotFound:  # none of its tasks has begun
            return
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                label, _, rest = member.name.removeprefix("./").partition("/")
                content = tar.extractfile(member) if rest == f"output/{RESULT}" and member.isreg() else None
                if content is not None:
                    yield label, _read(content.read(), label)


def _read(content: bytes, label: str) -> list[Outcome]:
    """One for each call, or one error for all. Raises nothing: it runs in a thread of ours, where no Ctrl-C comes."""
    try:
        found = pickle.loads(content)
    except BaseException as error:
        return [Outcome(error=TaskFailed(f"the results of task {label} cannot be read: {_told(error)}"))]
    if type(found) is not list or not found or not all(_is_outcome(each) for each in found):
        return [Outcome(error=TaskFailed(f"task {label} wrote something else where its results go: {RESULT}"))]
    return [_outcome(*each) for each in found]


def _is_outcome(found: object) -> bool:
    match found:
        case ("value" | "error" | "unsendable", bytes(), str()):
            return type(found) is tuple
    return False


def _outcome(kind: str, pickled: bytes, text: str) -> Outcome:
    if kind == "unsendable":
        return Outcome(error=TaskFailed(text))
    try:
        value = pickle.loads(pickled) if pickled else None
    except BaseException as error:
        return Outcome(error=TaskFailed(f"what the task sent back cannot be read here: {_told(error)}"))
    if kind == "value":
        return Outcome(value)
    failure = _error(value, text)
    BaseException.__setattr__(failure, "__cause__", RemoteTraceback(text))  # its class may refuse to be changed
    return Outcome(error=failure)


def _error(raised: object, text: str) -> Exception:
    """What the caller gets. An exit or an interrupt of the task must not be one of the caller's own program."""
    if isinstance(raised, Exception):
        return raised
    last = ["an unknown error", *text.strip().splitlines()][-1]
    return TaskFailed(f"the function ended with {last}" if isinstance(raised, BaseException) else last)


def _told(error: BaseException) -> str:
    """An error of somebody else's class may fail to tell what it is."""
    try:
        return str(error) or type(error).__name__
    except BaseException:
        return type(error).__name__
