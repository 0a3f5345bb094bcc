"""Ranges: do a manifest, a flag, the schema and the server take the same numbers, and refuse the next ones?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from tests.builders import a_group, a_job
from tests.unit.manifests.conftest import Load

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.declarations import keys_of, put
from jobyard.manifests.fields import RecordType
from jobyard.manifests.job_fields import FLAGGED, RESOURCES, TOP_LEVEL, TRAINING
from jobyard.manifests.native import GROUP, schema
from jobyard.manifests.overrides import Overrides, apply
from jobyard.model.checks import check
from jobyard.model.job import JobSpec
from jobyard.model.resources import Resources
from jobyard.server.spec_checks import check_spec
from jobyard.wire.requests import SubmitJob

Made = Callable[[Any], JobSpec]
TEN_YEARS = 315_360_000


def placed(at: str) -> Made:
    return lambda number: put(a_job(), at, number)


def amount(name: str, parts: float = 1) -> Made:
    """A request counts in whole parts, of which a flag's number has so many."""
    gpu: dict[str, Any] = {"gpus": 1} if name in ("gpu_memory_mib", "gpu_percent") else {}  # a share of what else?
    return lambda number: a_job(
        groups=(replace(a_group(), resources=Resources(**gpu, **{name: round(number * parts)})),)
    )


def group(name: str) -> Made:
    return lambda number: a_job(groups=(replace(a_group(), **{name: number}),))


def least_device(gib: int) -> JobSpec:
    return a_job(groups=(replace(a_group(gpus=1), least_device_mib=gib * 1024),))


def workers(number: int) -> JobSpec:
    return a_job(gang=True, groups=(replace(a_group(), count=number),))


CLIENTS = {"values_per_task"}  # no request has it: what it says is done before
# A key, its flag, the job that has it in a request; its smallest and its largest number, and how far apart two are.
ROWS: list[tuple[str, str, Made, float, float, float]] = [
    ("priority", "priority", placed("policy.priority"), -1_000_000, 1_000_000, 1),
    ("retries", "retries", placed("policy.retries"), 0, 1_000_000, 1),
    ("retry_delay", "retry_delay", placed("policy.retry_delay_seconds"), 0, TEN_YEARS, 0.5),
    ("delay", "delay", placed("policy.start_delay_seconds"), 0, TEN_YEARS, 0.5),
    ("max_fails", "max_fails", placed("policy.max_fails"), 0, 100_000_000, 1),
    ("enough_successes", "", placed("policy.enough_successes"), 1, 100_000_000, 1),
    ("limit", "limit", placed("policy.limit"), 1, 100_000_000, 1),
    ("timeout", "timeout", placed("policy.timeout_seconds"), 0.5, TEN_YEARS, 0.5),
    ("deadline", "", placed("policy.deadline_seconds"), 0.5, TEN_YEARS, 0.5),
    ("grace", "", placed("policy.grace_seconds"), 0, TEN_YEARS, 0.5),
    ("workers", "workers", workers, 1, 4096, 1),
    ("resources.cpus", "cpus", amount("cpu_millis", 1000), 0, 1_000_000, 0.001),
    ("resources.memory", "mem", amount("memory_mib"), 0, 1 << 40, 1),
    ("resources.gpus", "gpus", amount("gpus"), 0, 65536, 1),
    ("resources.gpu_memory", "gpu_mem", amount("gpu_memory_mib"), 0, 1 << 40, 1),
    ("resources.min_gpu_mem", "min_gpu_mem", least_device, 1, 1 << 30, 1),
    ("resources.gpu_utilization", "gpu_util", amount("gpu_percent", 100), 0.01, 1, 0.01),
    ("training.epochs", "epochs", placed("training.epochs"), 1, 1 << 53, 1),
    ("training.batch_size", "batch_size", placed("training.batch_size"), 1, 1 << 53, 1),
    ("training.training_set_size", "training_set_size", placed("training.training_set_size"), 1, 1 << 53, 1),
    ("training.estimate", "estimate", placed("training.estimated_seconds"), 0.5, TEN_YEARS, 0.5),
    ("training.checkpoint_deadline", "checkpoint_deadline", placed("training.yield_seconds"), 0.5, TEN_YEARS, 0.5),
    ("training.idle_gpu_after", "", placed("training.idle_gpu_seconds"), 0.5, TEN_YEARS, 0.5),
    ("groups.a.count", "", group("count"), 1, 100_000_000, 1),
    ("groups.a.completions", "", group("completions"), 1, 100_000_000, 1),
    ("groups.a.parallelism", "", group("parallelism"), 1, 100_000_000, 1),
]
ENDS = [
    pytest.param(*row[:3], number, is_taken, id=f"{row[0]}-{number}")
    for row in ROWS
    for number, is_taken in (
        (row[3], True),
        (row[4], True),
        (row[3] - row[5], False),
        (row[4] + row[5], False),
    )
]
# In a request 0 stands for what was left out.
SERVER_MEANS_NOT_ASKED = {("resources.gpu_utilization", 0.0), ("resources.min_gpu_mem", 0)}
NOTHING_TO_RUN = {("groups.a.count", 0)}  # a request has no such group; in a manifest another may be left


def is_taken_by(reading: Callable[[], object]) -> bool:
    try:
        reading()
    except (UserError, jsonschema.ValidationError):
        return False
    return True


def document(key: str, number: float) -> dict[str, Any]:
    found: Any = number
    for word in reversed(key.split(".")):
        found = {word: found}
    return {"command": "true", **found}


def as_text(value: Any) -> str:
    """YAML of one line, without `1e-05`."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {as_text(each)}" for key, each in value.items()) + "}"
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


@pytest.mark.parametrize(("key", "flag", "made", "number", "is_taken"), ENDS)
def test_all_take_the_ends_of_a_range_and_refuse_what_lies_beyond(
    key: str, flag: str, made: Made, number: float, is_taken: bool, load: Load, context: SubmitContext
) -> None:
    def serve() -> None:
        check(SubmitJob(made(number)))
        check_spec(made(number))

    written = document(key, number)
    assert is_taken_by(lambda: load(as_text(written))) == is_taken
    if (key, number) not in NOTHING_TO_RUN:
        assert is_taken_by(lambda: jsonschema.validate(written, schema())) == is_taken
    if (key, round(number, 6)) not in SERVER_MEANS_NOT_ASKED:
        assert is_taken_by(serve) == is_taken
    if flag:
        said = Overrides(**{flag: as_text(number)})
        assert is_taken_by(lambda: apply(a_job(workdir=context.workdir), said, context)) == is_taken


def numbers_of(fields: dict[str, Any], inside: str = "") -> set[str]:
    return {f"{inside}{key}" for key, field in fields.items() if "maximum" in str(field.schema())}


def test_every_number_of_a_manifest_has_a_row() -> None:
    found = numbers_of(keys_of(RESOURCES), "resources.") | numbers_of(keys_of(TRAINING), "training.")
    for table in TOP_LEVEL:
        found |= numbers_of(keys_of(table))
    own = {key: field for key, field in GROUP.fields.items() if not isinstance(field.kind, RecordType)}
    assert found | numbers_of(own, "groups.a.") == {row[0] for row in ROWS} | CLIENTS


def test_every_flag_of_a_number_is_in_its_row() -> None:
    flags = {name for name, field in FLAGGED.items() if field.is_key and "maximum" in str(field.schema())}
    assert flags == {row[1] for row in ROWS} - {""} | CLIENTS
