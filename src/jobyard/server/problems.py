"""Problem responses: how does an answer look on the wire? ASCII JSON; an error is RFC 9457, with our stable code."""

from __future__ import annotations

import json
from typing import Any

from fastapi.responses import JSONResponse, Response

from jobyard.errors import UserError, YardError
from jobyard.model.codec import encode
from jobyard.wire.views import Problem


class PlainJSON(JSONResponse):
    """ASCII: a file name need not be UTF-8, and its surrogates could not be sent as UTF-8."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def problem(code: str, title: str, status: int, field: str = "") -> Response:
    said = Problem(code, title, status, field)
    return PlainJSON(encode(said, defaults=True), status, media_type="application/problem+json")


def problem_of(error: YardError) -> Response:
    return problem(error.code, str(error), error.http_status, error.field if isinstance(error, UserError) else "")
