"""Forbidden fields: what may a job not put into its pods, whoever submits it?

Pods are made with the yard's rights. So no job may run as the yard's own service account, mount Secrets or claims of
the yard or of another job, belong to another object, or, unless the cluster's settings allow it, reach into a node.
Other Secrets, claims and accounts of the namespace are there for jobs; Pod Security looks after the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from jobyard.errors import UserError
from jobyard.executors.kubernetes.kinds import kind_of
from jobyard.executors.kubernetes.raw import templates_of
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.kubernetes import SECRET_NAME
from jobyard.model.node import ClusterConfig

Object = dict[str, Any]
OWN_PREFIX = "jobyard"  # Secrets and claims of this name, or that begin with it and a hyphen, are the yard's own
DEFAULT_ACCOUNT = "default"
_ACCOUNT_FIELDS = ("serviceAccountName", "serviceAccount")
# Each of them is as good as the node itself: a privileged container can mount its disks.
_NODE_FLAGS = ("hostNetwork", "hostPID", "hostIPC", "privileged")
# By these, a controller would take a single Pod for one that it has made for another job.
_OF_CONTROLLERS = (
    "batch.kubernetes.io/",
    "controller-uid",
    "job-name",
    "jobset.sigs.k8s.io/",
    "pod-template-hash",
    "ray.io/",
    "training.kubeflow.org/",
)


class Own(NamedTuple):
    """What belongs to the yard, or to jobs that are there, in the namespace of a cluster."""

    account: str = ""  # the service account that the yard runs as; empty: none of this namespace
    secrets: frozenset[str] = frozenset()
    claims: frozenset[str] = frozenset()


def own_things(account: str, pods: Iterable[Object], storage: str) -> Own:
    """`pods` are those of the namespace. What pods that run as the yard's account mount is the yard's; so are the
    claims that Kubernetes makes for single pods, and that with everybody's checkpoints."""
    secrets: set[str] = set()
    claims = {storage} if storage else set()
    for pod in pods:
        spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
        is_ours = bool(account) and spec.get("serviceAccountName") == account
        for volume in spec.get("volumes") or ():
            if "ephemeral" in volume:
                claims.add(f"{name}-{volume['name']}")
            elif is_ours:
                claims |= {found for _, found in _claims(volume, "")}
        if is_ours:
            secrets |= {found for _, found in _secrets(spec, "")}
    return Own(account, frozenset(secrets), frozenset(claims))


def refuse_forbidden(job: SubmittedJob, config: ClusterConfig, own: Own) -> None:
    """Raises UserError in one sentence that names the field."""
    for volume in job.spec.kubernetes.volumes:
        _refuse_claim("--volume", volume.claim, own)
    for mount in job.spec.kubernetes.secrets:
        if not mount.is_made_for_a_job:
            raise UserError(f"secrets: Secret {mount.name!r} was not made for this job; use --mount-secret FILE=PATH")
    if job.spec.kubernetes.manifest:
        kind = kind_of(job.spec)
        try:
            manifest = json.loads(job.spec.kubernetes.manifest)
            said = (manifest["apiVersion"], manifest["kind"])
            templates = templates_of(manifest) if said == (kind.api_version, kind.name) else []
            if not templates or not all(isinstance(each["spec"], dict) for each in templates):
                raise ValueError(said)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise UserError(f"manifest: it is no {kind.name} of {kind.api_version} that has pods") from error
        refuse_object(manifest, config, own)


def refuse_object(manifest: Object, config: ClusterConfig, own: Own) -> None:
    """The same of an object that a user wrote."""
    metadata = manifest.get("metadata") or {}
    if metadata.get("ownerReferences"):
        raise UserError("metadata.ownerReferences: an object of a job belongs to its job alone; remove them")
    if manifest.get("kind") == "Pod":
        for label in metadata.get("labels") or {}:
            if label.startswith(_OF_CONTROLLERS):
                raise UserError(f"metadata.labels: {label} is for pods that a controller makes; remove it")
    for path, key, value in _fields(manifest, ""):
        if key in _ACCOUNT_FIELDS and own.account and value == own.account:
            raise UserError(f"{path}: {value!r} is the service account that the yard runs as; name another")
        if not config.allow_host_path and ((key == "hostPath" and value) or (key in _NODE_FLAGS and value is True)):
            raise UserError(
                f"{path}: it reaches into the node, and cluster {config.id} does not allow that;"
                " who runs the yard can: yard clusters add --allow-host-path"
            )
    for path, claim in _claims(manifest, ""):
        _refuse_claim(path, claim, own)
    for path, secret in _secrets(manifest, ""):
        if secret in own.secrets or _is_reserved(secret) or SECRET_NAME.fullmatch(secret):
            raise UserError(f"{path}: Secret {secret!r} is the yard's, or another job's; make one of your own")
    if own.account == DEFAULT_ACCOUNT:
        _refuse_default_account(manifest)


def _refuse_claim(path: str, claim: str, own: Own) -> None:
    if claim in own.claims or _is_reserved(claim):
        raise UserError(f"{path}: claim {claim!r} is the yard's, or another job's; name one of your own")


def _refuse_default_account(manifest: Object) -> None:
    for template in templates_of(manifest):
        if not any((template.get("spec") or {}).get(field) for field in _ACCOUNT_FIELDS):
            raise UserError(
                f"serviceAccountName: without one its pods run as {DEFAULT_ACCOUNT!r}, which the yard runs as;"
                " name another"
            )


def _is_reserved(name: str) -> bool:
    return name == OWN_PREFIX or name.startswith(f"{OWN_PREFIX}-")


def _fields(value: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """Everything inside, wherever it stands: operators have more places for a pod's fields than we know."""
    if isinstance(value, dict):
        for key, inner in value.items():
            where = f"{path}.{key}" if path else str(key)
            yield where, str(key), inner
            yield from _fields(inner, where)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _fields(inner, f"{path}[{index}]")


def _claims(value: Any, path: str) -> Iterator[tuple[str, str]]:
    for where, key, inner in _fields(value, path):
        if key == "claimName" and isinstance(inner, str):
            yield where, inner


def _secrets(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """`secretName`, `secretKeyRef`, `imagePullSecrets`, `nodePublishSecretRef` and whatever else names one."""
    for where, key, inner in _fields(value, path):
        if "secret" not in key.lower():
            continue
        for each in inner if isinstance(inner, list) else [inner]:
            name = each.get("name") if isinstance(each, dict) else each
            if isinstance(name, str):
                yield where, name
