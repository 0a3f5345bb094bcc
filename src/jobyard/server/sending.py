"""Sending code: what is sent with a job to machines that do not share our disk? A frozen copy of its directory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from jobyard.engine.yard_state import YardState
from jobyard.model.job import JobSpec
from jobyard.scheduling.explain import may_match
from jobyard.server.clusters import cluster_named
from jobyard.staging.tree import scan
from jobyard.staging.tree_snapshot import snapshot, store_of

RESULTS = "job_results"


def may_travel(state: YardState, spec: JobSpec) -> bool:
    """Whether a task of it could be placed on a machine that has a disk of its own."""
    if spec.staging.no_copy or cluster_named(state, spec.on):
        return False
    return any(may_match(config, spec.on) for config in state.places.configs.values())


def check_tree(spec: JobSpec, yard: Path) -> JobSpec:
    """The spec with what is to be told of its tree; nothing is read or kept.

    Raises UserError as `with_its_tree` does, as far as names and sizes tell.
    """
    tree = scan(spec.workdir, spec.staging.copy_forward, leave_out=[yard, store_of(yard)])
    return spec.with_notes(*tree.notes)


def with_its_tree(spec: JobSpec, yard: Path) -> JobSpec:
    """The spec with its working directory frozen in the yard. Reads the whole tree: call it in a thread."""
    frozen = snapshot(spec.workdir, yard, spec.staging.copy_forward)
    staging = replace(
        spec.staging,
        snapshot=frozen.hash,
        results_dir=spec.staging.results_dir or os.path.join(spec.workdir, RESULTS),
    )
    return replace(spec, staging=staging).with_notes(*frozen.notes)
