"""Lines of an agent: how much may be in one, and how is a message said that has more?

Whoever takes a line works for it in one go: what is bounded here is how long all others wait meanwhile.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Tuple

LARGEST_LINE = 1 << 20  # bytes; output travels in pieces of 256 KiB
MOST_VALUES = 10_000  # numbers, texts and so on; one attempt's history has up to 7000, and 10,000 take some 50 ms
TOO_LONG = "a line of more than %d MiB" % (LARGEST_LINE >> 20)
_PARTS = {  # what a message of each kind may have many of
    "attempts": ("started", "finished", "withdrawn"),
    "progress": ("attempts",),
    "measured": ("attempts",),
    "reconciled": ("absent",),
    "stored": ("jobs", "snapshots"),
    "error": ("ids",),
}
_Item = Tuple[str, Any]  # with the name of its part


def problem(line: bytes, message: Any) -> str:
    """Why this line, which says this message, is more than one may be; empty: it is not."""
    if len(line) > LARGEST_LINE:
        return TOO_LONG
    most = sum(map(line.count, (b",", b"[", b"{")))  # there are no more values than that, and it is fast
    if most >= MOST_VALUES and _has_too_many_values(message):
        return "a line of more than %d values" % MOST_VALUES
    return ""


def _has_too_many_values(message: Any) -> bool:
    """Looks at no more of them than there may be."""
    count, waiting = 0, [message]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (dict, list, tuple)):
            count += len(value)
            if count > MOST_VALUES:
                return True
            waiting += value.values() if isinstance(value, dict) else value
    return False


def lines_of(message: Dict[str, Any]) -> List[bytes]:
    """The message in one line, or in several that say the same together; all but the last have `more`."""
    line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    if not problem(line, message):
        return [line]
    items = [(name, item) for name in _PARTS.get(message.get("ev", ""), ()) for item in _items(message.get(name))]
    if len(items) > 1:
        middle = len(items) // 2
        first, last = _with(message, items[:middle]), _with(message, items[middle:])
        return [*lines_of({**first, "more": True}), *lines_of(last)]
    shorter = _with(message, [(name, _with_less_history(item)) for name, item in items])
    return [line] if shorter == message else lines_of(shorter)


def _items(part: Any) -> List[Any]:
    return list(part.items() if isinstance(part, dict) else part or ())


def _with(message: Dict[str, Any], items: List[_Item]) -> Dict[str, Any]:
    """The message with these items alone."""
    found = dict(message)
    for name in _PARTS.get(message.get("ev", ""), ()):
        if name in message:
            kept = [item for part, item in items if part == name]
            found[name] = dict(kept) if isinstance(message[name], dict) else kept
    return found


def _with_less_history(item: Any) -> Any:
    """What is said of one attempt, with the newer half of the epochs that it reported."""
    if not isinstance(item, (list, tuple)) or not isinstance(item[1], dict):
        return item
    name, told = item
    if "progress" in told:
        return [name, {**told, "progress": _newer(told["progress"])}]
    return [name, _newer(told)]


def _newer(progress: Dict[str, Any]) -> Dict[str, Any]:
    history = progress.get("history", ())
    return {**progress, "history": history[-(len(history) // 2) :]} if len(history) > 1 else progress
