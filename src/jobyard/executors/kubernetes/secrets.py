"""Secrets of a job: when does one that its submitter made go? With the job's last object.

The yard has no right to Secrets, and needs none: whoever made one let it belong to an empty ConfigMap of the same name.
When that goes, Kubernetes removes the Secret.
"""

from __future__ import annotations

from typing import Any

from jobyard.errors import UserError
from jobyard.executors.kubernetes import names
from jobyard.executors.kubernetes.kinds import Kind
from jobyard.executors.kubernetes.rights import Right
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.paths import object_path
from jobyard.kubernetes.refusals import Refused
from jobyard.model.job import JobSpec

Object = dict[str, Any]
NEEDED = (Right("patch", "configmaps"), Right("delete", "configmaps"))


async def refuse_taken(api: Api, spec: JobSpec) -> None:
    """Before a job is taken: raises UserError where a Secret that it names was made for another one."""
    for path in _paths(api, spec):
        try:
            found = await api.get(path)
        except Refused as refused:
            if refused.is_absent or refused.is_forbidden:
                continue  # then its pods wait for it, and say so
            raise
        if names.JOB in (found["metadata"].get("labels") or {}):
            name = found["metadata"]["name"]
            raise UserError(f"secrets: Secret {name!r} was made for another job; use --mount-secret FILE=PATH")


async def are_kept(api: Api, spec: JobSpec, job_id: str) -> bool:
    """They stay for the job's next attempt, whichever object is deleted. False: they are gone already."""
    try:
        for path in _paths(api, spec):
            await api.patch(path, {"metadata": {"labels": {names.JOB: job_id}, "ownerReferences": None}})
    except Refused as refused:
        if refused.is_absent:
            return False
        raise
    return True


async def give_to(api: Api, spec: JobSpec, kind: Kind, owner: Object) -> None:
    """Of a job that is over: from now on they go when this object goes."""
    reference = {"apiVersion": kind.api_version, "kind": kind.name, "name": owner["metadata"]["name"]}
    body = {"metadata": {"ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}]}}
    for path in _paths(api, spec):
        try:
            await api.patch(path, body)
        except Refused as refused:
            if not refused.is_absent:
                raise


async def remove(api: Api, spec: JobSpec) -> None:
    """Of a job that is over and has no object that could own them."""
    for path in _paths(api, spec):
        await api.delete(path)


def _paths(api: Api, spec: JobSpec) -> list[str]:
    names = dict.fromkeys(each.name for each in spec.kubernetes.secrets if each.is_made_for_a_job)
    return [object_path("v1", "configmaps", api.namespace, name) for name in names]
