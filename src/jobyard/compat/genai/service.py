"""Service: what can be done with jobs, no matter who created them? Scale, report a checkpoint, delete, adopt."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from jobyard.client.api import YardClient
from jobyard.compat.genai.checkpoint_reports import Report, annotation_of
from jobyard.compat.genai.cluster import Left, NamespaceApi
from jobyard.compat.genai.errors import NotPossible
from jobyard.compat.genai.fitting import best_fit
from jobyard.compat.genai.foreign import LIMIT, REPLICAS, REQUEST, is_a_yards, is_adopted, record_of_foreign
from jobyard.compat.genai.looking import ALL_JOBS, Looking, free_on
from jobyard.compat.genai.records import JobMetadata, candidates
from jobyard.console import harmless
from jobyard.errors import NotFound, Unavailable, Unreachable, UserError, YardError
from jobyard.wire.views import ClusterView, NodeView


class Service(Looking):
    """Scaling, checkpoint reports, deletion and adoption of jobs."""

    def __init__(
        self,
        connect: Callable[[], YardClient],
        cluster_name: str = "",
        at_once: bool = False,
        reach: Callable[[ClusterView], NamespaceApi] | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`at_once`: a job that is to grow does not wait for its next checkpoint."""
        super().__init__(connect, cluster_name, reach, warn)
        self.at_once = at_once
        self._giving = threading.Lock()  # otherwise two jobs could be given the same GPUs
        self._unfinished: dict[str, str] = {}  # by a job's name: the error, reported once

    def scale(self, name: str | None = None) -> str:
        """Give a job what fits best; without a name the first of those who are next. What happens, in one sentence.

        Raises NotPossible, or NotFound.
        """
        with self._giving:
            if name is not None:
                return self._grow(self.record(name))
            return self._first_of(candidates(self.records()), self._resize)

    def grow_next(self, records: list[JobMetadata]) -> str:
        """A job has ended: the next one for which there is room grows, at once or after its next checkpoint.

        What happens; empty: nothing yet. The yard itself lets a job grow that counts its epochs: while one is being
        resized nobody else is chosen. Raises NotPossible where there is room for nobody.
        """
        if any(each.is_resizing for each in records) or not self._giving.acquire(blocking=False):
            return ""
        try:
            free = [each for each in records if not self.state.is_waiting(each)]
            return self._first_of(candidates(free), self._resize_in_time)
        finally:
            self._giving.release()

    def tell(self, record: JobMetadata, report: Report) -> JobMetadata:
        """Store a checkpoint report on the job itself, so that every process shows it. Returns the new record.

        A report that is older than what is known changes nothing. Where it cannot be written only this process
        shows it, and says so.
        """
        if report.at < record.last_checkpoint_time or report.at == report.before:
            return record
        report = replace(report, total_epochs=report.total_epochs or record.total_epochs)
        self.state.tell(record.job_name, report)
        try:
            if record.is_ours:
                self.client.annotate(record.key, annotation_of(report))
            elif cluster := self.cluster():
                cluster.annotate(record.job_name, **annotation_of(report))
        except YardError as error:
            self._warn(f"the checkpoint of job {record.job_name} is shown by this process alone: {error}")
        return self.state.see(record)

    def has_saved(self, record: JobMetadata) -> str:
        """A job reported a checkpoint: was it waiting for that to grow? Returns what happens; empty: nothing.

        Where there is no room for it any more, the next job is tried.
        """
        if not self.state.take(record):
            return ""
        try:
            return self.scale(record.job_name)
        except YardError as error:
            nobody = f"nobody grows: {error}"
        with suppress(YardError):
            others = [each for each in self.records() if each.identity != record.identity]
            return self.grow_next(others) or nobody
        return nobody

    def _first_of(self, records: Iterable[JobMetadata], give: Callable[[JobMetadata, int], str]) -> str:
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
            except (Unavailable, Unreachable):  # it may have been done: another job would be given the same GPUs
                raise
            except YardError as error:  # for example a job of others that we may not change
                refusals.append(str(error))
        raise NotPossible(refusals[0] if refusals else "there is no job to scale: none runs")

    def _grow(self, record: JobMetadata) -> str:
        return self._resize(record, self._offer(record, self._nodes()))

    def _offer(self, record: JobMetadata, nodes: list[NodeView]) -> int:
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

    def _resize_in_time(self, record: JobMetadata, gpus: int) -> str:
        if self.at_once or (record.is_ours and record.has_saved):  # the yard waits for its checkpoint itself
            return self._resize(record, gpus)
        self.state.let_wait(record)
        return f"{record.job_name} grows after its next checkpoint"

    def _resize(self, record: JobMetadata, gpus: int) -> str:
        change = f"{record.job_name} goes from {record.gpu_assigned} to {gpus} GPUs"
        if not record.is_ours:
            cluster = self.cluster()
            assert cluster is not None  # otherwise we would not know of it
            cluster.scale(record.job_name, gpus)
            return change
        try:
            self.client.scale_job(record.key, gpus=gpus)
        except NotFound:
            raise
        except UserError as error:
            raise NotPossible(str(error)) from error
        self.state.sized[record.key] = gpus
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
            self.state.added.discard(record.job_name)
            return f"{record.job_name} is deleted"
        if not record.has_ended:
            self.client.cancel(record.key, message="deleted by its user")
            try:
                self._clear(record.job_name)
            except YardError as error:  # the deletion itself is done
                return f"{record.job_name} is stopped; what earlier jobs of its name left is not all removed: {error}"
            return f"{record.job_name} is stopped and deleted"
        left = ", ".join(f"{each.kind} {each.name}" for each in self._clear(record.job_name))
        said = f"removed from the cluster: {left}" if left else "nothing of it was left to delete"
        return f"{record.job_name} had ended ({record.status}); {said}"

    def _clear(self, name: str) -> list[Left]:
        """Remove what jobs of a name left that have ended; what that was. Raises YardError where some of it stays."""
        ended = [job for job in self.client.jobs(all=True, limit=ALL_JOBS) if job.state.is_final]
        return self._listing.clear(job for job in ended if job.name == name)

    def adopt(self, name: str, request: int, limit: int, replicas: int) -> JobMetadata:
        """Adopt a PyTorchJob that others created; missing annotations are added to it.

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
        self.state.added.add(name)
        return self.state.see(record_of_foreign(job))

    def tidy(self, records: Iterable[JobMetadata]) -> None:
        """What a serving process does now and then: resume suspended jobs, finish interrupted scalings."""
        unfinished: dict[str, str] = {}
        for record in records:
            try:
                self._finish(record)
            except YardError as error:  # a job that cannot be resumed must not block others
                unfinished[record.job_name] = str(error)
                if self._unfinished.get(record.job_name) != str(error):
                    self._warn(f"job {record.job_name} could not be resized or resumed yet: {error}")
        self._unfinished = unfinished

    def _finish(self, record: JobMetadata) -> None:
        if record.is_ours and self.state.sized.get(record.key) == record.gpu_assigned and not record.is_resizing:
            if not record.has_ended:  # it has the size that we set; from now on the scheduler may choose again
                self.client.scale_job(record.key)
            del self.state.sized[record.key]
        if record.is_marked and (cluster := self.cluster()):
            cluster.go_on(record.job_name)

    # -- below

    def _best_fit(self, record: JobMetadata, nodes: list[NodeView]) -> int:
        free = {node.id: free_on(node) for node in nodes}
        own = Counter(self._nodes_of(record))
        has = {node: count * record.gpu_assigned for node, count in own.items()}
        if record.is_ours and not any("/" in node for node in own):
            free = {node: count for node, count in free.items() if node in own}  # its checkpoint is on its machine
        return best_fit(record.gpu_lim, record.gpu_assigned, record.replicas, free, has, self._quota_free(record))

    def _nodes_of(self, record: JobMetadata) -> list[str]:
        if record.is_ours:
            return [task.node for task in self.client.tasks(record.key, limit=1000) if task.state.is_active]
        cluster, view = self.cluster(), self.cluster_view()
        assert cluster is not None
        assert view is not None
        return [f"{view.id}/{node}" for node in cluster.nodes_of(record.job_name) if node]

    def _quota_free(self, record: JobMetadata) -> int | None:
        """None: there is no quota, or we cannot see it; the yard keeps its own jobs within it."""
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
