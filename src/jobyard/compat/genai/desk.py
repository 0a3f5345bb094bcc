"""What can be asked about jobs and done with them, whoever made them?"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from jobyard.cli.output.text import harmless
from jobyard.client.api import YardClient
from jobyard.compat.genai.cluster import Cluster, Left
from jobyard.compat.genai.errors import NotPossible
from jobyard.compat.genai.fitting import best_fit
from jobyard.compat.genai.foreign import LIMIT, REPLICAS, REQUEST, is_a_yards, is_adopted, record_of_foreign
from jobyard.compat.genai.listing import Listing
from jobyard.compat.genai.memory import Memory
from jobyard.compat.genai.records import COMPLETED, Identity, Record, candidates, record_of
from jobyard.compat.genai.told import Report, annotation_of
from jobyard.errors import NotFound, Unavailable, Unreachable, UserError, YardError
from jobyard.model.job import State
from jobyard.model.node import ClusterConfig, NodeState, place_of
from jobyard.wire.views import ClusterView, GroupView, JobView, NodeView

ALL_JOBS = 10_000
OBJECT_NAME = re.compile(r"-([0-9a-z]{8})(?:-a[0-9]+)?$")  # `<name>-<id>-a<attempt>`, as the yard calls its objects


class Look(NamedTuple):
    """What is there at one moment. Who has completed is among them, also where it is listed no more."""

    records: list[Record]
    completed: set[Identity]


class Desk:
    """Everything is looked up when it is asked for; `memory` has what a process that serves was told."""

    def __init__(
        self,
        connect: Callable[[], YardClient],
        cluster_name: str = "",
        at_once: bool = False,
        reach: Callable[[ClusterView], Cluster] | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`cluster_name`: which of the yard's clusters, if it has several. `at_once`: who is to grow does not wait for
        its next checkpoint."""
        self._connect = connect
        self._cluster_name = cluster_name
        self._reach = reach or _reach
        self._client: YardClient | None = None
        self._clusters: dict[str, Cluster] = {}  # by the yard's name of each
        self._cluster_id = ""
        self._warn = warn
        self._last_warning = ""
        self._unfinished: dict[str, str] = {}  # why, by a job's name: told once
        self._groups: dict[str, tuple[GroupView, ...]] = {}  # by job: what it asks for never changes
        self._listing = Listing(self._cluster_of, lambda job, words: self.client.annotate(job, words))
        self._giving = threading.Lock()  # or two would be given the same GPUs
        self.memory = Memory()
        self.at_once = at_once

    # -- looking

    @property
    def client(self) -> YardClient:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def records(self) -> list[Record]:
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
        return Look([self.memory.see(each) for each in records], completed)

    def record(self, name: str) -> Record:
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
        counts = {_shown(node): _free(node) for node in self._nodes()}
        return {node: count for node, count in counts.items() if count}

    def quota(self, namespace: str) -> tuple[str, str]:
        """Limit and use, as the cluster writes them. Raises NotFound."""
        cluster = self.cluster()
        if cluster is None:
            raise NotFound("this yard has no Kubernetes cluster, and so no quota; `yard clusters add` adds one")
        return cluster.quota(namespace)

    def cluster(self) -> Cluster | None:
        """None: the yard has none. Raises YardError where it cannot be reached from here."""
        if not self._cluster_id and (view := self.cluster_view()) is not None:
            self._cluster_id = view.id
        return self._cluster_of(self._cluster_id) if self._cluster_id else None

    def _cluster_of(self, name: str) -> Cluster:
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

    # -- doing

    def scale(self, name: str | None = None) -> str:
        """Give a job what fits best; without a name the first of those who are next. What happens, in one sentence.

        Raises NotPossible, or NotFound.
        """
        with self._giving:
            if name is not None:
                return self._grow(self.record(name))
            return self._first_of(candidates(self.records()), self._resize)

    def make_use_of_room(self, records: list[Record]) -> str:
        """A job has ended: the next one for which there is room grows, at once or after its next checkpoint.

        What happens; empty: nothing yet. The yard itself lets a job grow that counts its epochs: while one is being
        resized nobody else is chosen. Raises NotPossible where there is room for nobody.
        """
        if any(each.is_resizing for each in records) or not self._giving.acquire(blocking=False):
            return ""
        try:
            free = [each for each in records if not self.memory.is_waiting(each)]
            return self._first_of(candidates(free), self._resize_in_time)
        finally:
            self._giving.release()

    def tell(self, record: Record, report: Report) -> Record:
        """Keep what a job told of a checkpoint: on the job itself, so that every process shows it. Its record then.

        A report that is older than what is known changes nothing. Where it cannot be written this process alone
        shows it, and says so.
        """
        if report.at < record.last_checkpoint_time or report.at == report.before:
            return record
        report = replace(report, total_epochs=report.total_epochs or record.total_epochs)
        self.memory.tell(record.job_name, report)
        try:
            if record.is_ours:
                self.client.annotate(record.key, annotation_of(report))
            elif cluster := self.cluster():
                cluster.annotate(record.job_name, **annotation_of(report))
        except YardError as error:
            self._warn(f"the checkpoint of job {record.job_name} is shown by this process alone: {error}")
        return self.memory.see(record)

    def has_saved(self, record: Record) -> str:
        """A job told of a checkpoint: was it waiting for that? What happens; empty: nothing.

        Where there is no room for it any more it is the next one's turn.
        """
        if not self.memory.take(record):
            return ""
        try:
            return self.scale(record.job_name)
        except YardError as error:
            nobody = f"nobody grows: {error}"
        with suppress(YardError):
            others = [each for each in self.records() if each.identity != record.identity]
            return self.make_use_of_room(others) or nobody
        return nobody

    def _first_of(self, records: Iterable[Record], give: Callable[[Record, int], str]) -> str:
        """Raises NotPossible where none of them can be given more: what stands in the way of the first."""
        nodes, refusals = self._nodes(), list[str]()
        for record in records:
            try:
                gpus = self._offer(record, nodes)
            except YardError as error:
                refusals.append(str(error))
                continue
            try:
                return give(record, gpus)
            except (Unavailable, Unreachable):  # it may have been begun: the next one would be given the same GPUs
                raise
            except YardError as error:  # such as one of others that we may not change
                refusals.append(str(error))
        raise NotPossible(refusals[0] if refusals else "there is no job to scale: none runs")

    def _grow(self, record: Record) -> str:
        return self._resize(record, self._offer(record, self._nodes()))

    def _offer(self, record: Record, nodes: list[NodeView]) -> int:
        """How many GPUs it can have, which are more than it has. Raises NotPossible."""
        if record.has_ended:
            raise NotPossible(f"job {record.job_name} has ended ({record.status})")
        if record.is_resizing:
            raise NotPossible(f"job {record.job_name} is being resized already")
        if not record.gpu_assigned:
            why = f": {harmless(record.message)}" if record.message else ""
            raise NotPossible(f"job {record.job_name} waits and gets what fits when it starts{why}")
        if not record.missing:
            raise NotPossible(f"job {record.job_name} has all the GPUs that it can have ({record.gpu_lim})")
        gpus = self._best_fit(record, nodes)
        if gpus <= record.gpu_assigned:
            has = f"{record.gpu_assigned} of {record.gpu_lim} GPUs"
            raise NotPossible(f"job {record.job_name} has {has}, and there is no room for more")
        return gpus

    def _resize_in_time(self, record: Record, gpus: int) -> str:
        if self.at_once or (record.is_ours and record.has_saved):  # the yard waits for its checkpoint itself
            return self._resize(record, gpus)
        self.memory.let_wait(record)
        return f"{record.job_name} grows after its next checkpoint"

    def _resize(self, record: Record, gpus: int) -> str:
        change = f"{record.job_name} goes from {record.gpu_assigned} to {gpus} GPUs"
        if not record.is_ours:
            cluster = self.cluster()
            assert cluster is not None  # or we would not know of it
            cluster.scale(record.job_name, gpus)
            return change
        try:
            self.client.scale_job(record.key, gpus=gpus)
        except NotFound:
            raise
        except UserError as error:
            raise NotPossible(str(error)) from error
        self.memory.sized[record.key] = gpus
        return f"{change}{' at its next checkpoint' if record.has_saved else ''}"

    def delete(self, name: str) -> str:
        """Stop it, and remove what is left of it and of those that had its name before. What was done, in one sentence.

        Raises NotFound.
        """
        record = self.record(name)
        if not record.is_ours:
            cluster = self.cluster()
            assert cluster is not None
            cluster.delete(record.job_name)
            self.memory.added.discard(record.job_name)
            return f"{record.job_name} is deleted"
        if not record.has_ended:
            self.client.cancel(record.key, message="deleted by its user")
            try:
                self._clear(record.job_name)
            except YardError as error:  # what was asked for is done all the same
                return f"{record.job_name} is stopped; what earlier jobs of its name left is not all removed: {error}"
            return f"{record.job_name} is stopped and deleted"
        left = ", ".join(f"{each.kind} {each.name}" for each in self._clear(record.job_name))
        said = f"removed from the cluster: {left}" if left else "nothing of it was left to delete"
        return f"{record.job_name} had ended ({record.status}); {said}"

    def _clear(self, name: str) -> list[Left]:
        """Remove what jobs of a name left that have ended; what that was. Raises YardError where some of it stays."""
        ended = [job for job in self.client.jobs(all=True, limit=ALL_JOBS) if job.state.is_final]
        return self._listing.clear(job for job in ended if job.name == name)

    def adopt(self, name: str, request: int, limit: int, replicas: int) -> Record:
        """Take a PyTorchJob in that other hands made; what its annotations do not say is written to them.

        Raises NotFound where there is none.
        """
        cluster = self.cluster()
        missing = NotFound(f"there is no PyTorchJob {name!r} in the cluster; `deploy -f FILE` makes jobs")
        if cluster is None:
            raise missing
        try:
            job = cluster.job(name)
        except NotFound:
            raise missing from None
        if is_a_yards(job):
            raise UserError(f"PyTorchJob {name!r} is a yard's own")
        if not is_adopted(job):
            job = cluster.annotate(name, **{REPLICAS: str(replicas), REQUEST: str(request), LIMIT: str(limit)})
        self.memory.added.add(name)
        return self.memory.see(record_of_foreign(job))

    def tidy(self, records: Iterable[Record]) -> None:
        """What a process that serves does now and then: let go what was held, finish what was begun."""
        unfinished: dict[str, str] = {}
        for record in records:
            try:
                self._finish(record)
            except YardError as error:  # one that cannot go on holds up nobody else
                unfinished[record.job_name] = str(error)
                if self._unfinished.get(record.job_name) != str(error):
                    self._warn(f"job {record.job_name} is not yet as it was asked to be: {error}")
        self._unfinished = unfinished

    def _finish(self, record: Record) -> None:
        if record.is_ours and self.memory.sized.get(record.key) == record.gpu_assigned and not record.is_resizing:
            if not record.has_ended:  # it has the size that we gave it; from now on the scheduler may choose again
                self.client.scale_job(record.key)
            del self.memory.sized[record.key]
        if record.is_marked and (cluster := self.cluster()):
            cluster.go_on(record.job_name)

    # -- below

    def _with_groups(self, job: JobView) -> JobView:
        """Lists do not say what a job asks for that does not train."""
        if job.training:
            return job
        if job.id not in self._groups:
            self._groups[job.id] = self.client.job(job.id).groups
        return replace(job, groups=self._groups[job.id])

    def _foreign(self) -> list[Record]:
        try:
            cluster = self.cluster()
            jobs = cluster.jobs() if cluster else []
        except YardError as error:  # the yard's own jobs are shown whatever becomes of the cluster
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

    def _best_fit(self, record: Record, nodes: list[NodeView]) -> int:
        free = {node.id: _free(node) for node in nodes}
        own = Counter(self._nodes_of(record))
        has = {node: count * record.gpu_assigned for node, count in own.items()}
        if record.is_ours and not any("/" in node for node in own):
            free = {node: count for node, count in free.items() if node in own}  # its checkpoint is on its machine
        return best_fit(record.gpu_lim, record.gpu_assigned, record.replicas, free, has, self._quota_free(record))

    def _nodes_of(self, record: Record) -> list[str]:
        if record.is_ours:
            return [task.node for task in self.client.tasks(record.key, limit=1000) if task.state.is_active]
        cluster, view = self.cluster(), self.cluster_view()
        assert cluster is not None
        assert view is not None
        return [f"{view.id}/{node}" for node in cluster.nodes_of(record.job_name) if node]

    def _quota_free(self, record: Record) -> int | None:
        """None: there is no quota, or we cannot see it; what is the yard's own the yard itself keeps within it."""
        try:
            cluster = self.cluster()
            limit, used = cluster.quota(cluster.namespace) if cluster else ("", "")
        except NotFound:
            return None
        except YardError:
            if record.is_ours:
                return None
            raise
        return int(limit) - int(used) if limit else None


def _reach(view: ClusterView) -> Cluster:
    return Cluster(ClusterConfig(view.id, view.kubeconfig, view.context, view.namespace))


def _free(node: NodeView) -> int:
    if node.state is not NodeState.UP:
        return 0
    return sum(not (each.reserved_mib or each.foreign_mib or each.reserved_percent) for each in node.devices)


def _shown(node: NodeView) -> str:
    """As the cluster calls it."""
    return node.id.partition("/")[2] or node.id
