"""How does Kubernetes write amounts?"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from jobyard.errors import UserError
from jobyard.model.units import whole_number

_QUANTITY = re.compile(r"([+-]?[0-9]{0,18}(?:\.[0-9]{0,18})?)(?:[eE]([+-]?[0-9]{1,2})|([KMGTPE]i|[numkMGTPE]))?")
_POWERS = {"n": -3, "u": -2, "m": -1, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def parse_quantity(text: str, field: str) -> Fraction:
    """`500m`, `2`, `0.5`, `16Gi`, `1e3`; exactly."""
    match = _QUANTITY.fullmatch(text.strip())
    if not match or not any(character.isdigit() for character in match[1]) or match[1].startswith("-"):
        raise UserError(f"{field}: cannot read {text!r} as an amount; write 2, 500m or 16Gi")
    number = Fraction(match[1] if not match[1].endswith(".") else match[1] + "0")
    if match[2]:
        return _times(number, 10, int(match[2]))
    unit = match[3] or ""
    if unit.endswith("i"):
        return _times(number, 1024, " KMGTPE".index(unit[0]))
    return _times(number, 1000, _POWERS.get(unit, 0))


def _times(number: Fraction, base: int, power: int) -> Fraction:
    scale: int = base ** abs(power)
    return number * scale if power >= 0 else number / scale


def cpu_millis(text: str, field: str) -> int:
    return math.ceil(parse_quantity(text, field) * 1000)


def mib(text: str, field: str) -> int:
    return math.ceil(parse_quantity(text, field) / (1 << 20))


def whole(text: str, field: str) -> int:
    number = whole_number(text, digits=9)
    if number is None:
        raise UserError(f"{field}: {text!r} is not a whole number; write how many, as in 2")
    return number
