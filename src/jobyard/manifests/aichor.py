"""AIchorManifest: which job does it describe? Its fields are in `aichor_fields.py`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.aichor_fields import (
    BUILDER,
    CLONE,
    GPU,
    JOBSET_TYPE,
    MANIFEST,
    NOT_RUN,
    RESOURCES,
    SKIP_BUILD,
    SPEC,
    TOLERATION,
    TYPES,
    WORKER,
)
from jobyard.manifests.context import SubmitContext, as_notes
from jobyard.manifests.files import name_from_file
from jobyard.manifests.notation import env_of, parse_name
from jobyard.manifests.overrides import Overrides, apply
from jobyard.manifests.parts import Part
from jobyard.model.container import ContainerSpec
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.kubernetes import Toleration
from jobyard.model.policy import RunPolicy
from jobyard.model.resources import Resources
from jobyard.model.source import BuildRequest
from jobyard.model.units import parse_cpu_millis

KUBERNETES = "kubernetes"  # as in --on
GPU_PRODUCT = "nvidia.com/gpu.product"  # the label that NVIDIA's feature discovery puts on nodes

# What the platform sets in every container: a manifest that sets them too is refused at submit.
PROTECTED_NAMES = frozenset(
    {"JOB_INDEX", "JOB_GLOBAL_INDEX", "JOB_COMPLETION_INDEX"}
    | {"GLOBAL_REPLICAS", "REPLICATED_JOB_NAME", "REPLICATED_JOB_REPLICAS"}
)
PROTECTED_PREFIXES = ("AICHOR_", "YARD_", "VCS_")


def spec_from_aichor(document: Part, overrides: Overrides, context: SubmitContext) -> JobSpec:
    """The job that a manifest and the flags describe; its notes tell what has no effect on plain machines."""
    manifest = MANIFEST.read(document, "")
    spec = SPEC.filled(manifest["spec"])
    operator = spec["operator"]
    _refuse_other_operators(document, operator)
    types = TYPES[operator].read(spec["types"], "spec.types")
    _refuse_contradictions(document, manifest)
    deadline = spec["timeout"] or spec["activeDeadlineSeconds"]
    submitter = context.submitter("aichor", _notes(manifest, types, overrides))
    job = JobSpec(
        name=_name(document, manifest),
        groups=_groups(document, operator, types, spec["command"], overrides),
        gang=operator == "pytorch",
        env=_env(document, spec["env"] or {}, context),
        workdir=context.workdir,
        policy=RunPolicy(deadline_seconds=float(deadline) if deadline else None),
        submitter=replace(submitter, cluster_notes=as_notes(_pod_notes(manifest, types))),
        container=ContainerSpec(spec["image"], build=_build(manifest["builder"], spec["image"])),
    )
    return apply(job, overrides, context)


def _name(document: Part, manifest: Mapping[str, Any]) -> str:
    if "name" not in manifest:
        return name_from_file(document.file)
    try:
        return parse_name(manifest["name"], "name")
    except UserError as error:
        raise UserError(f"{document.file}: line {document.at('name').line}: {error}") from None


def _groups(
    document: Part, operator: str, types: Mapping[str, Mapping[str, Any]], command: str, overrides: Overrides
) -> tuple[GroupSpec, ...]:
    groups = []
    for name, own in (types if operator == "jobset" else _one_type(document, operator, types)).items():
        said = JOBSET_TYPE.filled(own)
        resources = _resources(document, name, own["resources"], overrides["cpus"])
        if said["count"] > 0:
            groups.append(
                GroupSpec(
                    Command(shell=command),
                    name=name,
                    count=said["count"],
                    completions=said["completions"],
                    parallelism=said["parallelisms"],
                    resources=resources,
                    **_of_pods(own["resources"], resources),
                )
            )
    if not groups:
        part = document.at("spec", "types")
        raise part.error("spec.types", "every count is 0, so there is nothing to run; give one a count")
    return tuple(groups)


def _one_type(document: Part, operator: str, types: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """The workers of pytorch, its master as the first of them, or of batchjob: tasks of one kind."""
    for name, own in types.items():
        if own["resources"] != next(iter(types.values()))["resources"]:
            raise document.at("spec", "types", name, "resources").error(
                f"spec.types.{name}.resources",
                "workers that start together are of one kind here; write the same in all",
            )
    if not types:
        raise document.at("spec", "types").error("spec.types", "there is no worker; write Worker: with its resources")
    name, own = list(types.items())[-1]
    count = sum(WORKER.filled(each)["count"] for each in types.values())
    if operator == "pytorch":
        return {name: {"count": count, "resources": own["resources"]}}
    tasks = {"completions": max(1, count), "parallelisms": max(1, count)}
    return {name: {"count": min(1, count), **tasks, "resources": own["resources"]}}


def _resources(document: Part, name: str, own: Mapping[str, Any], cpus_flag: str | None) -> Resources:
    """`--cpus` comes before ramRatio is multiplied, so that a large experiment can be tried on a small machine."""
    path = f"spec.types.{name}.resources"
    part = document.at("spec", "types", name, "resources")
    said = RESOURCES.filled(own)
    if ("ramRatio" in own) == ("memory" in own):
        both = "both are there" if "memory" in own else "none of them is there"
        raise part.error(path, f"exactly one of ramRatio and memory must be set, {both}; memory is in GB")
    accelerators = said["accelerators"] or {}
    if "tpu" in accelerators:
        raise part.at("accelerators", "tpu").error(
            f"{path}.accelerators.tpu",
            "TPUs are not given out here, neither by machines nor on Kubernetes; leave it out",
        )
    gpu = GPU.filled(accelerators.get("gpu", {}))
    if gpu["type"] not in (None, "gpu"):
        raise part.at("accelerators", "gpu", "type").error(
            f"{path}.accelerators.gpu.type",
            f"{gpu['type']!r}: slices of GPUs are not given out here, neither by machines nor on Kubernetes; write gpu",
        )
    millis = parse_cpu_millis(said["cpus"] if cpus_flag is None else cpus_flag, "--cpus")
    gigabytes = said["memory"] if said["memory"] is not None else millis / 1000 * said["ramRatio"]
    return Resources(cpu_millis=millis, memory_mib=_mib(gigabytes), gpus=gpu["count"])


def _of_pods(own: Mapping[str, Any], resources: Resources) -> dict[str, Any]:
    """What only Kubernetes does something with."""
    said = RESOURCES.filled(own)
    product = ((said["accelerators"] or {}).get("gpu") or {}).get("product")
    selector = {name: str(value) for name, value in (said["extraSelectors"] or {}).items()}
    return {
        "cpu_limit_millis": math.ceil(round(resources.cpu_millis * said["cpuLimitRatio"], 6)),
        "shm_mib": _mib(said["shmSizeGB"]),
        "node_selector": {**selector, **({GPU_PRODUCT: product} if product else {})},
        "tolerations": tuple(_toleration(TOLERATION.filled(each)) for each in said["extraTolerations"] or ()),
    }


def _toleration(said: Mapping[str, Any]) -> Toleration:
    return Toleration(**{name: str(said[name] or "") for name in ("key", "operator", "value", "effect")})


def _mib(gigabytes: float) -> int:
    return math.ceil(round(gigabytes * 1000**3 / 1024**2, 6))


def _env(document: Part, env: Mapping[str, str | None], context: SubmitContext) -> dict[str, str]:
    for name in env:
        line = document.at("spec", "env", name).line
        if name in PROTECTED_NAMES or name.startswith(PROTECTED_PREFIXES):
            raise UserError(
                f"{document.file}: line {line}: spec.env: {name} is protected: the yard sets it; choose another name"
            )
    return env_of(document, ("spec", "env"), env, context)


def _refuse_contradictions(document: Part, manifest: Mapping[str, Any]) -> None:
    built, run = manifest["builder"].get("image"), manifest["spec"]["image"]
    if built is not None and built != run:
        raise document.at("builder", "image").error(
            "builder.image", f"{built!r} is not spec.image {run!r}; write the same image in both"
        )
    clone = CLONE.filled(manifest.get("clone", {}))
    if clone["submodules"] != "false" and not clone["includeDotGit"]:
        raise document.at("clone", "submodules").error(
            "clone.submodules", f"{clone['submodules']!r} needs clone.includeDotGit: true"
        )


def _refuse_other_operators(document: Part, operator: str) -> None:
    if operator in NOT_RUN:
        raise document.at("spec", "operator").error(
            "spec.operator", f"{operator!r} is not run here, neither on machines nor on Kubernetes; {NOT_RUN[operator]}"
        )


def _build(builder: Mapping[str, Any], image: str) -> BuildRequest:
    said = BUILDER.filled(builder)
    skip = SKIP_BUILD.filled(said["skipBuild"] or {})
    return BuildRequest(
        image=image,
        registry=said["registry"] or "",
        context=said["context"],
        dockerfile=said["dockerfile"] or "",
        target=said["target"] or "",
        build_args=said["buildArgs"] or {},
        is_skipped=skip["enabled"],
        earlier_job=skip["experimentID"] or "",
        must_find=skip["failIfNotFound"],
    )


def image_note(image: str, *, is_for_pods: bool) -> str:
    """A note about an image that is not built."""
    if is_for_pods:
        return f"image {image!r} is not built: the cluster must be able to pull it"
    return f"image {image!r} is neither built nor used: the command runs in the directory of submission"


def _pod_notes(manifest: Mapping[str, Any], types: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Notes about fields that have no effect in pods."""
    spec = manifest["spec"]
    yield image_note(spec["image"], is_for_pods=True)
    for name in ("tensorboard", "rayVersion", "debug", "storage"):
        if spec.get(name):
            yield f"spec.{name} has no effect on Kubernetes yet"
    for name, group in types.items():
        if (RESOURCES.filled(group["resources"])["rdma"] or {}).get("devices"):
            yield f"spec.types.{name}.resources.rdma has no effect on Kubernetes yet"


def _notes(manifest: Mapping[str, Any], types: Mapping[str, Mapping[str, Any]], overrides: Overrides) -> Iterator[str]:
    """One note for each field that has no effect here."""
    spec = manifest["spec"]
    what = "containers" if overrides["container"] else "plain processes"
    together = ", which start together" if spec["operator"] == "pytorch" else ", one per completion"
    yield f"operator {spec['operator']} runs here as {what}{together}"
    if not overrides["container"]:
        yield image_note(spec["image"], is_for_pods=False)
    if CLONE.filled(manifest.get("clone", {})) != CLONE.filled({}):
        yield "clone has no effect: the files are used as they are"
    if spec.get("tensorboard", {}).get("enabled"):
        yield "spec.tensorboard has no effect: start TensorBoard yourself"
    if spec.get("rayVersion"):
        yield f"spec.rayVersion has no effect with operator {spec['operator']}"
    debug = spec.get("debug", {})
    if debug.get("jupyter") or debug.get("vscode", {}).get("enabled"):
        yield "spec.debug has no effect: there is no container to look into"
    storage = spec.get("storage", {})
    if storage.get("sharedVolume") or storage.get("attachExistingPVCs"):
        yield "spec.storage has no effect: nothing is mounted, tasks see this machine's own files"
    for name, group in types.items():
        yield from _resource_notes(f"spec.types.{name}.resources", RESOURCES.filled(group["resources"]))


def _resource_notes(path: str, said: Mapping[str, Any]) -> Iterator[str]:
    if said["cpuLimitRatio"] != 2:
        yield f"{path}.cpuLimitRatio has no effect: cores are reserved, not capped"
    if said["shmSizeGB"]:
        yield f"{path}.shmSizeGB has no effect: /dev/shm is this machine's own"
    product = ((said["accelerators"] or {}).get("gpu") or {}).get("product")
    if product:
        yield f"{path}.accelerators.gpu.product {product!r} has no effect: any GPU will do"
    if (said["rdma"] or {}).get("devices"):
        yield f"{path}.rdma has no effect: processes see this machine's network as it is"
    if said["extraSelectors"]:
        yield f"{path}.extraSelectors has no effect: choose machines with --on"
    if said["extraTolerations"]:
        yield f"{path}.extraTolerations has no effect: machines have no taints"
