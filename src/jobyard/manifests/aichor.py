"""AIchorManifest: which job does it describe? Every field of versions 0.2.1 to 0.2.3 is known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.documents import Part
from jobyard.manifests.fields import (
    Anything,
    Choice,
    Field,
    FieldType,
    Flag,
    ListOf,
    MapOf,
    NumberType,
    RecordType,
    Scalar,
    TextType,
    Whole,
)
from jobyard.manifests.files import name_from_file
from jobyard.manifests.native import DURATION, ENV, GROUP_NAME
from jobyard.manifests.overrides import Overrides, apply, check_variable, parse_name
from jobyard.model.container import ContainerSpec
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.kubernetes import Toleration
from jobyard.model.policy import RunPolicy
from jobyard.model.resources import Resources
from jobyard.model.source import BuildRequest
from jobyard.model.units import parse_cpu_millis

KIND = "AIchorManifest"
API_VERSIONS = ("0.2.1", "0.2.2", "0.2.3")
KUBERNETES = "kubernetes"  # as in --on
GPU_PRODUCT = "nvidia.com/gpu.product"  # the label that NVIDIA's feature discovery puts on nodes

# What the platform sets in every container: a manifest that sets them too is refused at submit.
PROTECTED_NAMES = frozenset(
    {"JOB_INDEX", "JOB_GLOBAL_INDEX", "JOB_COMPLETION_INDEX"}
    | {"GLOBAL_REPLICAS", "REPLICATED_JOB_NAME", "REPLICATED_JOB_REPLICAS"}
)
PROTECTED_PREFIXES = ("AICHOR_", "YARD_", "VCS_")

RUN = ("jobset", "pytorch", "batchjob")
# Operators whose experiments are not run here, and what to do instead.
_RAY_INSTEAD = "submit a RayJob as it is, or a command with --on kubernetes --kind rayjob --workers N"
_OTHERWISE = f"run here are {', '.join(RUN)}"
NOT_RUN = {"kuberay": _RAY_INSTEAD, "ray": _RAY_INSTEAD} | dict.fromkeys(
    ("jax", "xgboost", "tf", "vertexai"), _OTHERWISE
)
OPERATORS = (*RUN, *NOT_RUN)

GPU = RecordType(
    {
        "count": Field(Whole(), "GPUs of one task.", 0),
        "type": Field(TextType(), "gpu, or a MIG type.", "gpu"),
        "product": Field(TextType(), "The GPU's model, as the cluster labels it."),
    }
)
TPU = RecordType(
    {
        "type": Field(TextType(), "Such as tpu-v5-lite-podslice."),
        "topology": Field(TextType(r"^\d+(x\d+)+$", "chips by chips, as in 4x4"), "Chips of a slice, as in 4x4."),
        "tpuChipsCount": Field(Whole(1), "Chips in each pod."),
    }
)
TOLERATION = RecordType(
    {
        "key": Field(TextType(), "The taint's key."),
        "operator": Field(Choice(("Equal", "Exists")), "How the value is compared.", "Equal"),
        "value": Field(Scalar(), "The taint's value."),
        "effect": Field(Choice(("NoSchedule", "PreferNoSchedule", "NoExecute")), "Which effect is tolerated."),
    }
)
RESOURCES = RecordType(
    {
        "cpus": Field(NumberType(above_zero=True), "Cores of one task.", 1),
        "cpuLimitRatio": Field(NumberType(above_zero=True), "CPU limit = cpus x this.", 2),
        "ramRatio": Field(NumberType(above_zero=True), "Memory in GB = cpus x this; or give memory."),
        "memory": Field(NumberType(above_zero=True), "Memory in GB; or give ramRatio."),
        "shmSizeGB": Field(NumberType(), "Size of /dev/shm.", 0),
        "accelerators": Field(RecordType({"gpu": Field(GPU, "GPUs."), "tpu": Field(TPU, "TPUs.")}), "GPUs or TPUs."),
        "rdma": Field(RecordType({"devices": Field(ListOf(TextType()), "Such as sriov_a.")}), "RDMA devices."),
        "extraSelectors": Field(MapOf(Scalar()), "Node selectors."),
        "extraTolerations": Field(ListOf(TOLERATION), "Tolerated taints."),
    },
    rules={"oneOf": [{"required": ["ramRatio"]}, {"required": ["memory"]}]},
)

_COUNT = Field(Whole(), "Replicas; 0: none.", 1)
_RESOURCES = Field(RESOURCES, "what one task needs", required=True)
_RAY_PARAMETERS = Field(MapOf(Scalar()), "Parameters of ray start.")
WORKER = RecordType({"count": _COUNT, "resources": _RESOURCES})
JOBSET_TYPE = RecordType(
    {
        "count": _COUNT,
        "completions": Field(Whole(1), "Tasks in each replica.", 1),
        "parallelisms": Field(Whole(1), "At most so many tasks at once in each replica.", 1),
        "resources": _RESOURCES,
    }
)
RAY_HEAD = RecordType({"resources": _RESOURCES, "rayStartParams": _RAY_PARAMETERS})
RAY_WORKER = RecordType(
    {
        "name": Field(TextType(), "The worker group's name."),
        "count": Field(Whole(), "Replicas.", 0),
        "resources": _RESOURCES,
        "rayStartParams": _RAY_PARAMETERS,
    }
)
_WORKERS = RecordType({"Master": Field(WORKER, ""), "Worker": Field(WORKER, ""), "worker": Field(WORKER, "")})
_ONE_WORKER = RecordType({"Worker": Field(WORKER, ""), "worker": Field(WORKER, "")})
_RAY = {"Head": Field(RAY_HEAD, "the head node", required=True), "Workers": Field(ListOf(RAY_WORKER), "Worker groups.")}

TYPES: Mapping[str, FieldType] = {
    "jobset": MapOf(JOBSET_TYPE, GROUP_NAME, least=1),
    "pytorch": _WORKERS,
    "xgboost": _WORKERS,
    "jax": _ONE_WORKER,
    "tf": _ONE_WORKER,
    "batchjob": _ONE_WORKER,
    "kuberay": RecordType(_RAY),
    "ray": RecordType({**_RAY, "Job": Field(RecordType({"resources": _RESOURCES}), "")}),
    "vertexai": RecordType({"workerPoolSpecs": Field(Anything(), "Read by Vertex AI.")}),
}

SKIP_BUILD = RecordType(
    {
        "enabled": Field(Flag(), "Use an earlier experiment's image.", False),
        "experimentID": Field(TextType(), "Whose image: a job's id; without it, the image of this name is there."),
        "failIfNotFound": Field(Flag(), "Fail instead of building.", False),
    }
)
BUILDER = RecordType(
    {
        "image": Field(TextType(), "The image that is built; the same as spec.image."),
        "dockerfile": Field(TextType(), "Relative to the context."),
        "context": Field(TextType(), "The directory that is built.", "."),
        "registry": Field(TextType(), "Where the image is pushed."),
        "target": Field(TextType(), "The stage that is built."),
        "buildArgs": Field(MapOf(Scalar()), "Arguments of the build."),
        "skipBuild": Field(SKIP_BUILD, "Use an earlier image."),
    }
)
CLONE = RecordType(
    {
        "depth": Field(Whole(1), "Commits that are cloned.", 1),
        "includeDotGit": Field(Flag(), "Keep .git.", False),
        "submodules": Field(Choice(("false", "true", "recursive")), "Only with includeDotGit.", "false"),
    }
)
DEBUG = RecordType(
    {
        "jupyter": Field(Flag(), "Start Jupyter.", False),
        "vscode": Field(
            RecordType(
                {
                    "enabled": Field(Flag(), "Start a VS Code tunnel.", False),
                    "path": Field(TextType(), "The directory it opens."),
                    "provider": Field(TextType(), "Who signs in."),
                }
            ),
            "A VS Code tunnel.",
        ),
    }
)
STORAGE = RecordType(
    {
        "sharedVolume": Field(
            RecordType(
                {
                    "mountPoint": Field(TextType(), "Where it is mounted."),
                    "sizeGB": Field(Whole(1), "Its size."),
                    "storageClass": Field(TextType(), "Its storage class."),
                    "accessMode": Field(
                        Choice(("ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany", "ReadWriteMany")),
                        "Its access mode.",
                    ),
                }
            ),
            "A volume that lives as long as the experiment.",
        ),
        "attachExistingPVCs": Field(
            ListOf(
                RecordType(
                    {
                        "name": Field(TextType(), "the claim's name", required=True),
                        "mountPoint": Field(TextType(), "where it is mounted", required=True),
                    }
                )
            ),
            "Volumes that stay.",
        ),
    }
)
SPEC = RecordType(
    {
        "operator": Field(Choice(OPERATORS), "what runs it", required=True),
        "image": Field(TextType(r"\S", "an image's name"), "the container image", required=True),
        "command": Field(TextType(r"\S", "what to run"), "what every task runs", required=True),
        "timeout": Field(DURATION, "How long the experiment may run; supersedes activeDeadlineSeconds."),
        "activeDeadlineSeconds": Field(Whole(1), "How long the experiment may run."),
        "env": Field(ENV, "Variables of all tasks."),
        "tensorboard": Field(RecordType({"enabled": Field(Flag(), "Start TensorBoard.", False)}), "TensorBoard."),
        "rayVersion": Field(TextType(), "kuberay only."),
        "debug": Field(DEBUG, "Debugging tools."),
        "storage": Field(STORAGE, "Volumes."),
        "types": Field(Anything(), "the kinds of workers", required=True),  # its shape depends on the operator
    }
)
MANIFEST = RecordType(
    {
        "kind": Field(Choice((KIND,)), "AIchorManifest.", KIND),
        "apiVersion": Field(Choice(API_VERSIONS), "The manifest's version.", API_VERSIONS[-1]),
        "name": Field(TextType(), "The experiment's name."),
        "builder": Field(BUILDER, "how the image is built; may be empty", required=True),
        "clone": Field(CLONE, "How the repository is cloned."),
        "spec": Field(SPEC, "what runs", required=True),
    }
)


def spec_from_aichor(document: Part, overrides: Overrides, context: SubmitContext) -> JobSpec:
    """The job that a manifest and the flags describe; its notes tell what has no effect on plain machines."""
    manifest = MANIFEST.read(document, "")
    spec = SPEC.filled(manifest["spec"])
    operator = spec["operator"]
    _refuse_other_operators(document, operator)
    types = TYPES[operator].read(spec["types"], "spec.types")
    _refuse_contradictions(document, manifest)
    deadline = spec["timeout"] or spec["activeDeadlineSeconds"]
    submitter = context.submitter("aichor", tuple(_notes(manifest, types, overrides)))
    job = JobSpec(
        name=_name(document, manifest),
        groups=_groups(document, operator, types, spec["command"], overrides),
        gang=operator == "pytorch",
        env=_env(document, spec["env"] or {}),
        workdir=context.workdir,
        policy=RunPolicy(deadline_seconds=float(deadline) if deadline else None),
        submitter=replace(submitter, cluster_notes=tuple(_pod_notes(manifest, types))),
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
        resources = _resources(document, name, own["resources"], overrides.cpus)
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


def _env(document: Part, env: Mapping[str, str]) -> dict[str, str]:
    for name in env:
        line = document.at("spec", "env", name).line
        if name in PROTECTED_NAMES or name.startswith(PROTECTED_PREFIXES):
            raise UserError(
                f"{document.file}: line {line}: spec.env: {name} is protected: the yard sets it; choose another name"
            )
        check_variable(name, f"{document.file}: line {line}: spec.env")
    return dict(env)


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
    what = "containers" if overrides.container else "plain processes"
    together = ", which start together" if spec["operator"] == "pytorch" else ", one per completion"
    yield f"operator {spec['operator']} runs here as {what}{together}"
    if not overrides.container:
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
