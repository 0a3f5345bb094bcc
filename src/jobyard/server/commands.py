"""Commands: which events does a request become? Each checks a request against the state and answers with events."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobyard.engine.queries import member_of, members_together, why_never
from jobyard.engine.yard_state import YardState, own_key
from jobyard.errors import KeyInUse, NotFound, UserError
from jobyard.model.codec import encode
from jobyard.model.events import (
    CancelRequested,
    Event,
    JobAnnotated,
    JobSubmitted,
    NodeAdded,
    NodeDrained,
    NodeRemoved,
    NodeResumed,
    PriorityChanged,
    RetryRequested,
)
from jobyard.model.job import Dependency, JobSpec, State
from jobyard.model.limits import ANNOTATIONS_MOST
from jobyard.model.node import Foreign, NodeConfig, NodeState
from jobyard.model.submitter import Submitter
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.explain import may_match
from jobyard.scheduling.snapshot import Request, Snapshot
from jobyard.scheduling.where import is_owners_alone
from jobyard.server.clusters import nodes_of, with_cluster
from jobyard.server.containers import check_runtime
from jobyard.server.finding import find_job, find_live_job
from jobyard.server.from_token import check_machines
from jobyard.server.gpu_products import with_products
from jobyard.server.rounds import Command
from jobyard.server.spec_checks import check_together
from jobyard.server.task_choice import chosen_tasks, refuse_unended
from jobyard.wire.requests import CancelJob, CancelJobs, RetryJob, SubmitJob

COMPAT_SOURCES = frozenset({"ml-scheduler", "kubeprofiler"})


def checked_spec(state: YardState, spec: JobSpec) -> JobSpec:
    """The spec with its dependencies resolved. Raises UserError with one sentence where it can never be right."""
    spec = with_products(state, checked_words(state, with_cluster(state, spec)))
    if not spec.cluster:
        check_machines(state, spec)
    check_runtime(state, spec)
    members = [member_of(spec, i) for i, group in enumerate(spec.groups) if group.size]
    if why := why_never(state, members, spec.on, spec.policy.overcommit, spec.cluster):
        other = "cluster" if spec.cluster else "node"
        # Other commands than ours have flags of their own.
        flag = " with --on" if spec.submitter.source not in COMPAT_SOURCES else ""
        raise UserError(f"job {spec.name!r} can never run: {why}; ask for less, or for another {other}{flag}")
    if spec.gang or (spec.cluster and spec.starts_together and spec.elastic is None):
        check_gang(state, spec)
    return spec


def checked_words(state: YardState, spec: JobSpec) -> JobSpec:
    """As `checked_spec`, without looking at nodes. Checks that need no state are in `spec_checks`."""
    check_together(spec)
    if not spec.cluster:  # its pods begin where their image says
        _check_workdir(spec.workdir, is_here=not spec.submitter.submitted_with)
    after = dict.fromkeys(_resolve(state, dependency) for dependency in dict.fromkeys(spec.after))
    return replace(spec, after=tuple(after))


def _check_workdir(workdir: str, *, is_here: bool) -> None:
    if not workdir or not os.path.isabs(workdir):
        raise UserError(f"workdir {workdir!r}: give an absolute directory")
    if not is_here:
        return  # a token does not give access to the server's files
    if not os.path.isdir(workdir):
        raise UserError(f"workdir {workdir}: there is no such directory")
    if not os.access(workdir, os.R_OK | os.X_OK):
        raise UserError(f"workdir {workdir}: not readable for the yard; choose another with --workdir")


def check_gang(state: YardState, spec: JobSpec) -> None:
    """All of a gang must fit at once on empty nodes."""
    members = members_together(spec)
    nodes = state.places.nodes.values()
    empty = tuple(
        replace(node, foreign=Foreign(), state=NodeState.UP, taints=(), owner_only=is_owners_alone(node))
        for node in nodes
    )
    request = Request("gang", 0, 0, members, True, spec.on, spec.policy.overcommit, cluster=spec.cluster)
    if _is_awaited(state, spec):
        return  # its resources are not known yet
    if not plan(Snapshot(empty, (), (request,))).openings:
        raise UserError(f"job {spec.name!r} can never run: its {spec.size} tasks start together and do not fit at once")


def _is_awaited(state: YardState, spec: JobSpec) -> bool:
    if spec.cluster:
        return not nodes_of(state, spec.cluster)
    return any(may_match(config, spec.on) for config in state.places.unreached)


def _resolve(state: YardState, dependency: Dependency) -> Dependency:
    try:
        needed = find_job(state, dependency.job)
    except NotFound:
        raise UserError(f"there is no job {dependency.job}; `yard ls -a` lists them", field="--after") from None
    if dependency.needs_success and needed.is_final and needed.state is not State.SUCCEEDED:
        raise UserError(
            f"job {needed.number} {needed.state.told}, so this one would never start; "
            f"`yard retry {needed.number}` first, or wait for its end alone with afterany:{dependency.job}",
            field="--after",
        )
    return replace(dependency, job=needed.id)


def digest_of(spec: JobSpec) -> str:
    """Of what is asked for: the same for everybody, and from whatever shell. A large job takes a while."""
    asked = encode(replace(spec, submitter=Submitter()))
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def made_before(state: YardState, request: SubmitJob, asked: str) -> str:
    """The job that its caller's key has made; empty where it has made none.

    `asked` is the digest of what the caller sent. Raises KeyInUse where the key has made another job.
    """
    known = state.keys.get(own_key(request.spec.submitter, request.key)) if request.key else None
    if known and state.asked.get(known, asked) != asked:
        number = state.jobs[known].number
        raise KeyInUse(f"key {request.key!r:.80} has made job {number} of another spec; choose another key")
    return known or ""


def submit(request: SubmitJob, asked: str = "") -> Command[str]:
    """Answers with the new job's id, or with that of the job that was `made_before`."""

    def command(state: YardState, now: float) -> tuple[list[JobSubmitted], str]:
        if known := made_before(state, request, asked):
            return [], known
        spec = checked_spec(state, request.spec)
        job_id = secrets.token_hex(4)
        while job_id in state.jobs or job_id.isdigit():  # an id of digits only would read like a number
            job_id = secrets.token_hex(4)
        return [JobSubmitted(job_id, state.last_number + 1, spec, now, request.key, asked)], job_id

    return command


def cancel(selector: str, request: CancelJob, by: str = "") -> Command[str]:
    def command(state: YardState, now: float) -> tuple[list[CancelRequested], str]:
        job = find_live_job(state, selector)
        ranges = chosen_tasks(job, request)
        if job.is_final:
            return [], job.id  # cancelling twice is not an error
        if ranges and job.spec.gang:
            raise UserError(f"job {job.number} is a gang: its tasks stop together; cancel the whole job")
        cancelled = f"cancelled by {by or 'the user'}"
        message = f"{cancelled}: {request.message}" if request.message else cancelled
        return [CancelRequested(job.id, now, (), request.force, message, by, ranges)], job.id

    return command


def cancel_many(request: CancelJobs, by: str = "") -> Command[list[str]]:
    """In one round, so that the scheduler plans once. Raises where one is not known: then none is stopped."""
    asked = CancelJob(force=request.force, message=request.message, states=request.states)

    def command(state: YardState, now: float) -> tuple[list[Event], list[str]]:
        found = [cancel(selector, asked, by)(state, now) for selector in dict.fromkeys(request.jobs)]
        return [event for events, _ in found for event in events], list(dict.fromkeys(job for _, job in found))

    return command


def retry(selector: str, request: RetryJob, by: str = "") -> Command[str]:
    def command(state: YardState, now: float) -> tuple[list[RetryRequested], str]:
        job = find_job(state, selector)
        if job.stop is not None and not job.is_final:
            raise UserError(f"job {job.number} is stopping; wait for it (`yard wait {job.number}`), then retry")
        ranges: Sequence[tuple[int, int]]
        if request.tasks or request.states:
            ranges = chosen_tasks(job, request)
            refuse_unended(job, ranges)
        else:
            delayed = [(number, number) for number in job.tasks.delayed]
            ranges = job.tasks.numbers_in(State.FAILED) + job.tasks.numbers_in(State.CANCELLED) + delayed
        if not ranges:
            raise UserError(f"job {job.number} has no failed or cancelled task to retry; name one with --task")
        if job.spec.gang and not (job.is_final or len(job.tasks.delayed)):
            raise UserError(f"job {job.number} is a gang and {job.state.told}; retry it when it has ended")
        if job.spec.gang and (request.tasks or request.states):
            raise UserError(f"job {job.number} is a gang: its tasks run together; retry the whole job")
        if job.spec.gang:
            ranges = [(0, job.spec.size - 1)]
        return [RetryRequested(job.id, tuple(sorted(ranges)), now, by)], job.id

    return command


def change_priority(selector: str, priority: int, by: str = "") -> Command[str]:
    def command(state: YardState, now: float) -> tuple[list[PriorityChanged], str]:
        job = find_live_job(state, selector)
        return [PriorityChanged(job.id, priority, now, by)], job.id

    return command


def annotate(selector: str, annotations: Mapping[str, str | None], by: str = "") -> Command[str]:
    """Also for a job that has ended. Unchanged annotations are not journalled again."""

    def command(state: YardState, now: float) -> tuple[list[JobAnnotated], str]:
        job = find_job(state, selector)
        new = {name: value for name, value in annotations.items() if job.annotations.get(name) != value}
        taken = sum(value is None for value in new.values())
        total = len({*job.annotations, *new}) - taken
        if total > ANNOTATIONS_MOST:
            most = f"at most {ANNOTATIONS_MOST} are possible"
            raise UserError(f"job {job.number} would have {total} annotations; {most}, null takes one away")
        return [JobAnnotated(job.id, new, now, by)] if new else [], job.id

    return command


def known_node(state: YardState, node: str) -> None:
    known = {*state.places.nodes, *state.places.configs, *state.places.clusters}
    if node not in known:
        raise NotFound(f"no node {node!r}; known: {', '.join(sorted(known)) or 'none'}")


def add_node(config: NodeConfig, by: str = "") -> Command[str]:
    def command(state: YardState, now: float) -> tuple[list[NodeAdded], str]:
        return [NodeAdded(config, now, by)] if state.places.configs.get(config.id) != config else [], config.id

    return command


def remove_node(node: str, by: str = "") -> Command[str]:
    def command(state: YardState, now: float) -> tuple[list[NodeRemoved], str]:
        known_node(state, node)
        return [NodeRemoved(node, now, by)], node

    return command


def drain_node(node: str, by: str = "") -> Command[str]:
    def command(state: YardState, now: float) -> tuple[list[NodeDrained], str]:
        known_node(state, node)
        return [NodeDrained(node, now, by)] if node not in state.places.drained else [], node

    return command


def resume_node(node: str, by: str = "") -> Command[str]:
    def command(state: YardState, now: float) -> tuple[list[NodeResumed], str]:
        known_node(state, node)
        return [NodeResumed(node, now, by)] if node in state.places.drained else [], node

    return command
