"""Errors of this service: which requests are right, but cannot be met now?"""

from __future__ import annotations

from jobyard.errors import YardError


class NotPossible(YardError):
    """Asked for rightly, and there is no room, or it is as large as it can be, or over."""

    code = "not_possible"
    http_status = 409


class Conflict(YardError):
    """Somebody else has changed it meanwhile."""
