"""Rights in a cluster: may we do what we shall have to? Asked of the API server, before any job depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from jobyard.errors import UserError
from jobyard.executors.kubernetes.kinds import KINDS, Kind
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.paths import object_path
from jobyard.kubernetes.refusals import Refused
from jobyard.model.node import ClusterConfig

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
KUEUE = "kueue.x-k8s.io"
VERBS = ("list", "watch", "create", "patch", "delete")  # of objects that are jobs


class Right(NamedTuple):
    """`resource` may be that of a part: `pods/log`."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def rights_on(kind: Kind) -> list[Right]:
    return [Right(verb, kind.plural, kind.group) for verb in VERBS]


STOPPING = (Right("create", "pods/exec"), Right("get", "pods/exec"))  # a stop file is written in the pod

# Without one of these some job could be begun and not be ended, or not be heard of. Nodes are asked for by the watch.
NEEDED = (
    *rights_on(KINDS["Job"]),
    *(Right(verb, "pods") for verb in ("list", "watch", "delete")),
    Right("get", "pods/log"),
    *(Right(verb, "resourcequotas") for verb in ("list", "watch")),
    *(Right(verb, resource) for resource in ("configmaps", "services") for verb in ("create", "patch")),
)


async def check_place(api: Api, config: ClusterConfig) -> None:
    """Raises UserError with one sentence where the namespace, the queue or a right is not there."""
    await _check_namespace(api)
    if missing := await lacking(api, NEEDED):
        raise UserError(await sentence(api, missing))
    if config.queue:
        await _check_queue(api, config.queue)


async def sentence(api: Api, missing: Right) -> str:
    return (
        f"{await _who(api)} may not {missing} in namespace {api.namespace};"
        " deploy/base/permissions.yaml has all that a yard needs"
    )


async def service_account(api: Api) -> str:
    """As which of this namespace we are here; empty: as none of them, or the cluster does not tell."""
    system, _, name = (await _user(api)).rpartition(":")
    return name if system == f"system:serviceaccount:{api.namespace}" else ""


async def _who(api: Api) -> str:
    name = await _user(api)
    return f"user {name}" if name else "its user"


async def _user(api: Api) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await api.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    except Refused:
        return ""
    return str(answer["status"]["userInfo"].get("username", ""))


async def lacking(api: Api, rights: Iterable[Right]) -> Right | None:
    """The first that we have not; None: we have all, or the cluster does not tell."""
    rights = list(rights)
    allowed = await asyncio.gather(*(_is_allowed(api, right) for right in rights))
    return next((right for right, is_allowed in zip(rights, allowed, strict=True) if not is_allowed), None)


async def _is_allowed(api: Api, right: Right) -> bool:
    resource, _, part = right.resource.partition("/")
    asked = {"namespace": api.namespace, "verb": right.verb, "group": right.group, "resource": resource}
    spec = {"resourceAttributes": {**asked, **({"subresource": part} if part else {})}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    try:
        answer = await api.create(REVIEWS, body)
    except Refused:
        return True  # then a refusal is reported when it happens
    return bool(answer["status"]["allowed"])


async def may_list_all_pods(api: Api) -> bool:
    """Pods of other namespaces use room too. Without that permission only those of ours are counted."""
    try:
        await api.get(object_path("v1", "pods", ""), limit="1")
    except Refused as refused:
        if not refused.is_forbidden:
            raise
        return False
    return True


async def may_use(api: Api, kind: Kind) -> bool:
    """What an operator brings and we have no right to is left alone: jobs of that kind hear of it."""
    return await has_kind(api, kind) and (not kind.operator or await lacking(api, rights_on(kind)) is None)


async def has_kind(api: Api, kind: Kind) -> bool:
    """Is the operator there that brings it?"""
    if not kind.operator:
        return True
    try:
        found = await api.get(f"/apis/{kind.api_version}")
    except Refused as refused:
        if refused.is_absent:
            return False
        raise
    return any(each["name"] == kind.plural for each in found.get("resources", ()))


async def _check_namespace(api: Api) -> None:
    """Without the right to look at namespaces, a missing one is noticed when an object is made there."""
    try:
        await api.get(object_path("v1", "namespaces", "", api.namespace))
    except Refused as refused:
        if refused.is_absent:
            raise UserError(
                f"there is no namespace {api.namespace} in it; create it, or name another with --namespace"
            ) from refused
        if not refused.is_forbidden or refused.status == 401:
            raise


async def kueue_version(api: Api) -> str:
    """The one of Kueue's API that the cluster prefers. Raises UserError where there is no Kueue."""
    try:
        version: str = (await api.get(f"/apis/{KUEUE}"))["preferredVersion"]["groupVersion"]
    except Refused as refused:
        if not refused.is_absent:
            raise
        raise UserError(
            "it has no Kueue: install it (https://kueue.sigs.k8s.io), or add the cluster without --queue"
        ) from refused
    return version


async def _check_queue(api: Api, queue: str) -> None:
    queues = object_path(await kueue_version(api), "localqueues", api.namespace)
    try:
        await api.get(f"{queues}/{queue}")
    except Refused as refused:
        if refused.is_absent:
            raise UserError(
                f"there is no LocalQueue {queue} in namespace {api.namespace}; create it, or name another with --queue"
            ) from refused
        if not refused.is_forbidden:
            raise
