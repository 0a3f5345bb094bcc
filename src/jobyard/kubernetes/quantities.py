"""Quantities: how does Kubernetes write amounts (`500m`, `16Gi`)? Read exactly, never as a float."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from jobyard.errors import UserError
from jobyard.model.units import whole_number

DIGITS = 40  # more than the API server writes: it has at most those of an int64 before a unit
DIGITS_OF_USERS = 18
_QUANTITY = re.compile(
    rf"([+-]?)([0-9]{{0,{DIGITS}}})(?:\.([0-9]{{0,{DIGITS}}}))?(?:[eE]([+-]?[0-9]{{1,2}})|([KMGTPE]i|[numkMGTPE]))?"
)
_POWERS = {"n": -3, "u": -2, "m": -1, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def quantity(text: str | float) -> Fraction:
    """Of the API server's own objects: `500m`, `2`, `16Gi`, `1e3`. An unreadable one counts as 0."""
    return _parse(str(text)) or Fraction(0)


def cpu_millis(text: str | float) -> int:
    """Rounded up, as kube-scheduler counts."""
    return math.ceil(quantity(text) * 1000)


def mib(text: str | float) -> int:
    return math.ceil(quantity(text) / (1 << 20))


def asked_quantity(text: str, field: str) -> Fraction:
    """Of a user's file. Raises UserError, with the field's name."""
    number = _parse(text.strip(), DIGITS_OF_USERS)
    if number is None or number < 0 or text.strip().startswith("-"):
        raise UserError(f"{field}: cannot read {text!r} as an amount; write 2, 500m or 16Gi")
    return number


def asked_cpu_millis(text: str, field: str) -> int:
    return math.ceil(asked_quantity(text, field) * 1000)


def asked_mib(text: str, field: str) -> int:
    return math.ceil(asked_quantity(text, field) / (1 << 20))


def asked_whole(text: str, field: str) -> int:
    number = whole_number(text, digits=9)
    if number is None:
        raise UserError(f"{field}: {text!r} is not a whole number; write how many, as in 2")
    return number


def _parse(text: str, digits: int = DIGITS) -> Fraction | None:
    """None: it is no quantity, or has more digits before or after its point."""
    match = _QUANTITY.fullmatch(text)
    if not match:
        return None
    sign, whole, part, power, unit = (each or "" for each in match.groups())
    if not (whole or part) or max(len(whole), len(part)) > digits:
        return None
    number = Fraction(int(f"{sign}{whole}{part}"), 10 ** len(part))
    if power:
        return _times(number, 10, int(power))
    if unit.endswith("i"):
        return _times(number, 1024, " KMGTPE".index(unit[0]))
    return _times(number, 1000, _POWERS.get(unit, 0))


def _times(number: Fraction, base: int, power: int) -> Fraction:
    scale: int = base ** abs(power)
    return number * scale if power >= 0 else number / scale
