"""Admission of a job: would the cluster take it? Asked of the API server itself, without keeping anything."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jobyard.errors import Unavailable, UserError, WebhookRefused
from jobyard.executors.kubernetes import secrets
from jobyard.executors.kubernetes.forbidden import own_things, refuse_forbidden
from jobyard.executors.kubernetes.kinds import Kind, kind_of
from jobyard.executors.kubernetes.link import ClusterLink
from jobyard.executors.kubernetes.object_keys import ObjectKey, Scope
from jobyard.executors.kubernetes.rights import STOPPING, Right, has_kind, lacking, rights_on, sentence
from jobyard.executors.kubernetes.watches import Watches
from jobyard.executors.protocol import SubmittedJob
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.refusals import Refused
from jobyard.model.job import JobSpec
from jobyard.model.node import ClusterConfig

Object = dict[str, Any]
MOST_ACCEPTED = 1000
ACCEPTED_SECONDS = 300.0


class Admission:
    """To one cluster. `build` makes the objects of a job, for a namespace, as they would be sent."""

    def __init__(
        self,
        config: ClusterConfig,
        link: ClusterLink,
        watches: Watches,
        build: Callable[[SubmittedJob, ObjectKey, str], list[Object]],
    ) -> None:
        self._config = config
        self._link = link
        self._watches = watches
        self._build = build
        self._beginning = asyncio.Lock()
        self._accepted: dict[str, float] = {}  # shapes of objects that the API server would take, and when it said so

    async def check(self, job: SubmittedJob) -> None:
        """Raises UserError in the cluster's words. What jobs of that kind need to be followed is watched afterwards."""
        api = await self._link.ready()
        kind = kind_of(job.spec)
        if job.spec.kubernetes.manifest or job.spec.kubernetes.volumes or job.spec.kubernetes.secrets:
            own = own_things(self._link.account, self._watches.pods_in(api.namespace), self._config.storage)
            refuse_forbidden(job, self._config, own)
        await secrets.refuse_taken(api, job.spec)
        first, *_ = self._build(job, ObjectKey(Scope.WHOLE, 1), api.namespace)
        if kind.name != "Pod":
            async with self._beginning:
                if not self._watches.has(kind):
                    await self._begin_watching(api, kind)
        shape = self._shape_of(job, api.namespace)
        if time.monotonic() - self._accepted.get(shape, -ACCEPTED_SECONDS) < ACCEPTED_SECONDS:
            return  # it was asked just now, about the same under another name
        await self._try(api, job.spec, kind, first)
        if len(self._accepted) >= MOST_ACCEPTED:
            self._accepted.clear()
        self._accepted[shape] = time.monotonic()

    async def _try(self, api: Api, spec: JobSpec, kind: Kind, first: Object) -> None:
        cluster = self._config.id
        try:
            if missing := await lacking(api, _needed_by(spec, kind)):
                raise UserError(f"cluster {cluster}: {await sentence(api, missing)}")
            await api.create(kind.collection(api.namespace), first, dryRun="All", fieldValidation="Strict")
        except Refused as refused:
            error_class = WebhookRefused if refused.is_of_webhook else UserError
            raise error_class(f"cluster {cluster} refuses the {kind.name}: {refused}") from refused
        except Unavailable as error:
            raise UserError(f"cluster {cluster}: {error}") from error

    def _shape_of(self, job: SubmittedJob, namespace: str) -> str:
        nameless = job._replace(spec=replace(job.spec, name="job"))
        return json.dumps(self._build(nameless, ObjectKey(Scope.WHOLE, 1), namespace), sort_keys=True)

    async def _begin_watching(self, api: Api, kind: Kind) -> None:
        cluster = self._config.id
        try:
            if not await has_kind(api, kind):
                raise UserError(f"cluster {cluster} has no {kind.name}: install {kind.operator}, or ask who runs it to")
            if missing := await lacking(api, rights_on(kind)):
                raise UserError(f"cluster {cluster}: {await sentence(api, missing)}")
        except (Refused, Unavailable) as error:
            raise UserError(f"cluster {cluster}: {error}") from error
        await self._watches.start_one(kind, api.namespace)


def _needed_by(spec: JobSpec, kind: Kind) -> list[Right]:
    """Rights that not every job needs. Those on what operators bring are asked for when that is first watched."""
    return [
        *(secrets.NEEDED if spec.kubernetes.secrets else ()),
        *(STOPPING if spec.training is not None else ()),
        *(rights_on(kind) if kind.name == "Pod" else ()),
    ]
