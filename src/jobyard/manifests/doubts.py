"""Doubts: what may a job ask for that was hardly meant? Each is a note; nothing is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jobyard.manifests.context import as_notes
from jobyard.model.job import JobSpec

_CONTEXT_MIB = 256  # of a GPU's memory; a process that uses CUDA takes about as much before it has allocated anything


def with_doubts(spec: JobSpec) -> JobSpec:
    """The job with what the submitter should be told of it."""
    found = tuple(_doubts(spec))
    if not found:
        return spec
    said, on_cluster = spec.submitter.notes, spec.submitter.cluster_notes
    notes = as_notes((*said, *found))
    cluster_notes = None if on_cluster is None else as_notes((*on_cluster, *found))
    return replace(spec, submitter=replace(spec.submitter, notes=notes, cluster_notes=cluster_notes))


def _doubts(spec: JobSpec) -> Iterator[str]:
    for mib in sorted({group.resources.gpu_memory_mib for group in spec.groups}):
        if 0 < mib < _CONTEXT_MIB:
            yield f"{mib} MiB of a GPU's memory is very little; a number without a unit is MiB, write {mib}G for GiB"
