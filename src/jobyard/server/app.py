"""HTTP app: the routes, and errors as problem+json."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from jobyard import __version__
from jobyard.errors import YardError
from jobyard.server.declarations import declaring
from jobyard.server.problems import problem, problem_of
from jobyard.server.routes import ALL_ROUTERS
from jobyard.server.yard import Yard
from jobyard.wire.requests import API

log = logging.getLogger(__name__)


def make_app(yard: Yard) -> FastAPI:
    app = FastAPI(title="Jobyard", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.yard = yard
    app.openapi = declaring(app, ALL_ROUTERS, API)  # type: ignore[method-assign]
    for router in ALL_ROUTERS:
        app.include_router(router, prefix=API)
    app.add_exception_handler(YardError, _on_yard_error)
    app.add_exception_handler(RequestValidationError, _on_bad_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_bug)
    return app


async def _on_yard_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, YardError)
    return problem_of(error)


async def _on_bad_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first: Any = error.errors()[0]
    where = ".".join(str(part) for part in first.get("loc", ()))
    return problem("bad_request", f"{where}: {first.get('msg', 'not understood')}", 400)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "bad_request"}.get(error.status_code, "error")
    return problem(code, f"{request.method} {request.url.path}: {error.detail}", error.status_code)


async def _on_disconnect(request: Request, _: Exception) -> Response:
    """No answer: a client that sent half a request is gone, and that is not our fault."""
    return problem("bad_request", f"{request.method} {request.url.path}: the request ended too early", 400)


async def _on_bug(_: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return problem("bug", f"the server failed ({type(error).__name__}: {error}); its log has the details", 500)
