"""What did a request not get?"""

from __future__ import annotations

from typing import NamedTuple

from jobyard.model.resources import Resources
from jobyard.scheduling.snapshot import Member, Request


class Ask(NamedTuple):
    """What one slot of a member needs; two with the same ask are refused for the same reason."""

    resources: Resources
    on: str
    overcommit: bool


class Missing(NamedTuple):
    """A request did not get `lacking` slots of this member."""

    request: Request
    member: Member
    lacking: int

    @property
    def ask(self) -> Ask:
        return ask_of(self.request, self.member)


def ask_of(request: Request, member: Member) -> Ask:
    return Ask(member.resources, member.on or request.on, request.overcommit)
