"""Rights (authorisation): who makes a request, and may they?

Over the Unix socket it is the owner of the yard: the socket's directory lets in nobody else. Over TCP it is the holder
of a token. Never what the request says of itself.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from enum import StrEnum

from fastapi import Request

from jobyard.errors import NotAllowed

CALLER = "caller"  # in the state of a request that came over TCP


class TokenKind(StrEnum):
    """Of a token."""

    ADMIN = "admin"  # may also make and revoke tokens, change nodes and clusters, and stop the server
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    token: str = ""  # the id of the token; empty: the yard's owner, over the Unix socket
    kind: TokenKind = TokenKind.ADMIN

    @property
    def is_owner(self) -> bool:
        return not self.token

    def __str__(self) -> str:
        return self.name if self.is_owner else f"{self.name} (token {self.token})"


def caller_of(request: Request) -> Caller:
    found: Caller | None = getattr(request.state, CALLER, None)
    return found or Caller(user_of(os.getuid()))


def user_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def admin_of(request: Request, act: str) -> Caller:
    """Who asks, if they may do what is the admins' alone. Raises NotAllowed; `act` is said as in "stop the server"."""
    caller = caller_of(request)
    if caller.kind is not TokenKind.ADMIN:
        raise NotAllowed(
            f"the token of {caller.name!r} may not {act}: that needs an admin token,"
            " which the yard's owner makes on the server's machine: yard token create NAME --admin"
        )
    return caller


def check_owner(caller: Caller, field: str, value: object, way_out: str) -> None:
    """Raises NotAllowed where a token names a file of the server's machine: only the yard's owner may."""
    if value and not caller.is_owner:
        raise NotAllowed(f"{field} {value}: files of the server's machine are its owner's alone; {way_out}")
