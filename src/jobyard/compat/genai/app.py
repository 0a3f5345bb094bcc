"""The endpoints of the other system's three services, as one app: `uvicorn jobyard.compat.genai.app:app`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from jobyard.compat.genai import metadata, monitoring
from jobyard.compat.genai.desk import Desk
from jobyard.compat.genai.door import TOKEN, Door
from jobyard.compat.genai.here import desk_here
from jobyard.compat.genai.watching import Watch
from jobyard.errors import Bug, YardError


def make_app(make_desk: Callable[[], Desk], token: str = "", *, watches: bool = True) -> FastAPI:
    """The desk is made when the app starts: to import this asks nobody anything.

    `watches`: when a job has completed, another one grows.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.desk = make_desk()
        watch = Watch(app.state.desk) if watches else None
        if watch:
            watch.start()
        yield
        if watch:
            watch.stop()

    app = FastAPI(title="genai-workload-manager, by a yard", lifespan=lifespan)
    app.include_router(metadata.router)
    app.include_router(monitoring.router)
    app.add_exception_handler(YardError, _say_error)
    app.add_exception_handler(HTTPException, _say_http_error)
    app.add_middleware(Door, token=token)
    return app


def _say_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, YardError)
    status = 500 if isinstance(error, Bug) else error.http_status
    return JSONResponse({"error": str(error)}, status)


def _say_http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code)


app = make_app(desk_here, os.environ.get(TOKEN, ""))
