"""GET /jobs/{selector}/unit: where does one task run (node, pod)? For callers who want to go there."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request, Response

from jobyard.errors import UserError
from jobyard.executors.kubernetes.names import kind_name
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.job import State
from jobyard.model.node import NodeConfig
from jobyard.model.task import AttemptId, Task
from jobyard.server.clusters import find_cluster, namespace_of
from jobyard.server.declarations import answers
from jobyard.server.queries import machine_config, submitted_job, task_now
from jobyard.server.routes.answers import Label, Selector, answer, yard_of
from jobyard.server.yard import Yard
from jobyard.wire.views import ProcessView, UnitView

router = APIRouter()


@router.get("/jobs/{selector}/unit")
@answers(UnitView)
async def find_unit(request: Request, selector: Selector, task: Label = "") -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        job = submitted_job(yard.loop, selector)
        if not task and job.spec.size > 1:
            raise UserError(
                f"job {job.number} has {job.spec.size} tasks; name one: {job.number}/{job.spec.label_of(0)}"
            )
        found = task_now(yard.loop, job.id, job.spec.number_of(task) if task else 0)
        if found.state not in (State.RUNNING, State.STOPPING) or found.started_at is None:
            label = job.spec.label_of(found.number)
            raise UserError(
                f"task {label} of job {job.number} {found.state.told}: it does not run now; see `yard why {job.number}`"
            )
        return answer(_on_cluster(yard, job, found) if job.spec.cluster else _on_machine(yard, job, found))


def _on_cluster(yard: Yard, job: SubmittedJob, task: Task) -> UnitView:
    spec, config = job.spec, find_cluster(yard.loop.state, job.spec.cluster)
    if config is None:
        raise UserError(f"cluster {spec.cluster} of job {job.number} was removed; `yard clusters add` brings it back")
    group = spec.groups[spec.place_of(task.number).group]
    return UnitView(
        job=job.id,
        task=spec.label_of(task.number),
        state=task.state,
        node=task.node,
        cluster=config.id,
        namespace=namespace_of(config, yard.loop.executor_of(config.id)),
        pod=task.unit,
        container="" if spec.kubernetes.manifest or spec.kubernetes.kind else kind_name(group),
        kubeconfig=config.kubeconfig,
        context=config.context,
        number=job.number,
    )


def _on_machine(yard: Yard, job: SubmittedJob, task: Task) -> UnitView:
    config = machine_config(yard.loop, task.node)
    host = (f"{config.user}@{config.host}" if config.user else config.host) if config else ""
    return UnitView(
        job.id,
        job.spec.label_of(task.number),
        task.state,
        task.node,
        host=host,
        workdir=job.spec.workdir,
        number=job.number,
        process=_process(yard, job, task, config),
    )


def _process(yard: Yard, job: SubmittedJob, task: Task, config: NodeConfig | None) -> ProcessView:
    attempt = str(AttemptId(job.id, task.number, task.attempt))
    container = job.spec.container
    ports = tuple((each.outside, each.inside) for each in container.ports) if container.on_machines else ()
    process = ProcessView(attempt, yard.machines.agent_build, own_network=bool(ports), ports=ports)
    if config is None:
        return replace(process, state_dir=str(yard.machines.own_state))
    return replace(
        process,
        yard=yard.machines.known_as(config.id),
        host=config.host,
        user=config.user,
        port=config.port,
        key_path=config.key_path,
    )
