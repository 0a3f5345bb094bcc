"""Job fields for type checkers: which keywords has `Yard.submit`? Generated: do not edit.

Made of `manifests/job_fields.py` by `python -m jobyard.python_api.typed_fields`; see docs/guide/job-fields.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class JobFields(TypedDict, total=False):
    name: str | None
    env: Mapping[str, str | float | bool | None] | None
    workdir: str | None
    array: str | int | None
    stdin: str | None
    output: str | None
    error: str | None
    after: str | int | Sequence[str | int] | None
    on: str | None
    gang: bool | None
    workers: int | str | None
    each_line: str | None
    each_json: str | None
    sweep: Mapping[str, str | float | bool | Sequence[str | float | bool]] | None
    colsep: str | None
    header: bool | None
    nul: bool | None
    values_per_task: int | None
    skip_existing: str | None
    priority: int | None
    timeout: str | float | None
    deadline: str | float | None
    grace: str | float | None
    retries: int | None
    retry_delay: str | float | None
    delay: str | float | None
    max_fails: int | None
    enough_successes: int | None
    lets_running_end: bool | None
    on_failure: Literal["continue", "stop"] | None
    limit: int | None
    keep: bool | None
    copy_forward: str | Sequence[str] | None
    copy_backwards: str | Sequence[str] | None
    image: str | None
    container: bool | None
    kind: Literal["pytorchjob", "rayjob", "PyTorchJob", "RayJob"] | None
    volumes: str | Sequence[str] | None
    cpus: str | float | None
    memory: str | float | None
    memory_limit: bool | None
    gpus: int | str | None
    gpu_type: str | None
    gpu_memory: str | float | None
    gpu_utilization: str | float | None
    whole_node: bool | None
    min_gpu_mem: str | float | None
    epochs: int | None
    batch_size: int | None
    training_set_size: int | None
    estimate: str | float | None
    preemptible: bool | None
    checkpoint_deadline: str | float | None
    log_dir: str | None
    idle_gpu: Literal["warn", "stop"] | None
    idle_gpu_after: str | float | None
