"""Resource words: what do flags and manifests say of the cores, memory and GPUs of one task?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.notation import parse_device_mib
from jobyard.model.resources import Resources
from jobyard.model.units import parse_cpu_millis, parse_percent, parse_size_mib


def resources_with(resources: Resources, said: Mapping[str, Any], shown: Callable[[str], str]) -> Resources:
    """`resources` with what is said instead, by the manifest's keys; `shown` is how a key is called in a message."""
    if "cpus" in said:
        resources = replace(resources, cpu_millis=parse_cpu_millis(said["cpus"], shown("cpus")))
    resources = _with_memory(resources, said, shown)
    if "whole_node" in said:
        resources = replace(resources, whole_node=said["whole_node"])
    return _with_gpus(resources, said, shown)


def _with_memory(resources: Resources, said: Mapping[str, Any], shown: Callable[[str], str]) -> Resources:
    if "memory" in said:
        limit = True if resources.memory_limit is None else resources.memory_limit  # the amount is the limit too
        mib = parse_size_mib(said["memory"], shown("memory"))
        resources = replace(resources, memory_mib=mib, memory_limit=limit)
    if "memory_limit" in said:
        if said["memory_limit"] and not resources.memory_mib:
            name = shown("memory_limit")
            raise UserError(
                "no amount of memory was asked for that could be a limit; say how much, as in 4G", field=name
            )
        resources = replace(resources, memory_limit=said["memory_limit"])
    return resources


def _with_gpus(resources: Resources, said: Mapping[str, Any], shown: Callable[[str], str]) -> Resources:
    if "gpus" in said:
        resources = replace(resources, gpus=said["gpus"][0])  # of a range: the smallest
        if not resources.gpus:
            _refuse_words_of_none(said, shown)
            resources = replace(resources, gpu_memory_mib=0, gpu_percent=0, gpu_kind="")
    if kind := _kind(said, shown):
        resources = replace(resources, gpus=resources.gpus or 1, gpu_kind=kind)
    if "min_gpu_mem" in said:
        resources = replace(resources, gpus=resources.gpus or 1)
    if "gpu_memory" in said:
        mib = parse_size_mib(said["gpu_memory"], shown("gpu_memory"))
        resources = replace(resources, gpus=resources.gpus or 1, gpu_memory_mib=mib)
    if "gpu_utilization" in said:
        percent = parse_percent(said["gpu_utilization"], shown("gpu_utilization"))
        resources = replace(resources, gpus=resources.gpus or 1, gpu_percent=percent)
    return resources


def least_device_mib(known: int, gpus: int, said: Mapping[str, Any], shown: Callable[[str], str]) -> int:
    """How much memory each of so many GPUs must have: what is said, or else what is known already."""
    if "min_gpu_mem" in said:
        return parse_device_mib(said["min_gpu_mem"], shown("min_gpu_mem"))
    return known if gpus else 0


def _kind(said: Mapping[str, Any], shown: Callable[[str], str]) -> str:
    """As it stands beside the number, or by itself; empty: neither."""
    beside = said["gpus"][2] if "gpus" in said else ""
    alone = str(said.get("gpu_type", ""))
    if beside and alone and beside != alone:
        raise UserError(
            f"{alone!r} is not the {beside!r} of {shown('gpus')}; say one of the two", field=shown("gpu_type")
        )
    return beside or alone


def _refuse_words_of_none(said: Mapping[str, Any], shown: Callable[[str], str]) -> None:
    for key in ("gpu_memory", "gpu_utilization", "gpu_type", "min_gpu_mem"):
        if key in said:
            raise UserError(f"{said[key]!r} of no GPU; leave it out or ask for a GPU", field=shown(key))
