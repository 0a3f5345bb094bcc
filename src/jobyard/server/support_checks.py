"""Support checks: is what a job asks for refused where it may run, or done otherwise? Its submitter is told."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from jobyard.engine.yard_state import YardState
from jobyard.model.executor_kinds import PLAIN, ExecutorKind
from jobyard.model.field_support import FIELDS
from jobyard.model.job import JobSpec
from jobyard.model.node import cluster_of
from jobyard.model.support import Asked, judged
from jobyard.scheduling.explain import may_match
from jobyard.scheduling.where import matches


def with_support(spec: JobSpec, kinds: Collection[ExecutorKind], *, has_queue: bool = False) -> JobSpec:
    """The spec with notes of what is not done as it asks. Raises UserError with one sentence for what is refused."""
    notes = spec.submitter.notes
    fresh = [note for note in judged(FIELDS, Asked(spec, has_queue), kinds) if note not in notes]
    if not fresh:
        return spec
    return replace(spec, submitter=replace(spec.submitter, notes=(*notes, *fresh)))


def kinds_on_machines(state: YardState, spec: JobSpec) -> Collection[ExecutorKind]:
    """Those that the machines have which `on` means: this one, others, or both where none of them is known."""
    if spec.container.on_machines:
        return {ExecutorKind.CONTAINER}
    places = state.places
    meant = [node.id for node in places.nodes.values() if not cluster_of(node.id) and matches(node, spec.on)]
    meant += [name for name, config in places.configs.items() if may_match(config, spec.on)]
    return {ExecutorKind.SSH if name in places.configs else ExecutorKind.LOCAL for name in meant} or set(PLAIN)
