"""States: what do a pod's phase and an operator's conditions say? Pure: plain objects, as in the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]
ENDED = ("Succeeded", "Failed")


def phase_of(pod: Object) -> str:
    """Empty: it does not say yet."""
    return str(pod.get("status", {}).get("phase") or "")


def is_over(pod: Object) -> bool:
    """Will it never run again? Only its phase decides: until then its controller counts it as active, and may
    delete it and begin anew when there is to be less at once."""
    return phase_of(pod) in ENDED


def true_conditions(seen: Object) -> list[Object]:
    """In the order in which its operator wrote them."""
    return [each for each in seen.get("status", {}).get("conditions") or () if each["status"] == "True"]


def has_condition(seen: Object, name: str) -> bool:
    return any(each["type"] == name for each in true_conditions(seen))
