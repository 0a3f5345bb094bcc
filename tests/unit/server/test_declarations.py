"""/openapi.json: every route says what it takes and what it answers."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from fastapi import FastAPI
from jsonschema import Draft202012Validator

from jobyard.model.codec import encode
from jobyard.model.job import Command, GroupSpec
from jobyard.model.lines import Lines
from jobyard.server.app import make_app
from jobyard.server.declarations import takes
from jobyard.server.lifetime import Lifetime
from jobyard.wire.requests import API, SubmitJob
from tests.builders import a_group, a_job

NO_YARD: Any = None


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return make_app(NO_YARD)


def operations(app: FastAPI) -> list[tuple[str, str, dict[str, Any]]]:
    paths = app.openapi()["paths"]
    return [(path, method, operation) for path, methods in paths.items() for method, operation in methods.items()]


def test_every_route_declares_its_answers_and_every_error_is_a_problem(app: FastAPI) -> None:
    assert len(operations(app)) > 25
    for path, method, operation in operations(app):
        declared = {status for status in operation["responses"] if status.startswith("2")}
        assert declared, f"{method} {path} declares no answer: @answers(...)"
        assert set(operation["responses"]) == {*declared, "4XX", "5XX"}, (method, path)
        for status in ("4XX", "5XX"):
            assert list(operation["responses"][status]["content"]) == ["application/problem+json"]


def test_a_body_is_declared_where_it_is_read(app: FastAPI) -> None:
    cancel = app.openapi()["paths"][f"{API}/jobs/{{selector}}/cancel"]["post"]
    assert cancel["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/CancelJob"}
    assert cancel["requestBody"]["required"] is False
    assert "requestBody" not in app.openapi()["paths"][f"{API}/jobs/{{selector}}/yield"]["post"]


def test_every_schema_is_one_and_every_reference_leads_somewhere(app: FastAPI) -> None:
    document = app.openapi()
    for name, schema in document["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        assert schema["properties"], name
    said = json.dumps(document)
    references = {word.split('"')[0] for word in said.split("#/components/schemas/")[1:]}
    assert references == set(document["components"]["schemas"])


def test_numbers_in_a_query_have_ranges(app: FastAPI) -> None:
    for path, method, operation in operations(app):
        for parameter in operation.get("parameters", []):
            schema = parameter["schema"]
            for each in schema.get("anyOf", [schema]):
                if each.get("type") == "integer":
                    assert {"minimum", "maximum"} <= set(each), (method, path, parameter["name"])


def test_nothing_is_made_before_somebody_asks() -> None:
    assert make_app(NO_YARD).openapi_schema is None


def test_a_bad_body_and_a_bad_query_are_one_sentence_each() -> None:
    app = make_app(SimpleNamespace(lifetime=Lifetime(None, lambda: False)))  # type: ignore[arg-type]
    for method, path, body, words in [
        ("POST", f"{API}/jobs/1/cancel", b"{", "the request is not JSON"),
        ("POST", f"{API}/jobs/1/cancel", b'{"\\udcff": 1}', "unknown field"),
        ("GET", f"{API}/jobs/1/tasks?limit=-1", b"", "limit: "),
        ("GET", f"{API}/events?since=99999999999999999999", b"", "since: "),
        ("GET", f"{API}/jobs/{'x' * 2000}", b"", "selector: "),
    ]:
        status, answer = asyncio.run(call(app, method, path, body))
        assert (status, answer["code"], answer["status"]) == (400, "bad_request", 400)
        assert words in answer["title"]
        Draft202012Validator(app.openapi()["components"]["schemas"]["Problem"]).validate(answer)


def test_what_needs_no_state_is_refused_while_a_job_is_read() -> None:
    app = make_app(NO_YARD)
    body = json.dumps(encode(SubmitJob(a_job(groups=(a_group("a"), a_group("a")))))).encode()
    status, answer = asyncio.run(call(app, "POST", f"{API}/jobs", body))
    assert (status, answer["code"]) == (400, "bad_request")
    assert "several groups with the name 'a'" in answer["title"]


def test_a_large_job_is_checked_beside_the_loop() -> None:
    threads: list[threading.Thread] = []
    reader = takes(SubmitJob, lambda asked: threads.append(threading.current_thread())).dependency
    for lines in (1, 100_000):
        command = Command(lines=Lines("a line\n" * lines))
        body = json.dumps(encode(SubmitJob(a_job(groups=(GroupSpec(command, completions=lines),))))).encode()
        asyncio.run(reader(SimpleNamespace(body=AsyncMock(return_value=body))))
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


async def call(app: FastAPI, method: str, path: str, body: bytes) -> tuple[int, Any]:
    """One request through the app, without a server."""
    path, _, query = path.partition("?")
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": []}
    await app({**scope, "root_path": "", "http_version": "1.1", "scheme": "http", "server": ("x", 1)}, receive, send)
    return said[0]["status"], json.loads(said[1]["body"])
