"""Dry run: what would submitting do? The same checks and the same scheduler, and no job is stored."""

from __future__ import annotations

import time

from jobyard.engine.job_record import JobRecord
from jobyard.engine.yard_state import YardState
from jobyard.executors.protocol import SubmittedJob
from jobyard.executors.registry import preview_by
from jobyard.model.effects import Launch
from jobyard.model.job import JobSpec
from jobyard.model.resources import Placement
from jobyard.model.task import AttemptId, Slot
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.line import line_of
from jobyard.scheduling.snapshot import Opening, Snapshot
from jobyard.server.clusters import KUBERNETES, cluster_named, for_cluster
from jobyard.server.commands import checked_spec, checked_words
from jobyard.server.gpu_products import with_products
from jobyard.server.loop import YardLoop
from jobyard.server.views import awaited_jobs, job_view
from jobyard.wire.requests import SubmitJob
from jobyard.wire.views import PlanView

NO_ID = "00000000"


def dry_run(loop: YardLoop, request: SubmitJob) -> PlanView:
    state = loop.state
    if request.render and (cluster := cluster_named(state, request.spec.on)):
        return _as_objects(loop, request, cluster)
    job = JobRecord(NO_ID, state.last_number + 1, checked_spec(state, request.spec), time.time())
    snapshot = loop.planner.snapshot(time.time())
    asked = loop.planner.wants.request_of(job)
    requests = line_of(snapshot.requests).plus(asked) if asked else snapshot.requests
    decided = plan(Snapshot(snapshot.nodes, snapshot.held, requests, quotas=snapshot.quotas))
    openings = [opening for opening in decided.openings if opening.job == NO_ID]
    sentences = [_sentence(job, opening, index) for index, opening in enumerate(openings[:20])]
    if awaited := awaited_jobs(state, job):
        sentences.append(f"it {awaited}")
    elif wait := decided.waits.get(NO_ID):
        rest = "the rest waits" if openings else "it waits"
        sentences.append(f"{rest} ({wait.reason}): {wait.sentence}")
    rendered = ""
    if request.render:
        if not openings and asked is not None:  # what is sent does not depend on other jobs
            openings = list(plan(Snapshot(snapshot.nodes, (), (asked,))).openings)
        rendered = _rendered(loop, job, openings) or "".join(f"# {sentence}\n" for sentence in sentences)
    return PlanView(job_view(loop.planner, job), tuple(sentences), rendered)


def needs_no_cluster(state: YardState, spec: JobSpec) -> bool:
    """Whether its objects can be shown before the yard knows any cluster."""
    cluster = cluster_named(state, spec.on)
    return bool(cluster) and cluster not in state.places.clusters


def _as_objects(loop: YardLoop, request: SubmitJob, cluster: str) -> PlanView:
    """The objects that the cluster would be sent; nothing is placed, and the cluster need not be known yet."""
    state = loop.state
    if needs_no_cluster(state, request.spec):
        spec = with_products(state, checked_words(state, for_cluster(request.spec, cluster)))
    else:
        spec = checked_spec(state, request.spec)
    job = JobRecord(NO_ID, state.last_number + 1, spec, time.time())
    submitted = SubmittedJob(job.id, job.number, job.spec)
    if executor := loop.executor_of(cluster):
        slot = Slot("1", job.id, 0, Placement(cluster, spec.groups[0].resources))
        rendered = executor.preview(submitted, Launch(cluster, slot, (AttemptId(job.id, 0, 1),)))
    else:
        rendered = preview_by(KUBERNETES)(submitted)
    return PlanView(job_view(loop.planner, job), (), rendered)


def _sentence(job: JobRecord, opening: Opening, index: int) -> str:
    devices = ", ".join(f"GPU {piece.index}" for piece in opening.placement.devices)
    group = job.spec.groups[opening.group].name
    of_group = f" of group {group}" if group else ""
    where = f"{opening.placement.node}{f' on {devices}' if devices else ''}"
    return f"slot {index + 1}{of_group}: {where}, {opening.placement.resources}"


def _rendered(loop: YardLoop, job: JobRecord, openings: list[Opening]) -> str:
    """The messages for the first task, as the executor would send them."""
    if not openings:
        return ""
    first = openings[0]
    executor = loop.executor_of(first.placement.node)
    if executor is None:
        return ""
    number, _ = job.numbers_of(first.group, first.replica)
    slot = Slot("1", job.id, first.group, first.placement, first.replica)
    launch = Launch(first.placement.node, slot, (AttemptId(job.id, number, 1),))
    return executor.preview(SubmittedJob(job.id, job.number, job.spec), launch)
