"""Job metadata endpoints: the job records over HTTP. What the yard measures is shown, and cannot be overwritten."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from jobyard.compat.genai import records
from jobyard.compat.genai.checkpoint_reports import Report
from jobyard.compat.genai.monitoring import service_of
from jobyard.compat.genai.records import COMPLETED, JobMetadata
from jobyard.compat.genai.watching import Watch
from jobyard.errors import NotFound, UserError
from jobyard.model.units import whole_number

router = APIRouter()
Body = dict[str, Any]
MOST = 1e12  # seconds and epochs above this are a mistake


# -- writing


@router.post("/add_job")
async def add_job(request: Request) -> JSONResponse:
    body = await _body(request, "job_name", "gpu_req", "gpu_lim", "gpu_assigned")
    return await run_in_threadpool(_add_job, request, body)


def _add_job(request: Request, body: Body) -> JSONResponse:
    service, name = service_of(request), _name(body)
    numbers = {key: _whole(body, key, least) for key, least in (("gpu_req", 1), ("gpu_lim", 1), ("gpu_assigned", 0))}
    replicas = _whole({"replicas": 1, **body}, "replicas", 1)
    if numbers["gpu_lim"] < numbers["gpu_req"]:
        raise UserError(f"gpu_lim: {numbers['gpu_lim']} is less than gpu_req, {numbers['gpu_req']}")
    known = _find(service.records(), name)
    if known and (known.is_ours or name in service.state.added):
        raise UserError(f"job {name!r} exists already")
    record = service.adopt(name, numbers["gpu_req"], numbers["gpu_lim"], replicas)
    if epochs := _number({"total_epochs": 0, **body}, "total_epochs"):
        record = service.tell(record, Report(record.last_checkpoint_time, None, 0, epochs))
    return _answer("Job added", record, 201)


@router.put("/update_last_checkpoint")
async def update_last_checkpoint(request: Request) -> JSONResponse:
    body = await _body(request, "job_name", "last_checkpoint_time", "completed_epochs")
    return await run_in_threadpool(_update_last_checkpoint, request, body)


def _update_last_checkpoint(request: Request, body: Body) -> JSONResponse:
    """A job reports its progress: the only endpoint with data that the yard does not have."""
    service = service_of(request)
    at, done = _number(body, "last_checkpoint_time"), _number(body, "completed_epochs")
    total = _number({"total_epochs": 0, **body}, "total_epochs")
    if at > time.time() + 3600:
        raise UserError(f"last_checkpoint_time: {at} is in the future; send seconds since 1970")
    record = service.record(_name(body))
    before = record.last_checkpoint_time  # for the first report the arrival time, as in the original
    told = service.tell(record, Report(at, before, done, total))
    has_grown = service.has_saved(record)
    return _answer("Job updated", service.record(record.job_name) if has_grown else told)


@router.put("/update_job_status")
async def update_job_status(request: Request) -> JSONResponse:
    body = await _body(request, "job_name", "status")
    return await run_in_threadpool(_update_job_status, request, body)


def _update_job_status(request: Request, body: Body) -> JSONResponse:
    service = service_of(request)
    record = service.record(_name(body))
    if str(body["status"]) != record.status:
        raise UserError(f"job {record.job_name!r} is {record.status}: that is seen, not set; `delete -n` stops a job")
    if record.status == COMPLETED:
        watch: Watch = request.app.state.watch
        watch.completed(record)  # another job may grow now; the answer does not depend on that
    return _answer("Job status updated", record)


@router.put("/increment_restarts")
async def increment_restarts(request: Request) -> JSONResponse:
    body = await _body(request, "job_name")
    record = await run_in_threadpool(service_of(request).record, _name(body))
    return _answer("Restarts are counted where they happen", record)


@router.put("/update_job")
async def update_job(request: Request) -> JSONResponse:
    body = await _body(request, "job_name")
    record = await run_in_threadpool(service_of(request).record, _name(body))
    shown = {**record.shown(), "job_name": body["job_name"]}
    for key, value in body.items():
        if key not in shown:
            raise UserError(f"{key}: a job has no such field; it has {', '.join(shown)}")
        if value != shown[key]:
            way_out = f"; POST /scale/{record.job_name} changes it" if key == "gpu_assigned" else ""
            raise UserError(f"{key}: it is {shown[key]!r}, which is seen and not set{way_out}")
    return _answer("Job updated", record)


@router.delete("/delete_job")
async def delete_job(request: Request) -> JSONResponse:
    body = await _body(request, "job_name")
    return await run_in_threadpool(_delete_job, request, body)


def _delete_job(request: Request, body: Body) -> JSONResponse:
    service = service_of(request)
    try:
        record = service.record(_name(body))
    except NotFound:
        if (name := _name(body)) not in service.state.added:
            raise
        service.state.added.remove(name)  # the original's main.py deletes the object first, and the record goes with it
        return JSONResponse({"message": f"Job {name} deleted"})
    if not record.has_ended:
        raise UserError(f"job {record.job_name!r} is {record.status}; `delete -n {record.job_name}` stops it first")
    with suppress(NotFound):  # of a PyTorchJob that went meanwhile
        service.delete(record.job_name)
    return JSONResponse({"message": f"Job {record.job_name} deleted"})


# -- reading


@router.get("/get_job/{name}")
def get_job(request: Request, name: str) -> JSONResponse:
    return JSONResponse(service_of(request).record(name).shown())


@router.get("/get_all_jobs")
def get_all_jobs(request: Request) -> JSONResponse:
    return _listed(service_of(request).records())


@router.get("/get_jobs_by_arrival")
def get_jobs_by_arrival(request: Request) -> JSONResponse:
    return _listed(records.by_arrival(service_of(request).records()))


@router.get("/get_jobs_by_checkpoint_limit")
def get_jobs_by_checkpoint_limit(request: Request) -> JSONResponse:
    return _listed(records.by_checkpoint_limit(service_of(request).records()))


@router.get("/get_jobs_by_difference/{gpus}")
def get_jobs_by_difference(request: Request, gpus: str) -> JSONResponse:
    return _listed(records.by_difference(service_of(request).records(), _path_number(gpus)))


@router.get("/get_scale_down_jobs_by_checkpoint/{gpus}")
def get_scale_down_jobs(request: Request, gpus: str) -> JSONResponse:
    return _listed(records.scale_down(service_of(request).records(), _path_number(gpus)))


# -- words


def _answer(message: str, record: JobMetadata, status: int = 200) -> JSONResponse:
    return JSONResponse({"message": message, "job": record.shown()}, status)


def _listed(found: Iterable[JobMetadata]) -> JSONResponse:
    return JSONResponse([each.shown() for each in found])


def _find(found: Iterable[JobMetadata], name: str) -> JobMetadata | None:
    return next((each for each in found if each.job_name == name), None)


async def _body(request: Request, *needed: str) -> Body:
    raw = await request.body()
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise UserError("the request has no JSON object; send one, with job_name in it")
    if missing := [key for key in needed if body.get(key) is None]:
        raise UserError(f"{missing[0]}: it is missing; the request needs {', '.join(needed)}")
    return body


def _name(body: Body) -> str:
    if not isinstance(body["job_name"], str):
        raise UserError(f"job_name: {body['job_name']!r} is no text")
    return body["job_name"]


def _number(body: Body, key: str) -> float:
    value = body[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise UserError(f"{key}: {value!r:.40} is not a number from 0 to {MOST:g}")
    return value


def _whole(body: Body, key: str, least: int) -> int:
    value = body[key]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**16:
        raise UserError(f"{key}: {value!r} is not a whole number of {least} or more")
    return value


def _path_number(text: str) -> int:
    number = whole_number(text, digits=9)
    if number is None:
        raise HTTPException(404, f"{text!r} is not a number of GPUs")
    return number
