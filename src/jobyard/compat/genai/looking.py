"""Lookup: which jobs (of the yard and of others), which free GPUs, which quota are there now?"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from jobyard.client.api import YardClient
from jobyard.compat.genai.cluster import NamespaceApi
from jobyard.compat.genai.foreign import is_adopted, record_of_foreign
from jobyard.compat.genai.listing import Listing
from jobyard.compat.genai.records import COMPLETED, Identity, JobMetadata, record_of
from jobyard.compat.genai.service_state import ServiceState
from jobyard.errors import NotFound, UserError, YardError
from jobyard.model.job import State
from jobyard.model.node import ClusterConfig, NodeState, place_of
from jobyard.wire.views import ClusterView, GroupView, JobView, NodeView

ALL_JOBS = 10_000
OBJECT_NAME = re.compile(r"-([0-9a-z]{8})(?:-a[0-9]+)?$")  # `<name>-<id>-a<attempt>`, as the yard calls its objects


class Look(NamedTuple):
    """The jobs at one moment. `completed` also has jobs that are not listed any more."""

    records: list[JobMetadata]
    completed: set[Identity]


class Looking:
    """Everything is looked up when it is asked for; `state` is what a serving process was told."""

    def __init__(
        self,
        connect: Callable[[], YardClient],
        cluster_name: str = "",
        reach: Callable[[ClusterView], NamespaceApi] | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`cluster_name`: which of the yard's clusters, if it has several."""
        self._connect = connect
        self._cluster_name = cluster_name
        self._reach = reach or _reach
        self._client: YardClient | None = None
        self._clusters: dict[str, NamespaceApi] = {}  # by the yard's name of each
        self._cluster_id = ""
        self._warn = warn
        self._last_warning = ""
        self._groups: dict[str, tuple[GroupView, ...]] = {}  # by job: what it asks for never changes
        self._listing = Listing(self._cluster_of, lambda job, words: self.client.annotate(job, words))
        self.state = ServiceState()

    @property
    def client(self) -> YardClient:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def records(self) -> list[JobMetadata]:
        """The yard's jobs that train or are on a cluster, and the adopted; of one name the newest."""
        return self.look().records

    def look(self) -> Look:
        nodes = self.client.nodes()
        most = max((len(node.devices) for node in nodes), default=0)
        jobs = [job for job in self.client.jobs(all=True, limit=ALL_JOBS) if job.training or job.cluster]
        newest = {job.name: job for job in sorted(self._listing.listed(jobs), key=lambda job: job.number)}
        ours = [record_of(self._with_groups(job), most) for job in newest.values()]
        others = self._foreign()
        records = [*ours, *(each for each in others if each.job_name not in newest)]
        completed = {each.identity for each in others if each.status == COMPLETED}
        completed |= {(job.name, job.id, int(job.submitted_at)) for job in jobs if job.state is State.SUCCEEDED}
        return Look([self.state.see(each) for each in records], completed)

    def record(self, name: str) -> JobMetadata:
        """By a job's name, or by that of its object in the cluster. Raises NotFound."""
        records = self.records()
        found = next((each for each in records if each.job_name == name), None)
        if found is None and (match := OBJECT_NAME.search(name)):
            found = next((each for each in records if each.key == match[1]), None)
        if found is None:
            raise NotFound(f"there is no job {name!r}")
        return found

    def free_gpus(self) -> dict[str, int]:
        """By node; those without a free one are left out."""
        counts = {_shown(node): free_on(node) for node in self._nodes()}
        return {node: count for node, count in counts.items() if count}

    def quota(self, namespace: str) -> tuple[str, str]:
        """Limit and use, as the cluster writes them. Raises NotFound."""
        cluster = self.cluster()
        if cluster is None:
            raise NotFound("this yard has no Kubernetes cluster, and so no quota; `yard clusters add` adds one")
        return cluster.quota(namespace)

    def cluster(self) -> NamespaceApi | None:
        """None: the yard has none. Raises YardError where it cannot be reached from here."""
        if not self._cluster_id and (view := self.cluster_view()) is not None:
            self._cluster_id = view.id
        return self._cluster_of(self._cluster_id) if self._cluster_id else None

    def _cluster_of(self, name: str) -> NamespaceApi:
        """One of those of the yard. Raises YardError where it cannot be reached from here."""
        if name not in self._clusters:
            view = next((each for each in self.client.clusters() if each.id == name), None)
            if view is None:
                raise NotFound(f"the yard has no cluster {name!r} any more")
            self._clusters[name] = self._reach(view)
        return self._clusters[name]

    def cluster_view(self) -> ClusterView | None:
        views = self.client.clusters()
        named = [each for each in views if each.id == self._cluster_name or not self._cluster_name]
        if self._cluster_name and not named:
            known = ", ".join(each.id for each in views) or "none"
            raise UserError(f"GENAI_CLUSTER: the yard has no cluster {self._cluster_name!r}; it has {known}")
        return named[0] if named else None

    # -- below

    def _with_groups(self, job: JobView) -> JobView:
        """A list of jobs has no resources for jobs that do not train: they are fetched one by one."""
        if job.training:
            return job
        if job.id not in self._groups:
            self._groups[job.id] = self.client.job(job.id).groups
        return replace(job, groups=self._groups[job.id])

    def _foreign(self) -> list[JobMetadata]:
        try:
            cluster = self.cluster()
            jobs = cluster.jobs() if cluster else []
        except YardError as error:  # the yard's own jobs are shown even if the cluster does not answer
            if str(error) != self._last_warning:
                self._warn(f"PyTorchJobs of others are not shown: {error}")
            self._last_warning = str(error)
            return []
        self._last_warning = ""
        return [record_of_foreign(job) for job in jobs if is_adopted(job)]

    def _nodes(self) -> list[NodeView]:
        nodes = self.client.nodes()
        view = self.cluster_view()
        return [node for node in nodes if place_of(node.id) == view.id] if view else list(nodes)


def _reach(view: ClusterView) -> NamespaceApi:
    return NamespaceApi(ClusterConfig(view.id, view.kubeconfig, view.context, view.namespace))


def free_on(node: NodeView) -> int:
    """How many of its GPUs are free."""
    if node.state is not NodeState.UP:
        return 0
    return sum(not (each.reserved_mib or each.foreign_mib or each.reserved_percent) for each in node.devices)


def _shown(node: NodeView) -> str:
    """As the cluster calls it."""
    return node.id.partition("/")[2] or node.id
