"""Flags of `execute_batch` and `execute_remote`: which are there, and what do they mean?"""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from jobyard.errors import UserError
from jobyard.model.units import parse_size_mib, whole_number

RANDOM_NAME = "__random__"


class _Parser(ArgumentParser):
    """argparse as the seed uses it (lists are greedy, flags may be shortened), with one sentence for an error."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")


@dataclass(frozen=True)
class Copies:
    """Paths to send and paths to collect, as written."""

    forward: tuple[str, ...]
    backwards: tuple[str, ...]


@dataclass(frozen=True)
class Need:
    """What each line of a batch needs."""

    cpus: int = 1
    memory_mib: int = 0
    gpu_memory_mib: int = 0
    gpu_percent: int = 0
    is_gpu_required: bool = True
    reserves_gpu: bool = True
    reserves_machine: bool = False


@dataclass(frozen=True)
class BatchFlags:
    filename: str
    machines: tuple[str, ...]
    copies: Copies
    need: Need
    is_verbose: bool = False
    is_dry_run: bool = False
    is_kabuki: bool = False  # each line is the rest of an execute_remote command


@dataclass(frozen=True)
class RemoteFlags:
    command: str
    machine: str
    copies: Copies
    job_name: str = RANDOM_NAME
    is_verbose: bool = False
    given: frozenset[str] = frozenset()  # which flags were written, for a line of a batch that has its own


def parse_batch(words: Sequence[str]) -> BatchFlags:
    parser = _Parser(prog="execute_batch", description="Run each line of a file as a command on some machine.")
    parser.add_argument("filename", help="one bash command on each line")
    parser.add_argument("--machines", nargs="*", required=True, metavar="M", help="machine files, or names for ssh")
    _add_copies(parser, ["./"])
    parser.add_argument("--num-cpus", type=_whole, default=1, metavar="N", help="cores for each line (default 1)")
    parser.add_argument("--memory-required", type=_whole, default=7000, metavar="MB", help="memory (default 7000)")
    parser.add_argument("--gpu-memory-required", type=_whole, default=1000, metavar="MB", help="of the GPU (1000)")
    parser.add_argument("--gpu-utilization", type=_share, default=0.75, metavar="SHARE", help="of the GPU (0.75)")
    parser.add_argument("--reserve", action="store_true", help="a whole machine for each line")
    parser.add_argument("--no-reserve-gpu", action="store_true", help="lines may share a GPU")
    parser.add_argument("--no-gpu-required", action="store_true", help="lines use no GPU")
    parser.add_argument("--verbose", action="store_true", help="say more on stderr")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and run nothing")
    parser.add_argument("--job-name", default=RANDOM_NAME, help="ignored, as in ml-scheduler")
    parser.add_argument("--kabuki-commands", action="store_true", help="each line is an execute_remote command")
    given = parser.parse_args(list(words))
    if not given.machines:
        raise UserError("--machines: name at least one machine")
    need = Need(
        given.num_cpus,
        parse_size_mib(f"{given.memory_required}MB"),
        parse_size_mib(f"{given.gpu_memory_required}MB"),
        math.ceil(round(given.gpu_utilization * 100, 6)),
        is_gpu_required=not given.no_gpu_required,
        reserves_gpu=not given.no_reserve_gpu,
        reserves_machine=given.reserve,
    )
    machines = tuple(dict.fromkeys(given.machines))
    return BatchFlags(
        given.filename, machines, _copies(given), need, given.verbose, given.dry_run, given.kabuki_commands
    )


def parse_remote(words: Sequence[str], *, needs_machine: bool = True) -> RemoteFlags:
    parser = _Parser(prog="execute_remote", description="Run one command on a machine.")
    parser.add_argument("command", help="one bash command")
    parser.add_argument("--machine", required=needs_machine, default="", metavar="M", help="a machine file or name")
    _add_copies(parser, [])
    parser.add_argument("--job-name", default=RANDOM_NAME, help="the name of its results (default: random)")
    parser.add_argument("--verbose", action="store_true", help="show its output as it comes")
    given = parser.parse_args(list(words))
    written = frozenset(name for name in ("copy_forward", "copy_backwards") if getattr(given, name) is not None)
    if given.job_name != RANDOM_NAME:
        check_name(given.job_name)
    return RemoteFlags(given.command, given.machine, _copies(given), given.job_name, given.verbose, written)


def check_name(name: str) -> None:
    if not name.isprintable() or name in ("", ".", "..") or "/" in name or len(name) > 200:
        raise UserError(f"--job-name: {name!r} cannot name a directory in job_results; leave out `/` and the like")


def _add_copies(parser: ArgumentParser, default: list[str]) -> None:
    # No default here: a line of a batch takes what it does not say from the batch.
    shown = " ".join(default) or "nothing"
    forward, backwards = f"files sent along (default: {shown})", f"files brought back (default: {shown})"
    parser.add_argument("--copy-forward", "--copy-forwards", nargs="*", metavar="P", help=forward)
    parser.add_argument("--copy-backwards", nargs="*", metavar="P", help=backwards)
    parser.set_defaults(default_copies=default)


def _copies(given: Any) -> Copies:
    default = given.default_copies
    forward = default if given.copy_forward is None else given.copy_forward
    backwards = default if given.copy_backwards is None else given.copy_backwards
    return Copies(tuple(forward), tuple(backwards))


def _whole(text: str) -> int:
    number = whole_number(text, digits=9)
    if number is None:
        raise ValueError(text)
    return number


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 100:
        raise ValueError(text)
    return share


_whole.__name__ = "whole number"  # argparse: "invalid whole number value: 'x'"
_share.__name__ = "share"
