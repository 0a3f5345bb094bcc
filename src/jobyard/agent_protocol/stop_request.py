"""Stop request: what was an attempt asked, and how does that survive the agent's death?

The request is the stop file itself: that it exists tells the task, what is in it tells the next agent.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any, Dict, Optional

from jobyard.agent_protocol import clock, messages


class StopRequest:
    """What one attempt was asked, kept for the next agent. Times `_up` are of the boot clock, `_at` of the wall's."""

    def __init__(self, asked_up: float, deadline: float, grace: float) -> None:
        self.asked_up = asked_up
        self.deadline = deadline  # seconds from then
        self.grace = grace
        self.ended_up = 0.0  # when we first sent SIGTERM, for whatever reason; 0: not yet
        self.at_once = False
        self.signalled_at = 0.0  # when we sent SIGTERM because of it, or were about to; 0: not yet
        self.is_overridden = False  # a plain stop came later

    def due_in(self, now_up: float) -> float:
        return self.asked_up + self.deadline - now_up

    def grace_left(self, grace: float, now_up: float) -> float:
        """Of a grace that began when it was first signalled; an agent before us may have done that."""
        return max(0.0, grace - (now_up - self.ended_up)) if self.ended_up else grace

    def write(self, path: str) -> None:
        """The file is there at every moment from the first time on. Raises OSError."""
        draft = path + ".tmp"
        try:
            with open(draft, "w") as file:
                json.dump(vars(self), file)
            os.replace(draft, path)
        except OSError:
            if not os.path.exists(path):  # no room for words: then only the request
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def read(path: str) -> Optional[StopRequest]:
    """The request in a stop file; None: there is no file. What cannot be read of it counts as the longest deadline."""
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read(4096))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        content = {}
    return _request_from(content if isinstance(content, dict) else {})


def _request_from(content: Dict[str, Any]) -> StopRequest:
    try:
        deadline, grace = (messages.seconds(content.get(name), name) for name in ("deadline", "grace"))
        request = StopRequest(_asked_up(content), deadline, grace)
    except ValueError:
        request = StopRequest(clock.seconds(), 365 * 86400.0, 10.0)
    request.at_once, request.is_overridden = bool(content.get("at_once")), bool(content.get("is_overridden"))
    for name in ("signalled_at", "ended_up"):
        with suppress(ValueError):
            setattr(request, name, messages.seconds(content.get(name), name))
    return request


def _asked_up(content: Dict[str, Any]) -> float:
    """An agent before the boot clock wrote the wall's time. Raises ValueError."""
    if "asked_up" in content:
        return messages.seconds(content["asked_up"], "asked_up")
    age = max(0.0, time.time() - messages.seconds(content.get("asked_at"), "asked_at"))
    return max(0.0, clock.seconds() - age)
