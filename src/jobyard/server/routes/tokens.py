"""GET, POST, DELETE /tokens: who may talk to this server on TCP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.declarations import answers, takes
from jobyard.server.routes.shared import Selector, answer, yard_of
from jobyard.server.tokens import create_token, list_tokens, revoke_token
from jobyard.wire.requests import CreateToken
from jobyard.wire.views import TokenRevoked, TokenView

router = APIRouter()


@router.get("/tokens")
@answers(list[TokenView])
async def get_tokens(request: Request) -> Response:
    return answer(list_tokens(yard_of(request).engine))


@router.post("/tokens", status_code=201)
@answers(TokenView, 201)
async def make_token(request: Request, asked: Annotated[CreateToken, takes(CreateToken)]) -> Response:
    return answer(create_token(yard_of(request).engine, asked.name), 201)


@router.delete("/tokens/{token_id}")
@answers(TokenRevoked)
async def remove_token(request: Request, token_id: Selector) -> Response:
    revoke_token(yard_of(request).engine, token_id)
    return answer(TokenRevoked(token_id))
