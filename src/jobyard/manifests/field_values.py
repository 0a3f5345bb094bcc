"""Field values: how is what a field of a job says written, and what does its schema say of it?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobyard.manifests.fields import Choice, ListOf, MapOf, Parsed, TextType, VariableType, Whole
from jobyard.manifests.notation import parse_after, parse_device_mib, parse_volume
from jobyard.manifests.training import GPUS_PATTERN, SPAN_PATTERN, parse_gpus, parse_span
from jobyard.model.gpu_kinds import KIND_PATTERN, parse_gpu_kind
from jobyard.model.limits import CpuMillis, Mib, Seconds, SomePercent, Timeout, range_of
from jobyard.model.policy import FailurePolicy
from jobyard.model.units import parse_cpu_millis, parse_duration_seconds, parse_percent, parse_size_mib


def as_written(check: Callable[[str, str], object]) -> Callable[[str, str], str]:
    """A parser that only checks: the text itself is used later."""

    def parse(text: str, path: str) -> str:
        check(text, path)
        return text

    return parse


def _duration_or_0(text: str, path: str) -> float:
    return parse_duration_seconds(text, path, or_none=True)


def span_of(hint: Any) -> Parsed:
    span = {"type": "string", "pattern": SPAN_PATTERN}
    wanted = "a number, or a range such as 1..8"
    json = {"anyOf": [Whole.within(hint).schema(), span]}
    return Parsed(lambda text, path: parse_span(text, path, range_of(hint)), json, wanted)


def gpus_of(hint: Any) -> Parsed:
    """A span of GPUs that may be of a kind."""
    span = {"type": "string", "pattern": GPUS_PATTERN}
    wanted = "a number, a range such as 1..8, or a kind and one of these, as in h100:2"
    json = {"anyOf": [Whole.within(hint).schema(), span]}
    return Parsed(lambda text, path: parse_gpus(text, path, range_of(hint)), json, wanted)


def amount_of(hint: Any, unit: int = 1) -> dict[str, Any]:
    """The schema of a number, or of text with a unit. A request counts in parts: `unit` of them are 1."""
    limit = range_of(hint)
    least = "exclusiveMinimum" if limit.is_more else "minimum"
    return {"type": ["string", "number"], least: limit.least, "maximum": limit.most // unit}


NAMES = r"^\s*[^,\s][^,]*(,\s*[^,\s][^,]*)*$"
SIZE = Parsed(as_written(parse_size_mib), amount_of(Mib), "a size such as 512M or 24GB")
CPUS = Parsed(as_written(parse_cpu_millis), amount_of(CpuMillis, 1000), "a number of cores such as 2, 0.5 or 500m")
KIND = Parsed(
    parse_gpu_kind,
    {"type": "string", "pattern": rf"^\s*{KIND_PATTERN}\s*$"},
    "a kind of GPU such as h100 or mig-1g.10gb",
)
DEVICE_SIZE = Parsed(as_written(parse_device_mib), amount_of(Mib, 1024) | {"minimum": 1}, "GiB of a GPU, as in 40")
SHARE = Parsed(as_written(parse_percent), amount_of(SomePercent, 100), "a share such as 0.5 or 50%")
DURATION = Parsed(parse_duration_seconds, amount_of(Timeout), "a duration such as 90s, 1h30m or 02:30:00")
DURATION_OR_0 = Parsed(_duration_or_0, amount_of(Seconds), "a duration such as 10s, or 0")
PATHS = ListOf(TextType(r"\S", "a path inside the working directory"), or_one=True)
ENV = MapOf(VariableType(), TextType(r"^[A-Za-z_][A-Za-z0-9_]*$", "a variable's name, such as SEED"))
POLICIES = Choice(tuple(policy.value for policy in FailurePolicy), FailurePolicy)
IDLE_GPU = Choice(("warn", "stop"), lambda word: word == "stop")
DEPENDENCY = Parsed(lambda text, path: parse_after((text,), path), {"type": ["string", "integer"]}, "a job")
VOLUME = Parsed(parse_volume, {"type": "string", "pattern": "^[^:]+:/"}, "CLAIM:PATH")
