"""HTTP app: the endpoints of the other system's three services in one: `uvicorn jobyard.compat.genai.app:app`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jobyard.compat.genai import metadata, monitoring
from jobyard.compat.genai.configuration import service_here
from jobyard.compat.genai.service import Service
from jobyard.compat.genai.token_check import TOKEN, TokenCheck
from jobyard.compat.genai.watching import Watch
from jobyard.errors import Bug, UserError, YardError


def make_app(make_service: Callable[[], Service], token: str = "") -> FastAPI:
    """The service is created when the app starts: importing this module connects nowhere. From then on, when a job has
    completed, another one grows."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = make_service()
        app.state.watch = Watch(app.state.service)
        app.state.watch.start()
        yield
        app.state.watch.stop()

    app = FastAPI(title="genai-workload-manager, by a yard", lifespan=lifespan)
    app.include_router(metadata.router)
    app.include_router(monitoring.router)
    app.add_exception_handler(YardError, _say_error)
    app.add_exception_handler(HTTPException, _say_http_error)
    app.add_middleware(TokenCheck, token=token)
    app.add_middleware(Beginning)
    return app


class Beginning:
    """ASGI middleware: a start-up error is one sentence, without a traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        with suppress(UserError):  # the ASGI server has printed it
            await self._app(scope, receive, _without_trace(send))


def _without_trace(send: Send) -> Send:
    async def say(message: Message) -> None:
        error = sys.exception()  # the error that Starlette is about to report
        is_ours = message["type"] == "lifespan.startup.failed" and isinstance(error, UserError)
        await send({**message, "message": str(error)} if is_ours else message)

    return say


def _say_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, YardError)
    status = 500 if isinstance(error, Bug) else error.http_status
    return JSONResponse({"error": str(error)}, status)


def _say_http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code)


app = make_app(service_here, os.environ.get(TOKEN, ""))
