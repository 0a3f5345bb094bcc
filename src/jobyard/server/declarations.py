"""Declarations: what does each route take and answer? `/openapi.json` is made from them when it is first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from jobyard.model.json_schema import Schema, schema_of
from jobyard.wire.reading import read
from jobyard.wire.views import Problem

T = TypeVar("T")
Route = TypeVar("Route", bound=Callable[..., Any])
LARGE_BODY_BYTES = 1 << 18  # some 5 ms; a larger body is decoded in a thread, so that others do not wait
JSON = "application/json"
PROBLEM = "application/problem+json"
_ANSWERS = "__answers__"


@dataclass(frozen=True)
class Media:
    """An answer that is not JSON, by its media type."""

    type: str


@dataclass(frozen=True)
class EventStream:
    """Server-sent events, whose data is this kind as JSON; with `has_end`, that of the last one is `{}`."""

    kind: Any = Any
    has_end: bool = False


class _Reader(Generic[T]):
    """A dependency that reads the request's body; it is also the declaration of that body."""

    def __init__(self, kind: type[T], check: Callable[[T], None] | None) -> None:
        self.kind = kind
        self._check = check

    async def __call__(self, request: Request) -> Any:
        body = await request.body()
        if len(body) < LARGE_BODY_BYTES:
            return self._read(body)
        return await asyncio.to_thread(self._read, body)

    def _read(self, body: bytes) -> T:
        noun = read(self.kind, body)
        if self._check is not None:
            self._check(noun)
        return noun


def takes(kind: type[T], check: Callable[[T], None] | None = None) -> Any:
    """For a route's parameter: `asked: Annotated[CancelJob, takes(CancelJob)]` is the body, decoded and checked.

    `check` is for what can be said of it without the yard's state.
    """
    return Depends(_Reader(kind, check))


def answers(kind: Any, status: int = 200, also: Mapping[int, Any] | None = None) -> Callable[[Route], Route]:
    """For a route's function: what it answers with, by status. Every route may answer with a Problem as well."""

    def declare(route: Route) -> Route:
        setattr(route, _ANSWERS, {status: kind, **(also or {})})
        return route

    return declare


def body_kind(route: APIRoute) -> type | None:
    readers = [each.call for each in route.dependant.dependencies if isinstance(each.call, _Reader)]
    return readers[0].kind if readers else None


def answer_kinds(route: APIRoute) -> dict[int, Any]:
    return dict(getattr(route.endpoint, _ANSWERS, {}))


def declaring(app: FastAPI, routers: Iterable[APIRouter], prefix: str) -> Callable[[], Schema]:
    """For `app.openapi`; the routers are those that the app has under the prefix.

    Made on the first request only: a server should start fast.
    """

    def openapi() -> Schema:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, routers, prefix)
        return app.openapi_schema

    return openapi


def _document(app: FastAPI, routers: Iterable[APIRouter], prefix: str) -> Schema:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    components: Schema = {Problem.__name__: schema_of(Problem, complete=True)}
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    for route in routes:
        for method in route.methods or ():
            _declare(document["paths"][prefix + route.path_format][method.lower()], route, components)
    token = {"type": "http", "scheme": "bearer", "description": "Needed on TCP; the Unix socket is its owner's."}
    document["components"] = {"schemas": components, "securitySchemes": {"token": token}}
    document["security"] = [{}, {"token": []}]
    return document


def _declare(operation: Schema, route: APIRoute, components: Schema) -> None:
    if kind := body_kind(route):
        schema = _named(kind, components, complete=False)
        is_needed = bool(components[kind.__name__]["required"])
        operation["requestBody"] = {"required": is_needed, "content": {JSON: {"schema": schema}}}
    problem = {"description": "One sentence.", "content": {PROBLEM: {"schema": _ref(Problem.__name__)}}}
    responses = {str(status): _response(kind, components) for status, kind in answer_kinds(route).items()}
    operation["responses"] = {**responses, "4XX": problem, "5XX": problem}


def _response(kind: Any, components: Schema) -> Schema:
    if isinstance(kind, EventStream):
        shown = schema_of(kind.kind, complete=True)
        data = {"anyOf": [shown, {"type": "object", "maxProperties": 0}]} if kind.has_end else shown
        content = {"type": "string", "contentMediaType": JSON, "contentSchema": data}
        event = {"event": {"type": "string"}, "id": {"type": "string"}, "data": content}
        schema = {"type": "object", "properties": event, "required": ["event", "data"]}
        return {"description": "Server-sent events.", "content": {"text/event-stream": {"schema": schema}}}
    if isinstance(kind, Media):
        return {"description": kind.type, "content": {kind.type: {"schema": {"type": "string"}}}}
    schema = _named(kind, components, complete=True)
    return {
        "description": (schema_of(kind).get("description") or "").split("\n")[0],
        "content": {JSON: {"schema": schema}},
    }


def _named(kind: Any, components: Schema, *, complete: bool) -> Schema:
    if items := get_args(kind):  # list[JobView]
        return {"type": "array", "items": _named(items[0], components, complete=complete)}
    components[kind.__name__] = schema_of(kind, complete=complete)
    return _ref(kind.__name__)


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
