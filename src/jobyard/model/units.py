"""Units: how do people write sizes, durations and cpu counts, and what do they mean?"""

from __future__ import annotations

import math
import re

from jobyard.errors import UserError
from jobyard.model.limits import CPU_MILLIS_MOST, MIB_MOST, SECONDS_MOST

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(?:([kmgtp])(i?)b?)?\s*$", re.IGNORECASE)
_DURATION = re.compile(r"^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?$", re.IGNORECASE)
_DAYS = re.compile(r"^(\d+)-(\d+)$")
_CLOCK = re.compile(r"^(?:(\d+)-)?(\d+):([0-5]?\d)(?::([0-5]?\d))?$")
_SHARE = re.compile(r"^\s*(\d{1,9}(?:\.\d*)?|\.\d+)\s*(%?)\s*$")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def whole_number(text: str, digits: int = 18) -> int | None:
    """The number that ASCII digits write, if there are not too many of them; None where it is something else.

    `str.isdigit` is true of `²`, which `int` refuses, as it does 5000 digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def parse_size_mib(text: str | float, field: str = "size", bare: str = "MiB") -> int:
    """`24GB`, `24GiB`, `512M`, or a bare number of MiB; rounded up. A bare letter (`4G`) is binary, as in Slurm.

    `bare` is only for the message: what a bare number means there.
    """
    match = _SIZE.match(str(text))
    if not match:
        raise UserError(f"cannot read {text!r} as a size; write 512M, 24GB, 24GiB or a number of {bare}", field=field)
    amount, letter, binary = float(match[1]), (match[2] or "").lower(), match[3]
    decimal = not binary and str(text).strip().lower().endswith("b")
    unit: int = (1000 if decimal else 1024) ** _POWERS[letter] if letter else 1024**2
    mib = amount * unit / 1024**2
    if mib > MIB_MOST:
        raise UserError(f"{str(text)!r:.40} is too much; at most {MIB_MOST >> 30}P is possible", field=field)
    return math.ceil(mib)


def parse_duration_seconds(text: str | float, field: str = "duration", *, or_none: bool = False) -> float:
    """`90` (seconds), `90s`, `1h30m`, `2d`, or Slurm's `1-02` (days and hours), `1-02:03`, `1-02:03:04`, `02:03:04` and
    `02:03` (minutes and seconds). With `or_none` it may be 0.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = float(text)
    else:
        seconds = _seconds_of(str(text).strip(), field)
    if not 0 < seconds <= SECONDS_MOST and not (or_none and seconds == 0):
        raise UserError(
            f"{text!r} must be {'0 or more' if or_none else 'more than 0'} and at most ten years", field=field
        )
    return seconds


def _seconds_of(text: str, field: str) -> float:
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if match := _DAYS.match(text):
        return int(match[1]) * 86400.0 + int(match[2]) * 3600.0
    if match := _CLOCK.match(text):
        days, first, second, third = (int(part) if part else None for part in match.groups())
        assert first is not None
        assert second is not None
        if third is None and days is None:
            return first * 60.0 + second
        return (days or 0) * 86400.0 + first * 3600.0 + second * 60.0 + (third or 0)
    match = _DURATION.match(text)
    if not text or not match:
        raise UserError(
            f"cannot read {text!r} as a duration; write 90s, 1h30m, 2d, 02:30:00 or 2-12:00:00", field=field
        )
    days_, hours, minutes, seconds = (float(part) if part else 0.0 for part in match.groups())
    return days_ * 86400 + hours * 3600 + minutes * 60 + seconds


def parse_cpu_millis(text: str | float, field: str = "cpus") -> int:
    """A number of cores, fractions allowed, or Kubernetes' `500m`; in thousandths of a core, rounded up."""
    shown = str(text).strip()
    try:
        millis = float(shown[:-1]) if shown.endswith("m") else float(shown) * 1000
    except ValueError:
        raise UserError(f"cannot read {text!r} as a number of cores; write 2, 0.5 or 500m", field=field) from None
    if not 0 <= millis <= CPU_MILLIS_MOST:
        raise UserError(f"{str(text)!r:.40} must be 0 or more, and at most {CPU_MILLIS_MOST // 1000}", field=field)
    return math.ceil(round(millis, 6))


def parse_percent(text: str | float, field: str = "share") -> int:
    """`0.5` or `50%` of a whole, in percent, rounded up. A bare number is a fraction: `50` is refused, not guessed."""
    match = _SHARE.match(str(text))
    if not match:
        raise UserError(f"cannot read {text!r} as a share; write 0.5 or 50%", field=field)
    percent = math.ceil(round(float(match[1]) * (1 if match[2] else 100), 6))
    if not 0 < percent <= 100:
        raise UserError(f"{text!r} must be more than 0 and at most all of it; write 0.5 or 50%", field=field)
    return percent


def show_mib(mib: int) -> str:
    """For people: `24 GiB`, `512 MiB`."""
    if mib >= 1024:
        return f"{mib / 1024:.1f}".removesuffix(".0") + " GiB"
    return f"{mib} MiB"


def show_bytes(count: int) -> str:
    """In MiB from one MiB on; below that exactly enough to see that it is little."""
    return show_mib(count >> 20) if count >= 1 << 20 else f"{-(-count // 1024)} KiB"


def show_cpus(millis: int) -> str:
    return f"{millis / 1000:.3f}".rstrip("0").rstrip(".")


def show_seconds(seconds: float) -> str:
    """For people: `0.4s`, `12s`, `3m05s`, `2h07m`, `3d04h`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def show_jobs_are(count: int) -> str:
    """`1 job is`, `3 jobs are`."""
    return "1 job is" if count == 1 else f"{count} jobs are"
