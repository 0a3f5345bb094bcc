"""Skipping: which tasks of a job need not run any more, and which job are the others?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from jobyard.errors import NothingLeft, UserError
from jobyard.manifests.doubts import told_of
from jobyard.model.inputs import Inputs
from jobyard.model.job import JobSpec
from jobyard.model.limits import CHOSEN_MOST
from jobyard.model.lines import Lines
from jobyard.model.placeholders import SLOT, Placeholder, Placeholders, values_of


def without_existing(spec: JobSpec, pattern: str, field: str) -> JobSpec:
    """Without the tasks whose file is there; `pattern` names it by placeholders, seen from the working directory."""
    inputs = spec.groups[0].command.inputs
    if inputs is None:
        raise UserError(
            "its tasks have no values to name a file by; give some, as with ::: or --each-line", field=field
        )
    known = Placeholders.of(inputs)
    parts = list(known.found(pattern))
    if unknown := known.unknown(pattern):
        raise UserError(f"there is no {unknown[0]} here; known: {known.told}", field=field)
    holes = [part for part in parts if isinstance(part, Placeholder)]
    if not holes or any(hole.inside[0].name == SLOT for hole in holes):
        raise UserError(f"{pattern!r:.80} names no file of one task; use its values, as in out/{{}}.npz", field=field)

    def is_left(number: int) -> bool:
        row = inputs.row(inputs.number_of(number))
        shown = (part if isinstance(part, str) else " ".join(values_of(part.inside, row).values()) for part in parts)
        return not os.path.exists(os.path.join(spec.workdir, os.path.expanduser("".join(shown))))

    return only(spec, is_left, field, "have their file already")


def only(spec: JobSpec, is_left: Callable[[int], bool], field: str, why: str) -> JobSpec:
    """The job with the tasks that are left, and a note of the others. Raises NothingLeft, and UserError."""
    group = spec.groups[0]
    if len(spec.groups) > 1 or group.name or group.array is not None or (spec.size > 1 and not group.command.is_each):
        raise UserError("its tasks all have the same command; it is for lists, and for values as of :::", field=field)
    left = [number for number in range(spec.size) if is_left(number)]
    if len(left) == spec.size:
        return spec
    told = f"{field}: {spec.size - len(left)} of {spec.size} tasks {why}, and are left out"
    if not left:
        raise NothingLeft(f"{field}: all {spec.size} tasks {why}; nothing was submitted")
    command = group.command
    if command.lines is not None:
        command = replace(command, lines=Lines.of(command.lines[number] for number in left))
    else:
        assert command.inputs is not None
        command = replace(command, inputs=_chosen(command.inputs, left, field))
    return told_of(replace(spec, groups=(replace(group, command=command, completions=len(left)),)), told)


def _chosen(inputs: Inputs, left: list[int], field: str) -> Inputs:
    chosen = tuple(_ranges(inputs.number_of(number) for number in left))
    if len(chosen) > CHOSEN_MOST:
        raise UserError(f"{len(chosen):,} ranges of tasks are left; at most {CHOSEN_MOST:,} are possible", field=field)
    return replace(inputs, chosen=chosen)


def _ranges(numbers: Iterator[int]) -> Iterator[tuple[int, int]]:
    first = last = next(numbers)
    for number in numbers:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
