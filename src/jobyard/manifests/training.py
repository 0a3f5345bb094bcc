"""Training notation: how are a job's possible sizes (elastic ranges) and its epochs written down?"""

from __future__ import annotations

import os
import re
from dataclasses import replace

from jobyard.errors import UserError
from jobyard.model.gpu_kinds import KIND_PATTERN, parse_gpu_kind
from jobyard.model.job import JobSpec
from jobyard.model.limits import Number
from jobyard.model.training import ALL, Elastic, Training

Span = tuple[int, int]  # both ends included; a plain number is a span of one

SPAN_PATTERN = r"^\s*[0-9]{1,18}\s*(\.\.\s*([0-9]{1,18})?)?\s*$"
GPUS_PATTERN = rf"^(\s*{KIND_PATTERN}:)?{SPAN_PATTERN.removeprefix('^')}"
_SPAN = re.compile(r"\s*(-?[0-9]{1,18})\s*(?:(\.\.)\s*(-?[0-9]{1,18})?)?\s*")


def parse_span(text: str | int, field: str, size: Number) -> Span:
    """`2`, `1..8`, or `1..` for as many as there are; `size` says what the number, or the smallest, may be.

    A range begins at 1: a job cannot have size 0.
    """
    match = _SPAN.fullmatch(str(text))
    if not match:
        raise UserError(
            f"cannot read {text!r} as a number or a range; write 2, 1..8, or 1.. (as many as there are)", field=field
        )
    low, is_range = int(match[1]), bool(match[2])
    if not size.least <= low <= size.most:
        raise UserError(
            f"{low} is out of range; write a whole number from {size.least} to {size.most}, or a range such as 1..8",
            field=field,
        )
    if not is_range:
        return low, low
    high = min(ALL, int(match[3])) if match[3] else ALL
    if high < low:
        raise UserError(f"{text!r} runs backwards; write {high}..{low}", field=field)
    if low < 1:
        raise UserError(f"{text!r} begins with none; the smallest size is at least one: write 1..{high}", field=field)
    return low, high


def parse_gpus(text: str | int, field: str, size: Number) -> tuple[int, int, str]:
    """A span, and of which kind: `2` and `1..8` of any, `h100:2` and `h100:1..8` of one."""
    kind, colon, number = str(text).rpartition(":")
    if not colon:
        return (*parse_span(text, field, size), "")
    low, high = parse_span(number, field, size)
    return low, high, parse_gpu_kind(kind, field) if low else ""


def show_span(span: Span) -> str:
    low, high = span
    return str(low) if low == high else f"{low}.." if high >= ALL else f"{low}..{high}"


def with_gpus(spec: JobSpec, gpus: Span) -> JobSpec:
    """The job may have so many GPUs in each task. The amounts themselves are set already, to the smallest."""
    return _with_range(spec, "gpus", gpus)


def with_workers(spec: JobSpec, workers: Span) -> JobSpec:
    """The job as a gang of so many workers, the fewest to begin with."""
    groups = (replace(spec.groups[0], count=workers[0]), *spec.groups[1:])
    return _with_range(replace(spec, groups=groups, gang=True), "workers", workers)


def _with_range(spec: JobSpec, name: str, span: Span) -> JobSpec:
    known = spec.elastic or Elastic()
    changed = replace(known, **{name: span if span[0] < span[1] else None})
    elastic = None if changed == Elastic() else changed
    # A job that can change its size reports and can be preempted, so it is a training job.
    return replace(spec, elastic=elastic, training=spec.training or (Training() if elastic else None))


def size_problem(spec: JobSpec) -> tuple[str, str] | None:
    """What contradicts the sizes of an elastic job: `gpus` or `workers`, and a sentence with the way out."""
    if spec.elastic is None:
        return None
    name, span = ("gpus", spec.elastic.gpus) if spec.elastic.gpus else ("workers", spec.elastic.workers)
    assert span is not None
    shown, group = show_span(span), spec.groups[0]
    if len(spec.groups) > 1:
        names = ", ".join(group.name for group in spec.groups)
        return name, f"{shown} needs a job with one kind of worker; this one has {names}: give a plain number"
    if group.completions > 1 or group.array is not None:
        sentence = f"{shown} is for one training, and this job has {group.size} tasks; give a plain number,"
        return name, f"{sentence} or submit a job for each"
    if group.count > 1 and not spec.gang:
        return name, f"{shown} with {group.count} tasks needs them to start together; say gang: true, or use workers"
    if group.resources.whole_node and spec.elastic.gpus:
        return name, f"{shown} on a whole node, which has all its GPUs anyway; leave one of the two out"
    return None


def workers_problem(spec: JobSpec) -> str:
    """What contradicts `workers`, in a sentence with the way out; empty: nothing."""
    group = spec.groups[0]
    if len(spec.groups) > 1:
        return "the job has groups, whose count says how many; leave it out"
    if group.array is not None or group.completions > 1 or group.command.is_each:
        return "the job's tasks come from an array or from lines already; leave one of the two out"
    if spec.policy.limit is not None:
        return "the workers start together, and limit would not let them; leave one of the two out"
    return ""


def parse_log_dir(text: str, field: str) -> str:
    """A directory that may not exist yet; a relative one is below the working directory, wherever the job runs."""
    if not text.strip() or "\0" in text:
        raise UserError(f"{text!r} is not a directory; write where the job puts what TensorBoard reads", field=field)
    return os.path.expanduser(text)
