"""What becomes of the Secrets that a submitter made for a job? They go with its last object.

The yard has no right to Secrets, and needs none: whoever made one let it belong to an empty ConfigMap of the same name.
When that goes, Kubernetes removes the Secret.
"""

from __future__ import annotations

import logging
from typing import Any

from jobyard.executors.kubernetes.client import Api, Refused, object_path
from jobyard.executors.kubernetes.rights import Right
from jobyard.model.job import JobSpec

log = logging.getLogger(__name__)

Object = dict[str, Any]
NEEDED = (Right("patch", "configmaps"), Right("delete", "configmaps"))


async def give_to(api: Api, spec: JobSpec, owner: Object) -> None:
    """From now on they go when it goes, and the other objects that they were given to. Repeatable."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    body = {"metadata": {"ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}]}}
    for path in _paths(api, spec):
        try:
            await api.patch(path, body, adds_to_lists=True)
        except Refused as refused:  # its pods wait for what is not there, and say so
            log.warning("job %s: its secret: %s", spec.name, refused)


async def remove(api: Api, spec: JobSpec) -> None:
    """Of a job that is over and has no object that could own them."""
    for path in _paths(api, spec):
        await api.delete(path)


def _paths(api: Api, spec: JobSpec) -> list[str]:
    names = dict.fromkeys(each.name for each in spec.secrets if each.is_made_for_a_job)
    return [object_path("v1", "configmaps", api.namespace, name) for name in names]
