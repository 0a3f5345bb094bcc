"""Refusal: what does an API server say when it rejects a request?"""

from __future__ import annotations

import json

from jobyard.errors import Rejected


class Refused(Rejected):
    """The API server's own words, with its status code and its reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def is_absent(self) -> bool:
        return self.status == 404

    @property
    def is_there_already(self) -> bool:
        return self.reason == "AlreadyExists"

    @property
    def is_forbidden(self) -> bool:
        return self.status in (401, 403)

    @property
    def is_of_webhook(self) -> bool:
        """The status and the reason are those that the webhook chose; only the API server's own words tell."""
        return str(self).startswith("admission webhook ")

    @property
    def is_final(self) -> bool:
        """Would a retry fail too? Yes where the request is wrong; not for missing rights, or a server in trouble."""
        return not self.is_forbidden and self.status < 500 and (self.status != 409 or self.is_there_already)


def refusal(status: int, data: bytes, phrase: str | None = None) -> Refused:
    """`phrase` is that of the HTTP status: it counts where nothing else is said."""
    otherwise = phrase or f"HTTP {status}"
    try:
        said = json.loads(data)
        return Refused(status, str(said.get("reason", "")), str(said.get("message", "")) or otherwise)
    except (ValueError, AttributeError):  # of a proxy, say
        return Refused(status, "", " ".join(data.decode(errors="replace").split())[:300] or otherwise)


def sentence(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return words or type(error).__name__
