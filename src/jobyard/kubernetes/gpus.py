"""GPUs of a pod: how many does a pod spec ask for, and how is it rewritten for another number?

The executor writes objects anew for each size; the views of the GenAI workload manager resize objects that others
created.
"""

from __future__ import annotations

import re
from typing import Any

from jobyard.model.units import whole_number

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
GPU_PRODUCT = "nvidia.com/gpu.product"  # a label of NVIDIA's feature discovery
MIG = "nvidia.com/mig-"  # and a profile: what the device plugin calls slices, where it counts them apart
NGPU = "NGPU"  # the variable in which the GenAI workload manager gives a container its number of GPUs
_PROCESSES = re.compile(r"(--num[_-]processes(?:=|\s+))\d+\b")
_FLAG = re.compile(r"--num[_-]processes")


def mig_resource(profile: str) -> str:
    return f"{MIG}{profile}"


def gpus_of(container: Object) -> tuple[int, int]:
    """Request and limit of a container; a missing one equals the other."""
    resources = container.get("resources") or {}
    least, most = ((resources.get(key) or {}).get(GPU) for key in ("requests", "limits"))
    return int(least if least is not None else most or 0), int(most if most is not None else least or 0)


def pod_gpus(pod: Object) -> int:
    """Of a pod's spec: what all of its containers ask for at least."""
    return sum(gpus_of(each)[0] for each in pod["containers"])


def give_gpus(pod: Object, gpus: int) -> None:
    """Give a pod's spec so many GPUs in all: one container gets what the others leave. It reads the number from
    NGPU and `--num_processes`, where it has them already. A pod without GPUs stays as it is.

    That container is the one with a range, else the first that has any.
    """
    having = [each for each in pod["containers"] if any(gpus_of(each))]
    if not having:
        return
    own = next((each for each in having if len({*gpus_of(each)}) > 1), having[0])
    _give(own, max(0, gpus - sum(gpus_of(each)[1] for each in having if each is not own)))


def _give(container: Object, gpus: int) -> None:
    resources = container["resources"] = dict(container.get("resources") or {})
    for key in ("requests", "limits"):
        resources[key] = {**(resources.get(key) or {}), GPU: str(gpus)}
    for variable in container.get("env") or ():
        if variable.get("name") == NGPU and "valueFrom" not in variable:
            variable["value"] = str(gpus)
    for key in ("command", "args"):
        if container.get(key):
            container[key] = _with_processes([str(word) for word in container[key]], gpus)


def _with_processes(words: list[str], gpus: int) -> list[str]:
    """`--num_processes=2` and `--num_processes 2`, inside a longer text too, and as two words; `-` for `_` alike."""
    new = [_PROCESSES.sub(rf"\g<1>{gpus}", word) for word in words]
    for index, word in enumerate(new[:-1]):
        if _FLAG.fullmatch(word) and whole_number(new[index + 1]) is not None:
            new[index + 1] = str(gpus)
    return new
