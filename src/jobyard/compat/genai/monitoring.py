"""Monitoring endpoints: GET /freegpu and /resourcequota of the monitoring service, POST /scale of the manager."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from jobyard.compat.genai.errors import NotPossible
from jobyard.compat.genai.service import Service

router = APIRouter()
REASON = "X-Jobyard-Reason"


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


@router.get("/freegpu")
def free_gpus(request: Request) -> JSONResponse:
    return JSONResponse(service_of(request).free_gpus())


@router.get("/resourcequota/{namespace}")
def resource_quota(request: Request, namespace: str) -> JSONResponse:
    limit, used = service_of(request).quota(namespace)
    return JSONResponse({"limit": limit, "used": used})


@router.post("/scale/{name}")
def scale(request: Request, name: str) -> JSONResponse:
    """A text and a code, as in the original; but the HTTP status is the true one, and a header says why."""
    try:
        sentence = service_of(request).scale(name)
    except NotPossible as error:
        return JSONResponse(["Did not scale", 401], error.http_status, {REASON: _plain(str(error))})
    return JSONResponse(["Scaled", 200], headers={REASON: _plain(sentence)})


def _plain(text: str) -> str:
    """Headers are ASCII, and one line."""
    return " ".join(text.encode("ascii", "replace").decode().split())
