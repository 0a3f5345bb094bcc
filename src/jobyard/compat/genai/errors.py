"""Errors of this service: which requests are right, but cannot be met now?"""

from __future__ import annotations

from jobyard.errors import YardError


class NotPossible(YardError):
    """A valid request, but there is no room, or the job has its largest size, or it has ended."""

    code = "not_possible"
    http_status = 409


class Conflict(YardError):
    """The object was changed by another client meanwhile."""
