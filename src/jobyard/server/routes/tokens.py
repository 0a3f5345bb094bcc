"""GET, POST, DELETE /tokens: who may call this server on TCP."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.declarations import answers, takes
from jobyard.server.rights import TokenKind, admin_of
from jobyard.server.routes.answers import Selector, answer, yard_of
from jobyard.server.tokens import create_token, list_tokens, revoke_token
from jobyard.wire.requests import CreateToken
from jobyard.wire.views import TokenRevoked, TokenView

router = APIRouter()
log = logging.getLogger(__name__)


@router.get("/tokens")
@answers(list[TokenView])
async def get_tokens(request: Request) -> Response:
    admin_of(request, "list tokens")
    return answer(list_tokens(yard_of(request).engine))


@router.post("/tokens", status_code=201)
@answers(TokenView, 201)
async def make_token(request: Request, asked: Annotated[CreateToken, takes(CreateToken)]) -> Response:
    by = admin_of(request, "make tokens")
    made = create_token(yard_of(request).engine, asked.name, TokenKind.ADMIN if asked.admin else TokenKind.MEMBER)
    log.info("%s made token %s of %r, %s", by, made.id, made.name, made.kind)
    return answer(made, 201)


@router.delete("/tokens/{token_id}")
@answers(TokenRevoked)
async def remove_token(request: Request, token_id: Selector) -> Response:
    by = admin_of(request, "revoke tokens")
    yard = yard_of(request)
    revoke_token(yard.engine, token_id)
    yard.revocations.revoke(token_id)
    log.info("%s revoked token %s", by, token_id)
    return answer(TokenRevoked(token_id))
