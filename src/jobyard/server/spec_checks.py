"""Spec checks (validation): does a job make sense by itself? Fields against each other; `model.checks` looks at each.

Asked of a request while it is read, in a thread where it is large: a hundred million lines take a while.
"""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from collections.abc import Mapping

from jobyard.engine.task_table import REMEMBER_ALL_UP_TO
from jobyard.errors import UserError
from jobyard.model import substitution
from jobyard.model.environment import YARD_NAMES
from jobyard.model.executor_kinds import OPERATORS, ExecutorKind
from jobyard.model.gpu_kinds import parse_gpu_kind
from jobyard.model.input_checks import check_inputs
from jobyard.model.job import ArrayRange, GroupSpec, JobSpec
from jobyard.model.limits import AFTER_MOST, GANG_MOST, OBJECT_MOST, STDIN_BYTES_MOST, TASKS_MOST, WORD_BYTES_MOST
from jobyard.model.lines import Lines
from jobyard.model.output_pattern import check_apart, check_pattern, names_node
from jobyard.model.progressions import TooManyRanges, first_duplicate
from jobyard.model.selectors import other_meaning
from jobyard.model.training import Elastic
from jobyard.wire.requests import SubmitJob

OBJECT_FIELDS = {"apiVersion": str, "kind": str, "metadata": dict, "spec": dict}


def check_submit(request: SubmitJob) -> None:
    if request.render and not request.dry_run:
        raise UserError("it shows what would be sent, and nothing is submitted; say dry_run as well", field="render")
    if request.key and request.dry_run:
        raise UserError("a dry run makes no job, so a key has no effect; leave it out", field="key")
    check_spec(request.spec)


def check_spec(spec: JobSpec) -> None:
    """Raises UserError with one sentence where it can never be right, on whatever nodes."""
    _check_yards_own(spec)
    _check_effects(spec)
    if meaning := other_meaning(spec.name):
        raise UserError(f"{spec.name!r} {meaning}; choose another name", field="name")
    names = Counter(group.name for group in spec.groups)
    if twice := [name for name, count in names.items() if count > 1]:
        raise UserError(f"job {spec.name!r} has several groups with the name {twice[0]!r}; give each its own")
    for group in spec.groups:
        named = f"group {group.name!r}" if group.name else f"job {spec.name!r}"
        _check_command(group, named)
        if group.command.script is not None and group.command.script != spec.groups[0].command.script:
            raise UserError(f"{named}: another script than the first group's; a job has one script")
        if group.array is not None:
            _check_array(group, group.array, named)
        _check_amounts(group, named, is_gang=spec.gang and not _has_operator(spec))
        _check_reserved(group.env, named)
    _check_reserved(spec.env, f"job {spec.name!r}")
    if (count := len(set(spec.after))) > AFTER_MOST:
        way_out = f"at most {AFTER_MOST} are possible, wait for those that end last"
        raise UserError(f"job {spec.name!r} comes after {count} jobs; {way_out}")
    _check_size(spec)
    _check_elastic(spec)
    staging = spec.staging
    for path in (*staging.copy_forward, *staging.copy_back, *([staging.subdir] if staging.subdir else [])):
        _check_inside(path)
    if staging.stdin is not None:
        _check_stdin(staging.stdin)
    for name, pattern in (("output", staging.output), ("error", staging.error)):
        if pattern:
            check_pattern(pattern, name, spec.size)
            if names_node(pattern) and spec.size > REMEMBER_ALL_UP_TO:
                raise UserError(
                    f"%N, the node, is only kept for jobs of up to {REMEMBER_ALL_UP_TO} tasks; leave it out", field=name
                )
            if not os.path.isabs(pattern):
                raise UserError(
                    f"{pattern!r:.80} is no absolute path; the yard does not know where you are", field=name
                )
    check_apart(spec, "error")
    if spec.kubernetes.manifest:
        _check_manifest(spec.kubernetes.manifest)


def _check_yards_own(spec: JobSpec) -> None:
    said = {
        "cluster": spec.cluster,
        "submitter.submitted_with": spec.submitter.submitted_with,
        "submitter.environment": spec.submitter.environment,
        "staging.snapshot": spec.staging.snapshot,
    }
    if found := [name for name, value in said.items() if value]:
        raise UserError("the yard sets it by itself; leave it out", field=found[0])


def _check_effects(spec: JobSpec) -> None:
    """Whoever asks for what would have no effect is told, and need not find out."""
    if spec.on and not all(name.strip() for name in spec.on.split(",")):
        raise UserError(
            f"a name is missing in {spec.on!r:.80}; write nodes, labels or executors, as in gpu1,gpu2", field="on"
        )
    _check_effects_of_gang(spec)
    staging = spec.staging
    for name in ("copy_forward", "copy_back", "results_dir"):
        if staging.no_copy and getattr(staging, name):
            raise UserError(f"staging.{name}: with no_copy nothing is copied; leave one of the two out")
    if "" in (*staging.copy_forward, *staging.copy_back):
        raise UserError("an empty path names nothing; write . for all of the working directory", field="staging")


def _has_operator(spec: JobSpec) -> bool:
    """Nobody says that such a kind is a gang: what a gang cannot do, `field_support` refuses by the kind's name."""
    return spec.kubernetes.kind in OPERATORS and not spec.kubernetes.manifest


def _check_effects_of_gang(spec: JobSpec) -> None:
    if not spec.gang or _has_operator(spec):
        return
    if spec.policy.limit is not None:
        raise UserError("a gang starts all its tasks together; leave limit or gang out", field="policy.limit")
    if spec.policy.start_delay_seconds:
        raise UserError(
            "a gang starts all its tasks together; leave delay or gang out", field="policy.start_delay_seconds"
        )
    if spec.policy.enough_successes is not None:
        raise UserError("the tasks of a gang end together; leave it or gang out", field="policy.enough_successes")


def _check_amounts(group: GroupSpec, named: str, *, is_gang: bool) -> None:
    asked = group.resources
    of_gpus = {
        "resources.gpu_memory_mib": asked.gpu_memory_mib,
        "resources.gpu_percent": asked.gpu_percent,
        "resources.least_device_mib": asked.least_device_mib,
        "least_device_mib": group.least_device_mib,
        "resources.gpu_kind": asked.gpu_kind,
    }
    if not asked.gpus and (found := [name for name, amount in of_gpus.items() if amount]):
        raise UserError(f"{named}: {found[0]} of no GPU; leave it out or ask for a GPU")
    if asked.gpu_kind:
        parse_gpu_kind(asked.gpu_kind, "resources.gpu_kind")
    if asked.memory_limit and not asked.memory_mib:
        raise UserError(f"{named}: resources.memory_limit: there is no amount that could be a limit; say memory_mib")
    if is_gang and group.parallelism is not None and group.parallelism < group.completions:
        raise UserError(f"{named}: parallelism: a gang starts all its tasks together; leave it or gang out")


def _check_command(group: GroupSpec, named: str) -> None:
    command = group.command
    said = [name for name in ("argv", "shell", "lines", "script") if getattr(command, name)]
    if command.argv and command.script is None and not command.argv[0].strip():
        raise UserError(f"{named}: the program's name is empty; write the program first")
    if command.shell and not command.shell.strip():
        raise UserError(f"{named}: the command is empty; write what to run")
    if command.script is not None:
        said = [name for name in said if name != "argv"]  # its arguments
        if not command.script.interpreter:
            raise UserError(f"{named}: the first line of {command.script.name!r} names no interpreter")
    if len(said) > 1:
        raise UserError(f"{named}: {' and '.join(said)} are two commands; give one of them")
    if command.lines is not None:
        _check_lines(command.lines, group.size, named)
    if command.inputs is not None:
        if command.lines is not None:
            raise UserError(f"{named}: inputs beside lines; give one of them")
        check_inputs(command.inputs, f"{named}: inputs")
        if len(command.inputs) != group.size:
            raise UserError(f"{named}: {len(command.inputs)} rows of inputs for {group.size} tasks")
    if not said:
        raise UserError(f"{named}: there is no command")
    substitution.check(command)


def _check_lines(lines: Lines, tasks: int, named: str) -> None:
    if len(lines) != tasks:
        raise UserError(f"{named}: {len(lines)} lines for {tasks} tasks")
    if not lines.text.endswith("\n"):
        raise UserError(f"{named}: the last of its lines has no newline at its end")
    if found := lines.longer_than(WORD_BYTES_MOST):
        raise UserError(f"{named}: a line has {found} characters; at most {WORD_BYTES_MOST} are possible")


def _check_array(group: GroupSpec, array: ArrayRange, named: str) -> None:
    ranges = []
    for first, last, step in array.pieces:
        if step < 1 or not 0 <= first <= last:
            raise UserError(f"{named}: array ids {first} to {last} by {step}; ids go up from 0 or more by 1 or more")
        ranges.append(range(first, last + 1, step))
    if not ranges:
        raise UserError(f"{named}: its array has no ids; give one at least")
    count = sum(map(len, ranges))
    if group.count != 1 or count != group.completions:
        raise UserError(f"{named}: {count} array ids for {group.count} x {group.completions} tasks; each task has one")
    try:
        if (twice := first_duplicate(ranges)) is not None:
            raise UserError(f"{named}: array id {twice} stands twice; each id may stand once")
    except TooManyRanges:
        raise UserError(f"{named}: the pieces of its array overlap too often; write them one after another") from None


def _check_reserved(env: Mapping[str, str], named: str) -> None:
    """With them a task could report as another one."""
    if found := sorted(YARD_NAMES.intersection(env)):
        raise UserError(f"{named}: variable {found[0]} is set by the yard itself; choose another name")


def _check_size(spec: JobSpec) -> None:
    if not spec.groups or spec.size == 0:
        raise UserError(f"job {spec.name!r} has no tasks; give it at least one")
    if spec.size > TASKS_MOST:
        raise UserError(f"job {spec.name!r} has {spec.size} tasks; at most {TASKS_MOST} are possible, split it")
    if spec.gang and spec.size > GANG_MOST:
        raise UserError(f"job {spec.name!r} is a gang of {spec.size} tasks; at most {GANG_MOST} can start together")


def _check_stdin(text: str) -> None:
    try:
        size = len(base64.b64decode(text, validate=True))
    except ValueError:
        raise UserError("it is no base64; encode the bytes that each task shall read", field="stdin") from None
    if size > STDIN_BYTES_MOST:
        raise UserError(
            f"it has {size} bytes; at most {STDIN_BYTES_MOST} are possible, let tasks read a file", field="stdin"
        )


def check_together(spec: JobSpec) -> None:
    """Asked once it is known whether the job goes to a cluster."""
    if spec.starts_together and spec.size > OBJECT_MOST:
        raise UserError(
            f"job {spec.name!r} is one object of {spec.size} tasks; at most {OBJECT_MOST} start together, split it"
        )


def _check_elastic(spec: JobSpec) -> None:
    if spec.elastic is None:
        return
    if _has_operator(spec) and spec.kubernetes.kind == ExecutorKind.RAYJOB and spec.elastic != Elastic():
        return  # it has two groups, and `field_support` says how its size is changed
    group, now = spec.groups[0], spec.training_size
    is_many = group.completions > 1 or group.array or group.command.is_each
    if len(spec.groups) > 1 or is_many or (group.count > 1 and not spec.gang):
        raise UserError(f"job {spec.name!r}: only one training, of one group and started together, can change its size")
    for name, span, size in (("gpus", spec.elastic.gpus, now.gpus), ("workers", spec.elastic.workers, now.workers)):
        if span is not None and not span[0] <= size <= span[1]:
            raise UserError(f"job {spec.name!r}: {size} {name} is not in its range of {span[0]} to {span[1]}")


def _check_inside(path: str) -> None:
    if os.path.isabs(path) or os.path.normpath(path).split("/")[0] == "..":
        raise UserError(f"path {path!r} is not inside the working directory; name one below it")


def _check_manifest(text: str) -> None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    wrong = [
        name for name, kind in OBJECT_FIELDS.items() if not isinstance(found, dict) or type(found.get(name)) is not kind
    ]
    if wrong:
        raise UserError(f"{', '.join(wrong)} missing or odd; give a Kubernetes object as JSON", field="manifest")
