"""AIchorManifest fields: what may one say? Every field of versions 0.2.1 to 0.2.3 is known."""

from __future__ import annotations

from collections.abc import Mapping

from jobyard.manifests.field_values import DURATION, ENV
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
from jobyard.manifests.native import GROUP_NAME
from jobyard.model.limits import SECONDS_MOST, Gpus, TaskCount, TaskLimit

KIND = "AIchorManifest"
API_VERSIONS = ("0.2.1", "0.2.2", "0.2.3")

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
        "count": Field(Whole.within(Gpus), "GPUs of one task.", 0),
        "type": Field(TextType(), "gpu, or a MIG type.", "gpu"),
        "product": Field(TextType(), "The GPU's model, as the cluster labels it."),
    }
)
TPU = RecordType(
    {
        "type": Field(TextType(), "Such as tpu-v5-lite-podslice."),
        "topology": Field(TextType(r"^\d+(x\d+)+$", "chips by chips, as in 4x4"), "Chips of a slice, as in 4x4."),
        "tpuChipsCount": Field(Whole(1, 2**31 - 1), "Chips in each pod."),
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

_COUNT = Field(Whole.within(TaskCount), "Replicas; 0: none.", 1)
_RESOURCES = Field(RESOURCES, "what one task needs", required=True)
_RAY_PARAMETERS = Field(MapOf(Scalar()), "Parameters of ray start.")
WORKER = RecordType({"count": _COUNT, "resources": _RESOURCES})
JOBSET_TYPE = RecordType(
    {
        "count": _COUNT,
        "completions": Field(Whole.within(TaskLimit), "Tasks in each replica.", 1),
        "parallelisms": Field(Whole.within(TaskLimit), "At most so many tasks at once in each replica.", 1),
        "resources": _RESOURCES,
    }
)
RAY_HEAD = RecordType({"resources": _RESOURCES, "rayStartParams": _RAY_PARAMETERS})
RAY_WORKER = RecordType(
    {
        "name": Field(TextType(), "The worker group's name."),
        "count": Field(Whole.within(TaskCount), "Replicas.", 0),
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
        "depth": Field(Whole(1, 2**31 - 1), "Commits that are cloned.", 1),
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
                    "sizeGB": Field(Whole(1, 2**31 - 1), "Its size."),
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
        "activeDeadlineSeconds": Field(Whole(1, int(SECONDS_MOST)), "How long the experiment may run."),
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
