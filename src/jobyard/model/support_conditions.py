"""Support conditions: for which of the jobs that ask for a field does a cell of the tables count?"""

from __future__ import annotations

from collections.abc import Callable, Collection

from jobyard.model.job import GroupSpec, JobSpec
from jobyard.model.policy import FailurePolicy
from jobyard.model.support import Asked


def in_any_group(asks: Callable[[GroupSpec], bool]) -> Callable[[Asked], bool]:
    return lambda asked: any(asks(group) for group in asked.spec.groups)


def is_no_aichor(asked: Asked) -> bool:
    """An AIchorManifest is for clusters, and says by itself what of it has no effect on machines."""
    return asked.spec.submitter.source != "aichor"


def image_is_not_told(asked: Asked) -> bool:
    return not any(note.startswith(f"image {asked.spec.container.image!r}") for note in asked.spec.submitter.notes)


def sets_any_of(names: Collection[str]) -> Callable[[Asked], bool]:
    return lambda asked: any(name in names for env in _environments(asked.spec) for name in env)


def _environments(spec: JobSpec) -> list[Collection[str]]:
    return [spec.env, *(group.env for group in spec.groups)]


def has_breaks(asked: Asked) -> bool:
    tables = [group.command.inputs for group in asked.spec.groups if group.command.inputs is not None]
    return any(column.values.has_breaks for inputs in tables for column in inputs.columns)


def continues(asked: Asked) -> bool:
    return asked.spec.policy.on_failure is FailurePolicy.CONTINUE


def allows_fails(asked: Asked) -> bool:
    return bool(asked.spec.policy.max_fails)


def kubernetes_retries(asked: Asked) -> bool:
    return asked.spec.policy.retries > 0 and not asked.spec.is_one_attempt


def limits_a_jobset(asked: Asked) -> bool:
    """Are there more tasks at once than the limit allows? A JobSet does not count over its Jobs."""
    at_once = sum(
        group.count * min(group.completions, group.parallelism or group.completions) for group in asked.spec.groups
    )
    return asked.spec.policy.limit is not None and asked.spec.policy.limit < at_once


def is_elsewhere(spec: JobSpec) -> bool:
    """Does it name another directory than that of submission? Unknown: no."""
    return bool(spec.submitter.directory) and spec.workdir != spec.submitter.directory
