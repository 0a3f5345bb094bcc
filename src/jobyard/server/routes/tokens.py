"""GET, POST, DELETE /tokens: who may talk to this server on TCP."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from jobyard.server.routes.shared import answer, body_of, yard_of
from jobyard.server.tokens import create_token, list_tokens, revoke_token
from jobyard.wire.requests import CreateToken

router = APIRouter()


@router.get("/tokens")
async def get_tokens(request: Request) -> Response:
    return answer(list_tokens(yard_of(request).engine))


@router.post("/tokens", status_code=201)
async def make_token(request: Request) -> Response:
    asked = await body_of(CreateToken, request)
    return answer(create_token(yard_of(request).engine, asked.name), 201)


@router.delete("/tokens/{token_id}")
async def remove_token(request: Request, token_id: str) -> Response:
    revoke_token(yard_of(request).engine, token_id)
    return answer({"revoked": token_id})
