"""Client API: what can be asked of a yard? One method for each REST call of docs/api.md."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from jobyard.client.address import Address
from jobyard.client.connection import Connection, Revive
from jobyard.client.paths import Query, job_path, node_path, query_of, quoted
from jobyard.client.sse import ServerEvent
from jobyard.errors import UserError, YardError
from jobyard.model import codec
from jobyard.model.job import JobSpec, State
from jobyard.model.limits import PAGE_MOST
from jobyard.model.node import ClusterConfig, NodeConfig
from jobyard.settings import ClientKnobs
from jobyard.wire.kept import RemovalView
from jobyard.wire.requests import (
    TOTAL,
    AcceptRow,
    AddCluster,
    AddNode,
    AnnotateJob,
    CancelJob,
    CancelJobs,
    ChangePriority,
    CollectGarbage,
    CreateToken,
    RemoveJobs,
    RetryJob,
    ScaleJob,
    SubmitJob,
)
from jobyard.wire.views import (
    ClusterView,
    EndingView,
    JobView,
    LogChunk,
    NodeView,
    PlanView,
    ServerView,
    TaskView,
    TokenView,
    UnitView,
    WhyView,
)

T = TypeVar("T")


class OtherVersion(YardError):
    """The server answered in a form that this client does not know (another version)."""


class YardClient:
    """Safe to use from several threads. Raises the server's error classes; Unreachable when nobody answers.

    Once a server has answered, every call that is safe to repeat waits for a lost one (and starts it again where it is
    local), up to `reconnect_seconds`.
    """

    def __init__(self, address: Address, knobs: ClientKnobs, revive: Revive | None = None) -> None:
        self.address = address
        self._connection = Connection(address, knobs, revive)

    @property
    def lost_seconds(self) -> float:
        """How long nobody has answered while calls are tried again; 0.0 while all is well."""
        return self._connection.lost_seconds

    # -- jobs

    def submit(self, spec: JobSpec, *, key: str = "") -> JobView:
        """Returns after the journal has it. A lost answer is asked for again: the key makes that harmless."""
        request = SubmitJob(spec, key=key or uuid.uuid4().hex)
        return self.decoded(JobView, self._connection.call("POST", "/jobs", codec.encode(request), is_long=True))

    def plan(self, spec: JobSpec, *, render: bool = False) -> PlanView:
        request = SubmitJob(spec, dry_run=True, render=render)
        return self.decoded(PlanView, self._connection.call("POST", "/jobs", codec.encode(request), is_long=True))

    def jobs(
        self,
        *,
        all: bool = False,
        state: str | None = None,
        limit: int | None = None,
        unfinished: bool = False,
        user: str | None = None,
        name: str | None = None,
        since: float | None = None,
    ) -> tuple[JobView, ...]:
        """The newest first; all of them, or the first `limit`, whatever the server puts in one answer.

        `name` may have `*` and `?`. `since` leaves out what had ended by then.
        """
        words: Query = {
            "all": all,
            "state": state,
            "unfinished": unfinished,
            "user": user,
            "name": name,
            "since": since,
        }
        found: list[JobView] = []
        while limit is None or len(found) < limit:
            before = found[-1].number if found else None
            asked = None if limit is None else min(PAGE_MOST, limit - len(found))
            page = self._views(
                JobView, self._connection.call("GET", "/jobs" + query_of({**words, "limit": asked, "before": before}))
            )
            if before is not None and page and page[0].number >= before:
                break  # an older server without pages has answered with all of them
            found.extend(page)
            if len(page) < (asked or PAGE_MOST):
                break
        return tuple(found)

    def first_jobs(
        self,
        limit: int,
        *,
        all: bool = False,
        state: str | None = None,
        user: str | None = None,
        name: str | None = None,
        since: float | None = None,
    ) -> tuple[tuple[JobView, ...], int]:
        """The newest ones, one page at the most, and how many there are in all."""
        words: Query = {"all": all, "state": state, "user": user, "name": name, "since": since, "limit": limit}
        page, headers = self._connection.page("/jobs" + query_of(words))
        found = self._views(JobView, page)
        return found, int(headers.get(TOTAL, len(found)))  # an older server does not count

    def job(self, selector: str, *, live: bool = False) -> JobView:
        """`live`: a name means the job that has not ended, and is refused where several have not."""
        return self.decoded(JobView, self._connection.call("GET", job_path(selector) + query_of({"live": live})))

    def tasks(
        self,
        selector: str,
        *,
        state: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
        last_line: bool = False,
        task: str = "",
        with_paths: bool = False,
    ) -> tuple[TaskView, ...]:
        """100 of them unless `limit` says otherwise; in several calls where they are many.

        `last_line`: also what each of the first ones wrote last; at most 100 come then. `task`: only these, as in
        `3,7-9`. `with_paths`: also the files of their output, where they are not packed yet.
        """
        limit, begin = 100 if limit is None else limit, offset or 0
        found: list[TaskView] = []
        while len(found) < limit:
            at_once = min(PAGE_MOST, limit - len(found))
            asked: Query = {"state": state, "limit": at_once, "offset": begin + len(found) or None}
            query = query_of({**asked, "last_line": last_line, "task": task or None, "paths": with_paths})
            page = self._views(TaskView, self._connection.call("GET", job_path(selector, "/tasks") + query))
            found.extend(page)
            if len(page) < at_once:
                break
        return tuple(found)

    def why(self, selector: str, *, task: str = "") -> WhyView:
        """Of the job, or of one of its tasks."""
        path = job_path(selector, "/why") + query_of({"task": task or None})
        return self.decoded(WhyView, self._connection.call("GET", path))

    def unit(self, selector: str, *, task: str | None = None) -> UnitView:
        """Where a task that runs now is: its pod, or its machine."""
        return self.decoded(
            UnitView, self._connection.call("GET", job_path(selector, "/unit") + query_of({"task": task}))
        )

    def cancel(
        self,
        selector: str,
        *,
        tasks: tuple[str, ...] = (),
        states: tuple[State, ...] = (),
        force: bool = False,
        message: str = "",
    ) -> JobView:
        request = CancelJob(tasks=tasks, states=states, force=force, message=message)
        return self.decoded(
            JobView, self._connection.call("POST", job_path(selector, "/cancel"), codec.encode(request))
        )

    def cancel_jobs(
        self, selectors: Sequence[str], *, states: tuple[State, ...] = (), force: bool = False
    ) -> tuple[JobView, ...]:
        """Whole jobs, or their tasks in these states. Of each thousand all, or none where one is not known."""
        found: list[JobView] = []
        for begin in range(0, len(selectors), PAGE_MOST):
            request = CancelJobs(tuple(selectors[begin : begin + PAGE_MOST]), force, states=states)
            found += self._views(JobView, self._connection.call("POST", "/cancel", codec.encode(request)))
        return tuple(found)

    def remove_jobs(self, selectors: Sequence[str]) -> RemovalView:
        """All of them, which have ended, or none. Their files go soon after."""
        body = codec.encode(RemoveJobs(tuple(selectors)))
        return self.decoded(RemovalView, self._connection.call("POST", "/remove", body))

    def collect_garbage(self, *, dry_run: bool = False) -> RemovalView:
        """What is too old, too many or too large goes; with `dry_run` it is only named."""
        body = codec.encode(CollectGarbage(dry_run))
        return self.decoded(RemovalView, self._connection.call("POST", "/gc", body, is_long=True))

    def yield_job(self, selector: str) -> JobView:
        """Preempts it: asks it to stop at its next checkpoint and to wait again. Refused where it cannot."""
        return self.decoded(JobView, self._connection.call("POST", job_path(selector, "/yield")))

    def scale_job(
        self, selector: str, size: int | None = None, *, gpus: int | None = None, workers: int | None = None
    ) -> JobView:
        """Of what the job can change, so much; with nothing said the scheduler chooses again."""
        auto = size is None and gpus is None and workers is None
        body = codec.encode(ScaleJob(size, gpus, workers, auto))
        return self.decoded(JobView, self._connection.call("POST", job_path(selector, "/scale"), body))

    def retry(self, selector: str, *, tasks: tuple[str, ...] = (), states: tuple[State, ...] = ()) -> JobView:
        """Not repeated after a lost answer: a second one could retry what failed again in between."""
        body = codec.encode(RetryJob(tasks, states))
        return self.decoded(
            JobView, self._connection.call("POST", job_path(selector, "/retry"), body, is_repeatable=False)
        )

    def change_priority(self, selector: str, priority: int) -> JobView:
        body = codec.encode(ChangePriority(priority))
        return self.decoded(JobView, self._connection.call("POST", job_path(selector, "/priority"), body))

    def annotate(self, selector: str, annotations: Mapping[str, str | None]) -> JobView:
        """Store annotations with a job, for other programs; None removes one."""
        body = codec.encode(AnnotateJob(annotations))
        return self.decoded(JobView, self._connection.call("POST", job_path(selector, "/annotations"), body))

    def watch(self, selector: str) -> Iterator[JobView]:
        """The job at each change, until it has ended; goes on over the death of a server."""
        path = job_path(selector, "/watch")
        while True:
            for event in self._connection.stream(path):
                if event.name == "job":
                    view = self.decoded(JobView, json.loads(event.data))
                    yield view
                    if view.state.is_final:
                        return
            # A server that stops ends its streams in good order: the job has not ended, so ask the next one.
            view = self.job(selector)
            if view.state.is_final:
                yield view
                return
            self._connection.rest()

    def logs(
        self,
        selector: str,
        *,
        task: str | None = None,
        attempt: int | None = None,
        stream: str | None = None,
        follow: bool = False,
        tail: int | None = None,
        failed: bool = False,
        ordered: bool = False,
    ) -> Iterator[LogChunk]:
        """Output as it comes; each piece once, also over the death of a server (the stream goes on at its last id).

        `task` may name several, as in `3,7-9`. `ordered`: task by task, each once it and all before it have ended.
        """
        words: Query = {"task": task, "attempt": attempt, "stream": stream, "follow": follow, "tail": tail}
        query = query_of({**words, "failed": failed, "ordered": ordered})
        last_id = ""
        while True:
            has_more = False
            for event in self._connection.stream(job_path(selector, "/logs") + query, last_id):
                last_id, has_more = event.id or last_id, True
                if event.name == "log":
                    chunk = self.decoded(LogChunk, json.loads(event.data))
                    yield chunk
                    if chunk.final:
                        return
            if not has_more or not last_id:  # it ended properly, and another request brought nothing new: complete
                return

    def endings(self, selector: str, *, since: int = 0) -> Iterator[EndingView]:
        """How each task ended, as it ends, until the job has; each once, also over the death of a server.

        `since` is a row of the journal: those before are not looked at.
        """
        path, last_id = job_path(selector, "/endings") + query_of({"since": since or None}), ""
        seen: set[int] = set()  # tasks of the row that is not complete yet: a broken stream begins it again
        while True:
            for event in self._connection.stream(path, last_id):
                if event.name == "end":
                    return
                if event.name == "ended":
                    view = self.decoded(EndingView, json.loads(event.data))
                    if view.number not in seen:
                        yield view
                    seen.add(view.number)
                if event.id not in ("", last_id):
                    last_id = event.id
                    seen.clear()
            self._connection.rest()

    def raw_log(
        self, selector: str, *, task: str | None = None, attempt: int | None = None, stream: str = "out"
    ) -> Iterator[bytes]:
        """The bytes of one attempt's stream, as they were written."""
        path = job_path(selector, "/logs/raw") + query_of({"task": task, "attempt": attempt, "stream": stream})
        return self._connection.pieces(path)

    def results(self, selector: str, *, task: str | None = None) -> Iterator[bytes]:
        """A tar of the collected results of a job's tasks on other machines, or of one task."""
        path = job_path(selector, "/results") + query_of({"task": task})
        return self._connection.pieces(path, is_long=True)

    def diff(self, selector: str) -> bytes:
        """The uncommitted changes of the tree that the job's image was built from."""
        return b"".join(self._connection.pieces(job_path(selector, "/diff")))

    # -- the yard

    def nodes(self) -> tuple[NodeView, ...]:
        return self._views(NodeView, self._connection.call("GET", "/nodes"))

    def add_node(self, config: NodeConfig, *, force: bool = False) -> NodeView:
        """Returns once the machine has answered; with `force` at once. Adding it again changes how it is reached."""
        body = codec.encode(AddNode(config, force))
        return self.decoded(NodeView, self._connection.call("POST", "/nodes", body, is_long=True))

    def remove_node(self, node: str, *, force: bool = False) -> None:
        """Refused while tasks run there, unless forced."""
        self._connection.call("DELETE", node_path(node) + query_of({"force": force}))

    def drain_node(self, node: str) -> NodeView:
        return self.decoded(NodeView, self._connection.call("POST", node_path(node, "/drain")))

    def resume_node(self, node: str) -> NodeView:
        return self.decoded(NodeView, self._connection.call("POST", node_path(node, "/resume")))

    def probe_node(self, node: str) -> NodeView:
        """As it is now: it is measured first."""
        return self.decoded(NodeView, self._connection.call("POST", node_path(node, "/probe")))

    def clusters(self) -> tuple[ClusterView, ...]:
        return self._views(ClusterView, self._connection.call("GET", "/clusters"))

    def add_cluster(self, config: ClusterConfig, *, force: bool = False) -> ClusterView:
        """Returns once the cluster has answered; with `force` also if it does not. Again: how it is reached changes."""
        body = codec.encode(AddCluster(config, force))
        return self.decoded(ClusterView, self._connection.call("POST", "/clusters", body, is_long=True))

    def remove_cluster(self, cluster: str, *, force: bool = False) -> None:
        """Refused while its jobs have not ended; forced, they are cancelled."""
        self._connection.call(
            "DELETE",
            f"/clusters/{quoted('cluster', cluster)}" + query_of({"force": force}),
            is_long=True,
        )

    def event_stream(self, since: int) -> Iterator[ServerEvent]:
        """The journalled events as the server sends them; `client.events` decodes them."""
        last_id = str(since)
        while True:
            for event in self._connection.stream(f"/events{query_of({'since': since})}", last_id):
                last_id = event.id or last_id
                yield event
            self._connection.rest()

    def server(self) -> ServerView:
        return self.decoded(ServerView, self._connection.call("GET", "/server"))

    def is_answered(self) -> bool:
        """Whether a server listens there now, whatever it answers. Never waits for a server that is gone."""
        return self._connection.is_answered()

    def stop_server(self, *, force: bool = False) -> None:
        """Asks it to end; it is gone a little later. Refused while work is pending, unless forced. Never starts one."""
        self._connection.call_once("POST", "/server/stop" + query_of({"force": force}))

    def accept_row(self, row: int) -> ServerView:
        """Go on without a row of the journal that is damaged."""
        return self.decoded(ServerView, self._connection.call("POST", "/server/accept", codec.encode(AcceptRow(row))))

    def tokens(self) -> tuple[TokenView, ...]:
        return self._views(TokenView, self._connection.call("GET", "/tokens"))

    def create_token(self, name: str, *, admin: bool = False) -> TokenView:
        body = codec.encode(CreateToken(name, admin))
        return self.decoded(TokenView, self._connection.call("POST", "/tokens", body, is_repeatable=False))

    def revoke_token(self, token: str) -> None:
        self._connection.call("DELETE", f"/tokens/{quoted('token', token)}")

    # -- answers

    def decoded(self, kind: type[T], data: Any) -> T:
        """Raises OtherVersion where it does not fit."""
        try:
            return codec.decode(kind, data)
        except UserError as error:
            # Not the user's fault: the two programs are of different ages.
            raise OtherVersion(
                f"the yard at {self.address} speaks another version ({error}); restart it: `yard server stop`"
            ) from error

    def _views(self, kind: type[T], data: Any) -> tuple[T, ...]:
        return self.decoded(tuple[kind, ...], data)  # type: ignore[valid-type]
