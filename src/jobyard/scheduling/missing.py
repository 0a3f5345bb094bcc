"""Unmet demand: which slots did a request not get?"""

from __future__ import annotations

from typing import NamedTuple

from jobyard.model.resources import Resources
from jobyard.scheduling.snapshot import Member, Request
from jobyard.scheduling.where import ANYWHERE, Where


class Ask(NamedTuple):
    """What one slot of a member needs; two with the same ask are refused for the same reason."""

    resources: Resources
    where: Where = ANYWHERE
    overcommit: bool = False


class Missing(NamedTuple):
    """A request did not get `lacking` slots of this member."""

    request: Request
    member: Member
    lacking: int

    @property
    def ask(self) -> Ask:
        return ask_of(self.request, self.member)


def ask_of(request: Request, member: Member) -> Ask:
    return Ask(member.resources, member.where(request.on, request.cluster), request.overcommit)
