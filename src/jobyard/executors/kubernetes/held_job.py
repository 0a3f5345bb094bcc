"""What is known of one job's objects and pods, and what has the yard been told of them?"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from jobyard.agent import clock, records
from jobyard.agent.progress import Fold
from jobyard.agent.stop_file import StopOrder
from jobyard.errors import ExecutorError
from jobyard.executors.kubernetes import names
from jobyard.executors.kubernetes.kinds import KINDS, Kind
from jobyard.executors.kubernetes.outcomes import deleted_at, main_container, outcome_of, started_at
from jobyard.executors.kubernetes.rayjob import is_submitter
from jobyard.executors.kubernetes.reporting import CONTAINER as SIDECAR
from jobyard.executors.kubernetes.states import Meaning, meaning_of_pod
from jobyard.executors.kubernetes.streams import LogFile, Stream
from jobyard.executors.kubernetes.units import UnitKey, is_within, pods_by_attempt
from jobyard.executors.kubernetes.variables import REPORTS
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import LiveAttempt
from jobyard.executors.reports import Reports
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.paths import object_path
from jobyard.kubernetes.states import is_over
from jobyard.model.events import (
    AttemptsAwaited,
    AttemptsFinished,
    AttemptsStarted,
    AttemptsWithdrawn,
    Awaited,
    Event,
    Finished,
    SlotMoved,
    Started,
)
from jobyard.model.job import JobSpec, Reason, State
from jobyard.model.task import AttemptId, Outcome

log = logging.getLogger(__name__)

Object = dict[str, Any]
ENDING_LOOKS, ENDING_SECONDS = 10, 0.3  # an operator tells that a job failed before the kubelet tells of its pods
STOP_SECONDS = 10.0  # to write the stop file
LINGER_SECONDS = 30.0  # a pod whose node is gone is given up after so long, output or not
HANGING_SECONDS = 10.0  # after its pod's end a stream is no longer followed: nobody may hold its other end any more


class _Follower:
    """One attempt whose pod runs: its output and its reports, on their way home."""

    def __init__(
        self, attempt: AttemptId, pod: Object, writer: Object, api: Api, file: LogFile, reports: Reports, tell: Any
    ) -> None:
        name = pod["metadata"]["name"]
        self._attempt, self._reports, self._tell = attempt, reports, tell
        self.file = file
        self.fold: Fold | None = None
        self.streams = [Stream(writer["metadata"]["name"], main_container(writer), file.append, lambda: file.size)]
        if has_sidecar(pod):
            self.fold = Fold(started_at(pod))
            self.streams.append(Stream(name, SIDECAR, self._report))
        self._api = api
        self._tasks = [asyncio.create_task(stream.run(api)) for stream in self.streams]

    def _report(self, data: bytes) -> None:
        assert self.fold is not None
        self.fold.feed(data)
        if told := self.fold.progress():
            now = time.time()
            self._tell(self._reports.read({"attempts": {str(self._attempt): told}}, 0.0, now))

    async def finish(self) -> None:
        """The pod writes no more: returns when all is home, or cannot come any more."""
        for stream in self.streams:
            stream.ended()
        _, hanging = await asyncio.wait(self._tasks, timeout=HANGING_SECONDS)
        if hanging:
            for task in hanging:
                task.cancel()
            await asyncio.wait(hanging)
            again = [stream for task, stream in zip(self._tasks, self.streams, strict=True) if task in hanging]
            self._tasks = [asyncio.create_task(stream.run(self._api)) for stream in again]
            while (await asyncio.wait(self._tasks, timeout=LINGER_SECONDS))[1]:
                if not any(stream.is_cut for stream in again):
                    break
        self.stop()
        if self.fold is not None:
            self.fold.close()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.file.close()


class HeldJob:
    """Fed by watches. `observe` compares with the attempts that are live and tells the yard what is new."""

    def __init__(
        self,
        job_id: str,
        cluster: str,
        mirror: Mirror,
        tell: Callable[[Sequence[Event]], None],
        is_simulated: Callable[[str], bool],
    ) -> None:
        self.id = job_id
        self._cluster = cluster
        self._mirror = mirror
        self._tell = tell
        self._is_simulated = is_simulated
        self.objects: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.gone: dict[str, Object] = {}  # pods that were deleted, as they were last seen
        self.built: dict[UnitKey, list[Object]] = {}
        self.kinds: dict[str, Kind] = {}  # of the objects
        self.made: set[str] = set()
        self.lost: set[str] = set()  # objects that were there and were deleted; they are not made again
        self.deleted: set[str] = set()
        self.hurried: set[AttemptId] = set()  # they are to end without their grace
        self._asked_at: dict[UnitKey | str, float] = {}
        self.patched: dict[str, Object] = {}  # the last patch of each object
        self.secrets_owner: str | None = None  # the object; None: nobody, they are to stay
        self.is_touched = False  # something changed while it was settled
        self._queue_words: dict[str, str] = {}  # by object: why Kueue holds it
        self._matched: dict[AttemptId, Object] = {}
        self._begun: dict[AttemptId, str] = {}  # told, with the pod
        self._ending: dict[AttemptId, asyncio.Task[None]] = {}  # their last words are on their way, or told
        self._words: dict[AttemptId, str] = {}  # what they wait for, as told
        self._followers: dict[AttemptId, _Follower] = {}
        self._orders: dict[AttemptId, StopOrder] = {}
        self._reports = Reports()

    # -- watches ------------------------------------------------------------------------------------------------------

    def pod_changed(self, pod: Object, gone: bool) -> None:
        name = pod["metadata"]["name"]
        if gone:
            self.pods.pop(name, None)
            self.gone[name] = pod
        else:
            self.pods[name] = pod
        if (pod["metadata"].get("labels") or {}).get(names.OBJECT) == name:
            self.object_changed(KINDS["Pod"], pod, gone)

    def object_changed(self, kind: Kind, seen: Object, gone: bool) -> None:
        """Also of a Pod that is an object by itself."""
        name = seen["metadata"]["name"]
        if gone:
            self.objects.pop(name, None)
            self.lost.add(name)
        else:
            self.objects[name] = seen
            self.kinds[name] = kind

    def workload_changed(self, seen: Object, gone: bool) -> None:
        """What Kueue says of it."""
        conditions = {each["type"]: each for each in seen.get("status", {}).get("conditions") or ()}
        admitted = conditions.get("Admitted", {}).get("status") == "True"
        told = conditions.get("QuotaReserved") or conditions.get("Admitted") or {}
        for owner in seen["metadata"].get("ownerReferences") or ():
            if gone or admitted:
                self._queue_words.pop(owner["name"], None)
            else:
                self._queue_words[owner["name"]] = told.get("message", "")

    @property
    def is_empty(self) -> bool:
        """Is nothing of it there any more, and nothing on its way home?"""
        return not (self.objects or self.pods or self._followers)

    def disconnect(self) -> None:
        """Streams need a connection; what was told stays told."""
        for follower in self._followers.values():
            follower.stop()
        for attempt, task in list(self._ending.items()):
            if not task.done():
                task.cancel()
                del self._ending[attempt]
        self._followers.clear()

    def forget(self) -> None:
        self._begun.clear()
        self._words.clear()
        self._reports.forget()
        self._ending = {attempt: task for attempt, task in self._ending.items() if not task.done()}

    # -- telling ------------------------------------------------------------------------------------------------------

    def observe(
        self,
        api: Api,
        spec: JobSpec,
        kind: Kind,
        name: str,
        attempts: Sequence[LiveAttempt],
        ended: int = 0,
        *,
        sees_all: bool = True,
    ) -> None:
        """`ended`: so many other tasks of the job are over. `sees_all`: what is not seen of its kind is not there."""
        seen = self.objects.get(name)
        pods = [pod for pod in self._pods_of_object(kind, name) if kind.name != "RayJob" or not is_submitter(pod)]
        matched = pods_by_attempt(spec, kind, attempts, pods, self.gone, ended)
        meaning = kind.meaning(seen) if seen else None
        events: list[Event] = []
        for each in attempts:
            if each.attempt in self._ending:
                continue
            pod = matched.get(each)
            starter = self._starter_of(kind, name, pod)
            if pod is not None:
                self._matched[each.attempt] = pod
                events += self._begins(api, each, pod, self._writer_of(kind, name, each, pod), starter)
            if kind.by_object:
                events += self._ends_by_object(api, each, pod, starter, name, meaning, sees_all)
            elif pod is not None:
                events += self._ends(each, pod)
            elif outcome := _outcome_without_pod(each, kind, seen, meaning):
                self._end(each, None, outcome)
            elif each.is_running:
                self._vanished(each)
            elif meaning is not None:
                events += self._awaits(each, self._reason_of(name, meaning))
            if name in self.lost and pod is None and not each.is_running:
                events.append(AttemptsWithdrawn((each.attempt,), time.time(), f"{kind.name} {name} was deleted"))
        self._tell(events)

    def _begins(
        self, api: Api, each: LiveAttempt, pod: Object, writer: Object | None, starter: Object | None
    ) -> list[Event]:
        """Where it is, that it began; and its output, which is that of `writer`, is followed from now on."""
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        begun = started_at(starter) if starter is not None and started_at(pod) is not None else None
        events: list[Event] = []
        place = f"{self._cluster}/{node}"
        if node and each.slot.placement.node != place:
            events.append(SlotMoved(each.slot.id, place, time.time()))
        if begun is not None and not each.is_running and self._begun.get(each.attempt) != name:
            self._begun[each.attempt] = name
            self._words.pop(each.attempt, None)
            events.append(AttemptsStarted((Started(each.attempt, begun, name),), time.time()))
        is_readable = writer is not None and writer["metadata"]["name"] in self.pods and not self._is_simulated(node)
        if writer is not None and started_at(writer) and is_readable and each.attempt not in self._followers:
            file = LogFile(self._mirror.path(each.attempt, "out"))
            self._followers[each.attempt] = _Follower(each.attempt, pod, writer, api, file, self._reports, self._tell)
        return events

    def _starter_of(self, kind: Kind, name: str, pod: Object | None) -> Object | None:
        """The pod whose start is the task's: its own. Of a RayJob nothing has begun before its command is handed in."""
        made = self.objects.get(name)
        if kind.name != "RayJob" or made is None or "submitterPodTemplate" not in made["spec"]:
            return pod
        submitters = [seen for seen in self._pods_of_object(kind, name) if is_submitter(seen)]
        return next((each for each in submitters if started_at(each)), submitters[-1] if submitters else None)

    def _writer_of(self, kind: Kind, name: str, each: LiveAttempt, pod: Object) -> Object | None:
        """The pod whose output is the task's: its own. The command of a RayJob writes in the pod that handed it in."""
        if kind.name != "RayJob" or each.attempt.task != 0:
            return pod
        begun = [seen for seen in self._pods_of_object(kind, name) if is_submitter(seen) and started_at(seen)]
        if begun:
            return begun[-1]
        made = self.objects.get(name)
        return pod if made and "submitterPodTemplate" not in made["spec"] else None

    def _ends(self, each: LiveAttempt, pod: Object) -> list[Event]:
        if is_over(pod) or pod["metadata"]["name"] not in self.pods:
            self._end(each, pod, None)
        elif started_at(pod) is None:
            return self._awaits(each, meaning_of_pod(pod))
        return []

    def _ends_by_object(
        self,
        api: Api,
        each: LiveAttempt,
        pod: Object | None,
        starter: Object | None,
        name: str,
        meaning: Meaning | None,
        sees_all: bool,
    ) -> list[Event]:
        """Pods may go before the object says how all ended, and those of a success may be killed by its operator."""
        if meaning is None and each.is_running and (sees_all or name in self.lost):
            if pod is not None:
                return self._ends(each, pod)  # the object goes at once, its pods have their grace
            self._vanished(each)
        if meaning is None:
            return []
        if meaning.state in (State.SUCCEEDED, State.FAILED):
            self._end(each, pod, _outcome_of_object(meaning), api)
        elif pod is None and not each.is_running:
            return self._awaits(each, self._reason_of(name, meaning))
        elif pod is not None and started_at(pod) is None and name not in self.lost:
            return self._awaits(each, meaning_of_pod(pod))
        elif pod is not None and not each.is_running and (starter is None or started_at(starter) is None):
            return self._awaits(each, _before_its_command(starter))
        return []

    def _vanished(self, each: LiveAttempt) -> None:
        """Its pod is nowhere, and nobody saw it end."""
        now = time.time()
        message = f"its pod {each.unit} is gone, and nobody saw how it ended"
        order = self._orders.get(each.attempt)
        reason = Reason.PREEMPTED if each.is_yielding and order else Reason.NODE_LOST
        self._end(each, None, Outcome(now, now, reason=reason, message=message))

    def _awaits(self, each: LiveAttempt, meaning: Meaning) -> list[Event]:
        """Told in words, once."""
        if self._words.get(each.attempt) == meaning.sentence:
            return []
        self._words[each.attempt] = meaning.sentence
        return [AttemptsAwaited((Awaited(each.attempt, meaning.reason, meaning.sentence),), time.time())]

    def _reason_of(self, name: str, meaning: Meaning) -> Meaning:
        if words := self._queue_words.get(name):
            return Meaning(State.PENDING, Reason.QUOTA, f"it waits in Kueue's queue: {words}")
        if meaning.state is State.RUNNING:  # others of it do
            return Meaning(State.STARTING, None, "its pod is still to be made")
        return meaning

    def await_all(self, attempts: Iterable[LiveAttempt], reason: Reason, sentence: str) -> None:
        for each in attempts:
            self._tell(self._awaits(each, Meaning(State.PENDING, reason, sentence)))

    def prune(self, live: Collection[LiveAttempt]) -> None:
        """What nobody asks for any more, once it is much: arrays may have very many tasks."""
        if len(self._ending) + len(self.gone) < 100 + 2 * len(live):
            return
        attempts, units = {each.attempt for each in live}, {each.unit for each in live}
        self._ending = {key: task for key, task in self._ending.items() if key in attempts or not task.done()}
        self._begun = {key: pod for key, pod in self._begun.items() if key in attempts}
        self._words = {key: words for key, words in self._words.items() if key in attempts}
        self.gone = {name: pod for name, pod in self.gone.items() if name in units}

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _end(self, each: LiveAttempt, pod: Object | None, outcome: Outcome | None, api: Api | None = None) -> None:
        """Tell how it ended, once all that it wrote is home."""
        work = self._last_words(each, pod, outcome, api)
        self._ending[each.attempt] = asyncio.create_task(work, name=f"end of {each.attempt}")

    async def _last_words(
        self, each: LiveAttempt, pod: Object | None, outcome: Outcome | None, api: Api | None
    ) -> None:
        follower = self._followers.get(each.attempt)
        if follower is not None:
            await follower.finish()
            self._followers.pop(each.attempt, None)
        now = time.time()
        name = pod["metadata"]["name"] if pod else ""
        pod = self._latest(pod) if pod else None
        if outcome is not None and not outcome.succeeded and api and pod is not None and name in self.pods:
            pod = await _ended_pod(api, pod)  # its object may have been heard of before its pod
        if pod is not None and (outcome is None or (not outcome.succeeded and is_over(pod))):
            outcome = outcome_of(
                pod,
                gone=name in self.gone and _is_same(self.gone[name], pod),
                at=now,
                fold=follower.fold if follower else None,
                order=self._order_of(each, pod),
                files=records.paths(str(self._mirror.directory), str(each.attempt)),
            )
        assert outcome is not None
        if self._begun.get(each.attempt) and outcome.started_at == outcome.finished_at and pod is not None:
            outcome = replace(outcome, started_at=min(now, started_at(pod) or now))
        self._reports.ended([each.attempt])
        self._tell([AttemptsFinished((Finished(each.attempt, outcome),), now)])
        self._matched.pop(each.attempt, None)
        self._orders.pop(each.attempt, None)

    def _latest(self, pod: Object) -> Object:
        """As it was last seen. An operator may begin another of the same name."""
        name = pod["metadata"]["name"]
        seen = (each for each in (self.pods.get(name), self.gone.get(name)) if each is not None)
        return next((each for each in seen if _is_same(each, pod)), pod)

    def _order_of(self, each: LiveAttempt, pod: Object) -> StopOrder | None:
        """What it was asked; by an earlier server, where the yard knows of it and we do not."""
        order = self._orders.get(each.attempt)
        if order is None and each.is_yielding:
            order = StopOrder(clock.seconds(), each.yield_seconds, 0.0)
            order.at_once, order.signalled_at = each.at_once, deleted_at(pod) or 0.0
        return order

    # -- stopping -----------------------------------------------------------------------------------------------------

    def is_within_deadline(self, each: LiveAttempt) -> bool:
        order = self._orders.get(each.attempt)
        return order is None or order.due_in(clock.seconds()) > 0

    async def ask_to_yield(self, api: Api, each: LiveAttempt) -> float:
        """Write the stop file; answers with the seconds until it is ended. One that has not begun is asked later."""
        pod = self._matched.get(each.attempt)
        if pod is None or started_at(pod) is None or not has_sidecar(pod):
            self._orders.setdefault(each.attempt, StopOrder(clock.seconds(), 0.0, 0.0))
            return 0.0  # nothing of it can stop by itself
        if deleted_at(pod) is not None and (order := self._order_of(each, pod)):
            self._orders[each.attempt] = order  # perhaps by an earlier server: it is about to end
        if each.attempt not in self._orders:
            order = StopOrder(clock.seconds(), each.yield_seconds, 0.0)
            words = shlex.quote(json.dumps(vars(order)))
            script = f"cd {REPORTS} && {{ [ -e stop ] || {{ echo {words} >stop.new && mv stop.new stop; }}; }}"
            try:
                await api.run(pod["metadata"]["name"], SIDECAR, ["sh", "-c", script], STOP_SECONDS)
            except ExecutorError as error:
                log.warning("pod %s cannot be asked to stop: %s", pod["metadata"]["name"], error)
                if self.has_waited(f"asking {each.attempt}", each.yield_seconds):
                    self._orders[each.attempt] = StopOrder(clock.seconds(), 0.0, 0.0)  # then without being asked
                return 1.0  # again
            self._orders[each.attempt] = order
        return max(0.1, self._orders[each.attempt].due_in(clock.seconds()))

    def signalled(self, attempts: Iterable[LiveAttempt]) -> None:
        """These are ended now, politely."""
        for each in attempts:
            if each.is_yielding:
                order = self._orders.setdefault(each.attempt, StopOrder(clock.seconds(), each.yield_seconds, 0.0))
                order.at_once = order.at_once or each.at_once
                order.signalled_at = order.signalled_at or math.floor(time.time())  # ends are told in whole seconds

    def pods_of(self, attempts: Iterable[LiveAttempt]) -> list[Object]:
        """Those that run and have not been told to go."""
        found = (self._matched.get(each.attempt) for each in attempts)
        return [
            pod
            for pod in found
            if pod is not None
            and pod["metadata"]["name"] in self.pods
            and "deletionTimestamp" not in pod["metadata"]
            and not is_over(pod)
        ]

    def hurry(self, attempts: Iterable[LiveAttempt]) -> list[str]:
        """Pods whose grace is to be cut short; each is named once."""
        hasty = [each.attempt for each in attempts if each.attempt in self.hurried]
        self.hurried.difference_update(hasty)
        pods = (self._matched.get(attempt) for attempt in hasty)
        return [pod["metadata"]["name"] for pod in pods if pod and pod["metadata"]["name"] in self.pods]

    def standing(self) -> int | None:
        """The attempt of the newest object that has not ended."""
        ended = (State.SUCCEEDED, State.FAILED)
        found = [seen for name, seen in self.objects.items() if self.kinds[name].meaning(seen).state not in ended]
        numbers = [int(seen["metadata"]["labels"][names.ATTEMPT]) for seen in found if not _is_leaving(seen)]
        return max(numbers, default=None)

    def has_succeeded(self, pod: str) -> bool:
        return bool(self.pods.get(pod, {}).get("status", {}).get("phase") == "Succeeded")

    def _pods_of_object(self, kind: Kind, name: str) -> list[Object]:
        label = kind.pods_label
        return [pod for pod in self.pods.values() if (pod["metadata"].get("labels") or {}).get(label) == name]

    def strays(self, spec: JobSpec, array: str, is_ended: Callable[[int], bool]) -> list[str]:
        """Pods of an array that Kubernetes began for tasks that were cancelled."""
        if array not in self.objects:
            return []
        kind = self.kinds[array]
        return [
            pod["metadata"]["name"]
            for pod in self._pods_of_object(kind, array)
            if not is_over(pod) and "deletionTimestamp" not in pod["metadata"]
            if (task := kind.task_of(spec, pod)) is not None and is_ended(task)
        ]

    def without_pods(self) -> list[str]:
        """Objects that have not ended and have none."""
        if self.pods:
            return []
        return [name for name, seen in self.objects.items() if self.kinds[name].meaning(seen).state is State.STARTING]

    def has_running_pods(self, kind: Kind, name: str) -> bool:
        return not all(map(is_over, self._pods_of_object(kind, name)))

    def has_no_pod(self, each: LiveAttempt) -> bool:
        """Is there nothing of it that could tell of its end?"""
        if each.is_running or each.attempt in self._begun or each.attempt in self._ending:
            return False
        pod = self._matched.get(each.attempt)
        return pod is None or pod["metadata"]["name"] not in self.pods

    def has_waited(self, what: UnitKey | str, seconds: float) -> bool:
        """Was this asked before, so long ago?"""
        now = time.monotonic()
        return now - self._asked_at.setdefault(what, now) >= seconds * 0.9

    def has_begun(self, attempts: Iterable[LiveAttempt]) -> bool:
        return any(each.is_running for each in attempts)


def _before_its_command(submitter: Object | None) -> Meaning:
    """Of a RayJob whose cluster is up, and whose command nobody runs yet."""
    if submitter is None:
        return Meaning(State.STARTING, None, "its Ray cluster is up, and its command is still to be handed in")
    why = meaning_of_pod(submitter)
    return Meaning(State.STARTING, why.reason, f"the pod that hands its command to Ray: {why.sentence}")


def _is_leaving(seen: Object) -> bool:
    return "deletionTimestamp" in seen["metadata"]


def _is_same(seen: Object, pod: Object) -> bool:
    return bool(seen["metadata"]["uid"] == pod["metadata"]["uid"])


async def _ended_pod(api: Api, pod: Object) -> Object:
    """The pod once it is over, or as it was last seen: it may be gone, or the cluster does not answer."""
    with suppress(ExecutorError):
        for _ in range(ENDING_LOOKS):
            if is_over(pod):
                break
            found = await api.get(object_path("v1", "pods", api.namespace, pod["metadata"]["name"]))
            if not _is_same(found, pod):
                break
            pod = found
            await asyncio.sleep(ENDING_SECONDS)
    return pod


def _outcome_of_object(meaning: Meaning) -> Outcome:
    """Of all tasks of an object that ended."""
    now = time.time()
    if meaning.state is State.SUCCEEDED:
        return Outcome(now, now, exit_code=0)
    if meaning.reason in (None, Reason.EXIT_CODE):
        return Outcome(now, now, exit_code=1, message=meaning.sentence)
    return Outcome(now, now, reason=meaning.reason, message=meaning.sentence)


def _outcome_without_pod(each: LiveAttempt, kind: Kind, seen: Object | None, meaning: Meaning | None) -> Outcome | None:
    """What the object says of a task whose pod is not there any more, or never was; None: nothing."""
    if seen is None or meaning is None:
        return None
    if kind.name == "Job" and is_within(each.attempt.task, seen.get("status", {}).get("completedIndexes") or ""):
        now = time.time()
        return Outcome(now, now, exit_code=0)
    if kind.name == "Job" and meaning.state is State.FAILED and meaning.reason is Reason.EXIT_CODE:
        # A Job takes a pod that somebody deleted for one that failed; those that failed by themselves stay there.
        now = time.time()
        message = f"its pod {each.unit} is gone, and nobody saw how it ended".replace("  ", " ")
        return Outcome(now, now, reason=Reason.NODE_LOST, message=message)
    is_array = seen.get("spec", {}).get("completions", 1) > 1
    return _outcome_of_object(meaning) if meaning.state in (State.SUCCEEDED, State.FAILED) and not is_array else None


def has_sidecar(pod: Object) -> bool:
    return any(container["name"] == SIDECAR for container in pod["spec"].get("initContainers") or ())
