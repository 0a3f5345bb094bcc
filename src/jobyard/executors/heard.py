"""Heard messages: what of an agent's words is about attempts that its machine was given, and can be at all?

Whoever has an account on a machine can speak for its agent. So each item of a message is looked at alone: one about
somebody else's attempt, or with a number that cannot be, is left out, counted and logged, and the rest counts.
"""

from __future__ import annotations

import binascii
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from jobyard.errors import UserError
from jobyard.executors.mirror import STREAMS
from jobyard.executors.protocol import YardView
from jobyard.executors.reports import progress_of
from jobyard.model.job import Reason
from jobyard.model.task import AttemptId

LARGEST_AMOUNT = 1 << 50  # MiB, millicores, bytes or steps: no machine has as much
LATEST = 1e11  # seconds since 1970, some 3000 years from now
LONGEST_TEXT = 4096
_MOST_DEVICES = 1024
_MOST_HOLDERS = 100
_WRONG = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, UserError, ValueError)

log = logging.getLogger(__name__)


class Heard:
    """What one machine's agent says. `problem` is a sentence for people once something was left out."""

    def __init__(self, node: str, yard: YardView) -> None:
        self._node = node
        self._yard = yard
        self.ignored = 0
        self._last = ""
        self._checks: Mapping[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
            "attempts": self._attempts,
            "progress": lambda message: {"attempts": self._each(message["attempts"], _check_progress)},
            "output": self._output,
            "measured": self._measured,
            "reconciled": lambda message: {"absent": self._names(message["absent"])},
            "missing": lambda message: {"snapshot": _text(message["snapshot"])},
            "stored": lambda message: {name: list(map(_text, message[name])) for name in ("jobs", "snapshots")},
            "refused": lambda message: {"slot": _text(message["slot"]), "message": _text(message["message"])},
            "error": lambda message: {
                "message": _text(message["message"]),
                "ids": self._names(message.get("ids") or ()),
            },
        }

    @property
    def problem(self) -> str:
        if not self.ignored:
            return ""
        times = "once" if self.ignored == 1 else f"{self.ignored} times"
        return f"its agent said {times} what cannot be, which was ignored; the last: {self._last}"

    def checked(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The message without items that this machine may not report; None: nothing is left. Never raises."""
        check = self._checks.get(message.get("ev", "")) if isinstance(message.get("ev"), str) else None
        if check is None:
            self.ignore("a message of a kind that is not known")
            return None
        try:
            found = check(message)
            return None if found is None else {**message, **found}
        except _WRONG as error:
            self.ignore(f"{message['ev']}: {type(error).__name__}: {error}")
            return None

    def ignore(self, what: str) -> None:
        self.ignored += 1
        self._last = what[:200]
        if self.ignored & (self.ignored - 1) == 0:  # 1, 2, 4, 8: a liar must not fill the log
            log.warning("agent of %s: ignored for the %d. time: %r", self._node, self.ignored, self._last)

    # -- the kinds of messages ---------------------------------------------------------------------------------------

    def _attempts(self, message: dict[str, Any]) -> dict[str, Any]:
        return {
            "started": [
                pair for pair in message.get("started") or () if self._holds(lambda pair: _time(pair[1]), pair)
            ],
            "finished": [
                [pair[0], self._without_odd(pair[0], pair[1])]
                for pair in message.get("finished") or ()
                if self._holds(lambda pair: _check_end(pair[1]), pair)
            ],
            "withdrawn": self._names(message.get("withdrawn") or ()),
        }

    def _without_odd(self, name: str, seen: dict[str, Any]) -> dict[str, Any]:
        """Drop impossible fields but keep the end itself: without it a task would run for ever."""
        kept = dict(seen)
        for field, check in _BESIDE_AN_END.items():
            try:
                if seen.get(field):
                    check(seen[field])
            except _WRONG as error:
                self.ignore(f"{name}: {field}: {type(error).__name__}: {error}")
                if field == "message" and isinstance(seen[field], str):
                    kept[field] = seen[field][:LONGEST_TEXT]
                else:
                    del kept[field]
        return kept

    def _holds(self, check: Callable[[Any], object], pair: Any) -> bool:
        """Can this attempt have had this event, as far as the server can tell?"""
        try:
            name, _ = pair
            if not self._is_own(name):
                return False
            check(pair)
        except _WRONG as error:
            self.ignore(f"{str(pair)[:80]}: {type(error).__name__}: {error}")
            return False
        return True

    def _names(self, names: Any) -> list[str]:
        return [name for name in names if self._is_own(name)]

    def _each(self, found: Any, check: Callable[[Any], object]) -> dict[str, Any]:
        return {name: seen for name, seen in found.items() if self._holds(lambda pair: check(pair[1]), (name, seen))}

    def _output(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if message["stream"] not in STREAMS:
            raise ValueError(f"there is no stream {message['stream']!r}")
        _amount(message["offset"])
        binascii.a2b_base64(message["data"])
        return {} if self._is_own(message["id"]) else None

    def _measured(self, message: dict[str, Any]) -> dict[str, Any]:
        foreign = message["foreign"]
        for device in message["devices"]:
            for name in ("index", "used_mib", "utilisation"):
                _amount(device[name])
        percents = foreign.get("device_percent", {})
        for amount in (
            *(foreign["cpu_millis"], foreign["memory_mib"]),
            *(*foreign["device_mib"].values(), *percents.values()),
        ):
            _amount(amount)
        for index in (*foreign.get("whole_devices", ()), *map(int, foreign["device_mib"]), *map(int, percents)):
            _amount(index)
        words = [*foreign.get("holders", ()), *foreign.get("doubts", ())]
        for word in words:
            _text(word)
        if len(message["devices"]) > _MOST_DEVICES or len(words) > _MOST_HOLDERS:
            raise ValueError("too many devices or holders")
        _number(message["load"])
        if runtime := message.get("runtime"):
            _text(runtime["kind"]), _text(runtime["problem"])
        return {"attempts": self._each(message.get("attempts") or {}, _check_use)}

    def _is_own(self, name: Any) -> bool:
        """Is this attempt on this machine now? One that has ended is not counted as a lie: the message is late."""
        try:
            attempt = AttemptId.parse(name)
            node = self._yard.node_of(attempt) if str(attempt) == name else None
        except (AttributeError, TypeError, ValueError):
            node = None
        if node == self._node:
            return True
        if node != "":
            self.ignore(f"a report on {name!r:.80}, which it was not given")
        return False


def welcome_problem(welcome: Mapping[str, Any]) -> str:
    """Why an agent's first words cannot be; empty: they can."""
    try:
        _amount(welcome["cpu_millis"]), _amount(welcome["memory_mib"]), _number(welcome.get("now", 0))
        _amount(welcome["pid"]), _text(welcome["build"]), _text(welcome["boot_id"])
        indices = [_amount(device["index"]) for device in welcome["devices"]]
        if len(set(indices)) < len(indices) or len(indices) > _MOST_DEVICES:
            raise ValueError("two devices with one index, or too many")
        for device in welcome["devices"]:
            _amount(device["memory_mib"]), _text(device["name"]), _text(device.get("uuid", ""))
        if runtime := welcome.get("runtime"):
            _text(runtime["kind"]), _text(runtime["problem"])
    except _WRONG as error:
        return f"{type(error).__name__}: {error}"
    return ""


# What can be: each raises one of _WRONG for what cannot.


def _check_end(seen: Any) -> None:
    _time(seen["started_at"]), _time(seen["finished_at"])
    for name, most in (("exit_code", 255), ("signal", 64)):
        if seen.get(name) is not None and _amount(seen[name]) > most:
            raise ValueError(f"{name} is {seen[name]}")


def _check_streams(sizes: Any) -> None:
    for stream, size in sizes.items():
        if stream not in STREAMS:
            raise ValueError(f"there is no stream {stream!r}")
        _amount(size)


def _check_progress(seen: Any) -> None:
    _check_numbers(seen)
    progress_of(seen, 0.0)


def _check_use(seen: Any) -> None:
    _amount(seen["memory_mib"]), _amount(seen["gpu_memory_mib"])
    if seen.get("gpu_percent") is not None:
        _amount(seen["gpu_percent"])


def _check_numbers(value: Any) -> None:
    match value:
        case dict():
            for inner in value.values():
                _check_numbers(inner)
        case list():
            for inner in value:
                _check_numbers(inner)
        case int() | float():
            _number(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > 1e18:
        raise ValueError(f"{value!r:.40} is no number that can be")
    return float(value)


def _time(value: Any) -> float:
    if not 0 <= _number(value) <= LATEST:
        raise ValueError(f"{value!r:.40} is no time")
    return float(value)


def _amount(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_AMOUNT:
        raise ValueError(f"{value!r:.40} is no amount")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise ValueError(f"{value!r:.40} is no text of at most {LONGEST_TEXT} characters")
    return value


_BESIDE_AN_END: Mapping[str, Callable[[Any], object]] = {
    "reason": Reason,
    "message": _text,
    "peak_memory_mib": _amount,
    "peak_gpu_memory_mib": _amount,
    "progress": _check_progress,
    "streams": _check_streams,
}
