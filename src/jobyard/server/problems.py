"""How does an error look on the wire? RFC 9457, with our stable code."""

from __future__ import annotations

from fastapi.responses import JSONResponse, Response


def problem(code: str, title: str, status: int) -> Response:
    body = {"code": code, "title": title, "status": status}
    return JSONResponse(body, status, media_type="application/problem+json")
