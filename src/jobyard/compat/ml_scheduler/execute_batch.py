"""`execute_batch FILE --machines M...`: each line of a file as a command on some machine."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from itertools import cycle

from jobyard.compat.ml_scheduler import entry
from jobyard.compat.ml_scheduler.batch import BatchContext, Line, has_results, read_lines, runs_of, set_aside
from jobyard.compat.ml_scheduler.console import say, tell
from jobyard.compat.ml_scheduler.flags import BatchFlags, Need, parse_batch
from jobyard.compat.ml_scheduler.limits import Free, filled, free_of, resources_of
from jobyard.compat.ml_scheduler.machines import Machine, machines_for_a_run
from jobyard.compat.ml_scheduler.running import run_to_end
from jobyard.compat.ml_scheduler.story import export_prefix, limit_lines, skip_line
from jobyard.console import Session
from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.files import read_text
from jobyard.model.job import State
from jobyard.model.resources import Resources

SLOTS_MOST = 10_000  # a line that needs almost nothing fits very often


def main() -> None:
    entry.main("execute_batch", run)


def run(words: Sequence[str]) -> int:
    """The exit code: 0 when every line that was run succeeded, else 1."""
    flags = parse_batch(words)
    here = os.getcwd()
    lines = read_lines(flags, read_text(flags.filename, SubmitContext(here), "filename"))
    if not lines:
        raise UserError(f"{flags.filename}: no commands in it; write one bash command per line")
    session = Session(None, "table")
    with machines_for_a_run(session, flags.machines) as machines:
        # 1. What fits where?
        choices = choices_of(machines, flags.need, len(lines))
        for text in limit_lines(flags.machines, choices):
            tell(text)
        # 2. What is there already?
        done = [line for line in lines if has_results(here, line)]
        left = [line for line in lines if line not in done]
        for text in [*map(skip_line, done), *(f"skipping {line.text}" for line in done)]:
            tell(text)
        # 3. Run the rest.
        if flags.is_dry_run:
            return _print_commands(flags, left, choices)
        return _run(session, flags, left, machines, here) if left else 0


def choices_of(machines: Sequence[Machine], need: Need, lines: int) -> list[list[int]]:
    """The GPUs for each machine. Two machine files of the same host share its GPUs."""
    takes_nothing = not need.cpus and not need.memory_mib and not need.is_gpu_required
    choices: list[list[int]] = []
    left: dict[tuple[str, int | None], Free] = {}
    for machine in machines:
        chosen: list[int] = []
        if machine.node is not None and machine.is_usable:
            host = (machine.node.host, machine.node.port)
            free = left.get(host) or free_of(machine.node)
            chosen, left[host] = filled(free, need, lines if takes_nothing else SLOTS_MOST)
        choices.append(chosen)
    return choices


def _print_commands(flags: BatchFlags, lines: Sequence[Line], choices: Sequence[Sequence[int]]) -> int:
    slots = [(name, gpu) for name, chosen in zip(flags.machines, choices, strict=True) for gpu in chosen]
    for line, (machine, gpu) in zip(lines, cycle(slots or [(flags.machines[0], 0)]), strict=False):
        prefix = export_prefix([gpu]) if shows_gpus(flags.need) else ""
        words = ["execute_remote", prefix + line.command, "--machine", machine, "--job-name", line.name]
        words += ["--copy-forward", *line.copies.forward, "--copy-backwards", *line.copies.backwards]
        tell(shlex.join(words))
    return 0


def _run(session: Session, flags: BatchFlags, lines: Sequence[Line], machines: Sequence[Machine], here: str) -> int:
    nodes = [machine.node for machine in machines if machine.node is not None]
    resources = resources_of(flags.need, nodes)
    if flags.is_verbose:
        _explain(resources, machines)
    for line in lines:
        set_aside(here, line)
    with tempfile.TemporaryDirectory(prefix="jobyard-") as empty:
        on = ",".join(dict.fromkeys(node.id for node in nodes))
        context = BatchContext(here, empty, entry.user())
        runs = runs_of(flags.filename.replace("/", "_"), lines, resources, on, context)
        jobs = run_to_end(session.client, runs, shows_gpus=shows_gpus(flags.need))
    return 0 if all(job.state is State.SUCCEEDED for job in jobs) else 1


def shows_gpus(need: Need) -> bool:
    """Whether a line is printed with its GPU: not where it has a whole machine."""
    return need.is_gpu_required and not need.reserves_machine


def _explain(resources: Resources, machines: Sequence[Machine]) -> None:
    say(f"each line asks for {resources}")
    for machine in machines:
        if machine.node is not None:
            say(f"{machine.given} is node {machine.node.id}, reached as {machine.node.host or 'this machine'}")


if __name__ == "__main__":
    main()
