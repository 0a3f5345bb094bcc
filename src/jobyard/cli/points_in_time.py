"""Points in time: which one do `yesterday`, `today`, `2h` (ago) and `2026-11-18 09:00` name? By the local clock."""

from __future__ import annotations

from datetime import datetime, timedelta

from jobyard.errors import UserError
from jobyard.model.units import parse_duration_seconds

DAYS_AGO = {"today": 0, "yesterday": 1}  # since their midnight


def parse_since(text: str, field: str, now: float) -> float:
    """In unix seconds. Raises UserError."""
    word = text.strip()
    try:
        if word.lower() in DAYS_AGO:
            midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
            at = midnight - timedelta(days=DAYS_AGO[word.lower()])
        else:
            at = datetime.fromisoformat(word) if word.count("-") == 2 else datetime.fromtimestamp(now - _ago(word))
        return max(0.0, at.timestamp())
    except (ValueError, OverflowError, OSError, UserError):
        raise UserError(
            f"{field}: cannot read {text!r:.40} as a time; write 2h, 3d, today, yesterday, "
            "2026-11-18 or '2026-11-18 09:00'"
        ) from None


def _ago(word: str) -> float:
    return parse_duration_seconds(word.lower().removesuffix("ago").strip())
