"""Completion: what does Tab offer behind `yard`? Asks a server that runs; starts none, and prints nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from jobyard import settings
from jobyard.cli.group import VERBS, command_of, yard
from jobyard.client.api import YardClient
from jobyard.client.local import running_client
from jobyard.settings import ClientKnobs

VARIABLE = "_YARD_COMPLETE"  # by which a shell asks; click's name for it
JOBS_MOST = 50
PROGRAMS_MOST = 200
SECONDS_MOST = 1.0  # that Tab waits for the server
_OF_UNFINISHED = frozenset({"cancel", "attach", "wait", "priority", "scale", "exec", "port-forward"})
_PLAIN = re.compile(r"[\w.+@%][\w.+@%-]*")  # what a shell takes as it stands: a word that Tab writes must not be code


class Words(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """Words of the yard, as the names of its jobs."""

    name = "word"

    def __init__(self, find: Callable[[YardClient, str], Iterator[tuple[str, str]]]) -> None:
        self._find = find

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        client = _client(ctx.params.get("yard") or ctx.find_root().params.get("yard"))
        if client is None:
            return []
        found = dict(self._find(client, ctx.info_name or ""))
        return [
            CompletionItem(word, help=about.replace(",", " "))  # fish takes a comma for the end
            for word, about in found.items()
            if word.startswith(incomplete) and _PLAIN.fullmatch(word)
        ]


def _client(given_yard: str | None) -> YardClient | None:
    is_remote = bool(os.environ.get("YARD_URL")) and not given_yard
    if not is_remote and not settings.yard_dir(given_yard).exists():
        return None
    return running_client(given_yard, settings.knobs(ClientKnobs), SECONDS_MOST)


def _jobs(client: YardClient, verb: str) -> Iterator[tuple[str, str]]:
    """Numbers first, then names, then ids."""
    is_live = verb in _OF_UNFINISHED
    jobs = client.jobs(unfinished=True, limit=JOBS_MOST) if is_live else client.first_jobs(JOBS_MOST, all=True)[0]
    about = {job.id: f"{job.name} ({job.state.value.lower()})" for job in jobs}
    yield from ((str(job.number), about[job.id]) for job in jobs)
    yield from ((job.name, f"job {job.number} ({job.state.value.lower()})") for job in reversed(jobs))
    yield "last", "the newest job"


def _nodes(client: YardClient, _verb: str) -> Iterator[tuple[str, str]]:
    for node in client.nodes():
        yield node.id, node.state.value.lower()
        yield from ((label, "a label") for label in node.labels)


# By the word that stands for a value in the help: JOB of `JOB...`, and of `JOB[/TASKS]`.
_KINDS: dict[str, Any] = {
    "JOB": Words(_jobs),
    "NODE": Words(_nodes),
    "WHERE": Words(_nodes),
    "FILE": click.Path(),
    "DIR": click.Path(file_okay=False),
}


class _Yard(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        try:
            if "--" in args:
                return _of_command(args[args.index("--") + 1 :], incomplete)
            if args and args[0] in VERBS:
                _teach(command_of(args[0]))
            return super().get_completions(args, incomplete)
        except Exception:  # nobody asked for an error: there is nothing to offer
            return []


class Bash(_Yard, BashComplete):
    pass


class Zsh(_Yard, ZshComplete):
    pass


class Fish(_Yard, FishComplete):
    pass


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}


def register() -> None:
    for shell, kind in SHELLS.items():
        add_completion_class(kind, shell)


def script(shell: str) -> str:
    """What the shell is to read, once for each session."""
    return SHELLS[shell](yard, {}, "yard", VARIABLE).source()


def _teach(command: click.Command) -> None:
    leaves = command.commands.values() if isinstance(command, click.Group) else (command,)
    for parameter in (each for leaf in leaves for each in leaf.params):
        match = re.search(r"[A-Z]+", parameter.metavar or "")
        if match and match[0] in _KINDS:
            parameter.type = _KINDS[match[0]]


def _of_command(words: list[str], incomplete: str) -> list[CompletionItem[str]]:
    """The program that a job runs, and then files."""
    files: list[CompletionItem[str]] = [CompletionItem(incomplete, type="file")]
    if words or not incomplete or "/" in incomplete:
        return files
    return [CompletionItem(name) for name in _programs(incomplete)] or files


def _programs(begin: str) -> list[str]:
    found: set[str] = set()
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        try:
            with os.scandir(directory or ".") as entries:
                found.update(entry.name for entry in entries if entry.name.startswith(begin) and entry.is_file())
        except OSError:
            continue
    return sorted(name for name in found if _PLAIN.fullmatch(name))[:PROGRAMS_MOST]
