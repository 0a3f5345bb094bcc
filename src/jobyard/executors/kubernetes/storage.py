"""Storage of a pod: where do its checkpoints and results go, and which claims does it see?"""

from __future__ import annotations

from typing import Any

from jobyard.model.kubernetes import SecretMount, Volume

Object = dict[str, Any]
DIRECTORY = "/yard"
CHECKPOINTS = f"{DIRECTORY}/checkpoints"
OUTPUT = f"{DIRECTORY}/output"
VOLUME = "yard"
SECRET_MODE = 0o444  # the image says which user reads it, and nobody else is in the pod


def yard_volume(claim: str) -> Object:
    """Without a claim, what is written ends with the pod."""
    return {"name": VOLUME, **({"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}})}


def yard_mounts(job_id: str, claim: str, task: str) -> list[Object]:
    """Two directories, which the kubelet makes where they are missing: no shell is needed for it.

    `task` tells tasks that share nothing from each other; it may be composed of variables, as in `$(JOB_INDEX)`.
    """
    mounts = []
    for path in (CHECKPOINTS, OUTPUT):
        parts = (*(("jobs", job_id) if claim else ()), path.removeprefix(f"{DIRECTORY}/"), *((task,) if task else ()))
        key = "subPathExpr" if "$(" in task else "subPath"
        mounts.append({"name": VOLUME, "mountPath": path, key: "/".join(parts)})
    return mounts


def claims(volumes: tuple[Volume, ...]) -> tuple[list[Object], list[Object]]:
    """The user's own, as volumes and mounts; a claim that is mounted twice is one volume."""
    names = {claim: f"claim-{index}" for index, claim in enumerate(dict.fromkeys(each.claim for each in volumes))}
    made = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in names.items()]
    mounts = [
        {"name": names[each.claim], "mountPath": each.path, **({"readOnly": True} if each.read_only else {})}
        for each in volumes
    ]
    return made, mounts


def secrets(wanted: tuple[SecretMount, ...]) -> tuple[list[Object], list[Object]]:
    """Each is one file, beside whatever the image has in that directory, and read-only."""
    names = {name: f"secret-{index}" for index, name in enumerate(dict.fromkeys(each.name for each in wanted))}
    made = [
        {"name": name, "secret": {"secretName": secret, "defaultMode": SECRET_MODE}} for secret, name in names.items()
    ]
    mounts = [
        {"name": names[each.name], "mountPath": each.path, "subPath": each.key, "readOnly": True} for each in wanted
    ]
    return made, mounts
