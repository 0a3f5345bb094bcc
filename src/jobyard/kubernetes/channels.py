"""Websocket channels: how does a command in a pod send its streams? Each message begins with a channel's number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"  # only the newer one can signal the end of the input
Object = dict[str, Any]
Query = Sequence[tuple[str, str]]


def exec_query(command: Sequence[str], container: str, **streams: bool) -> Query:
    """`streams`: which of stdin, stdout, stderr and tty are wanted."""
    wanted = [(name, "true") for name, is_wanted in streams.items() if is_wanted]
    return [*(("command", word) for word in command), ("container", container), *wanted]


def exit_code(status: Object) -> int | None:
    """Of what the last message says; None: the command was not started, and `message` says why."""
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or []
    code = next((cause["message"] for cause in causes if cause.get("reason") == "ExitCode"), None)
    return None if code is None else int(code)
