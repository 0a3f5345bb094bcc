"""Observations of a cluster: which events do the pods and objects that were seen become? Pure: a part of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any

from jobyard.executors.kubernetes.attempt_pods import number_of, pods_by_attempt
from jobyard.executors.kubernetes.done import Done, Now
from jobyard.executors.kubernetes.object_keys import is_within, knows_attempts
from jobyard.executors.kubernetes.observed import ENDED, Observed
from jobyard.executors.kubernetes.outcomes import deleted_at, started_at
from jobyard.executors.kubernetes.rayjob import is_submitter
from jobyard.executors.kubernetes.states import Meaning, meaning_of_pod
from jobyard.executors.kubernetes.steps import End, Follow, LookAgain, Step, Tell
from jobyard.executors.kubernetes.wanted import Wanted, WantedObject
from jobyard.executors.protocol import LiveAttempt
from jobyard.kubernetes.states import is_over
from jobyard.model.events import (
    AttemptsAwaited,
    AttemptsStarted,
    Awaited,
    Event,
    SlotMoved,
    Started,
)
from jobyard.model.job import Reason, State
from jobyard.model.task import Outcome

Object = dict[str, Any]
HEAD_SECONDS = 2.0  # before a RayJob whose head is gone is taken for lost: one that ended removes it too


def matched_pods(wanted: Wanted, observed: Observed, item: WantedObject) -> dict[LiveAttempt, Object]:
    """The pod of each attempt that has one."""
    found = observed.pods_of(item.kind, item.name)
    pods = [pod for pod in found if item.kind.name != "RayJob" or not is_submitter(pod)]
    return pods_by_attempt(wanted.spec, item.kind, item.attempts, pods, observed.gone, wanted.ended)


def told_of_object(
    wanted: Wanted, observed: Observed, done: Done, item: WantedObject, matched: Mapping[LiveAttempt, Object], now: Now
) -> list[Step]:
    return _Teller(wanted, observed, done, item, matched, now).steps()


class _Fate(Enum):
    """Why an operator may have given a gang up: a pod of it failed, or somebody removed one."""

    UNKNOWN = auto()
    FAILED = auto()
    LOST = auto()


class _Teller:
    """Of one object and its attempts. Followers and ends come first, then all events at once."""

    def __init__(
        self,
        wanted: Wanted,
        observed: Observed,
        done: Done,
        item: WantedObject,
        matched: Mapping[LiveAttempt, Object],
        now: Now,
    ) -> None:
        self._wanted, self._observed, self._done, self._item, self._now = wanted, observed, done, item, now
        self._matched = matched
        self._object = observed.objects.get(item.name)
        self._meaning = item.kind.meaning(self._object) if self._object else None

    def steps(self) -> list[Step]:
        steps: list[Step] = []
        events: list[Event] = []
        for each in self._item.attempts:
            if each.attempt in self._done.ending:
                continue
            for said in self._of_attempt(each, self._matched.get(each)):
                if isinstance(said, Follow | End | LookAgain):
                    steps.append(said)
                else:
                    events.append(said)
        return [*steps, Tell(tuple(events))] if events else steps

    def _of_attempt(self, each: LiveAttempt, pod: Object | None) -> Iterator[Event | Follow | End | LookAgain]:
        item, kind = self._item, self._item.kind
        is_later = pod is not None and knows_attempts(self._wanted.spec) and number_of(pod) > each.attempt.number
        if is_later and not each.is_running:
            yield End(each, None, self._lost(each, "a pod of its was lost while nobody looked"))
            return
        starter = self._starter_of(pod)
        if pod is not None:
            yield from self._begins(each, pod, starter)
        if kind.by_object:
            yield from self._ends_by_object(each, pod, starter)
        elif pod is not None:
            yield from self._ends(each, pod)
        elif outcome := self._outcome_without_pod(each):
            yield End(each, None, outcome)
        elif each.is_running:
            yield self._vanished(each)
        elif self._meaning is not None:
            yield from self._cluster_waits(each, self._reason_of(self._meaning))
        elif item.name in self._observed.lost:
            sentence = f"{kind.name} {item.name} was deleted by somebody, and is made again when its pods are gone"
            yield from self._cluster_waits(each, Meaning(State.STARTING, None, sentence))

    # -- its beginning ------------------------------------------------------------------------------------------------

    def _begins(self, each: LiveAttempt, pod: Object, starter: Object | None) -> Iterator[Event | Follow]:
        """Where it is, that it began; and its output, which is followed from now on."""
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        begun = started_at(starter) if starter is not None and started_at(pod) is not None else None
        place = f"{self._wanted.cluster}/{node}"
        if node and each.slot.placement.node != place:
            yield SlotMoved(each.slot.id, place, self._now.at)
        if begun is not None and not each.is_running and self._done.begun.get(each.attempt) != name:
            yield AttemptsStarted((Started(each.attempt, begun, name),), self._now.at)
        if each.attempt in self._done.followed or self._wanted.is_simulated(node):
            return
        writer = self._writer_of(each, pod)
        if writer is not None and self._observed.is_here(writer) and started_at(writer):
            yield Follow(each, pod, writer)

    def _starter_of(self, pod: Object | None) -> Object | None:
        """The pod whose start is the task's: its own. Of a RayJob nothing has begun before its command is handed in."""
        if not self._has_submitter:
            return pod
        submitters = self._submitters()
        return next((each for each in submitters if started_at(each)), submitters[-1] if submitters else None)

    def _writer_of(self, each: LiveAttempt, pod: Object) -> Object | None:
        """The pod whose output is the task's: its own. The command of a RayJob writes in the pod that handed it in."""
        if self._item.kind.name != "RayJob" or each.attempt.task != 0:
            return pod
        begun = [seen for seen in self._submitters() if started_at(seen)]
        if begun:
            return begun[-1]
        return pod if self._object is not None and not self._has_submitter else None

    @property
    def _has_submitter(self) -> bool:
        made = self._object
        return self._item.kind.name == "RayJob" and made is not None and "submitterPodTemplate" in made["spec"]

    def _submitters(self) -> list[Object]:
        return [pod for pod in self._observed.pods_of(self._item.kind, self._item.name) if is_submitter(pod)]

    # -- its end ------------------------------------------------------------------------------------------------------

    def _ends(self, each: LiveAttempt, pod: Object) -> Iterator[Event | End]:
        if is_over(pod) or not self._observed.is_here(pod):
            yield End(each, pod)
        elif started_at(pod) is None:
            yield from self._cluster_waits(each, meaning_of_pod(pod))

    def _ends_by_object(
        self, each: LiveAttempt, pod: Object | None, starter: Object | None
    ) -> Iterator[Event | End | LookAgain]:
        """Pods may go before the object says how all ended, and those of a success may be killed by its operator."""
        meaning, is_lost = self._meaning, self._item.name in self._observed.lost
        if meaning is None:
            if each.is_running and (is_lost or self._wanted.sees_all_of(self._item.kind)):
                if pod is not None:
                    yield from self._ends(each, pod)  # the object goes at once, its pods have their grace
                else:
                    yield self._vanished(each)
        elif meaning.state in ENDED:
            is_gang = self._item.kind.name == "PyTorchJob" and not self._wanted.spec.kubernetes.manifest
            if is_gang and meaning.state is State.FAILED and (pod is None or not is_over(pod)):
                yield from self._fails_with_others(each, pod, meaning)
            else:
                yield End(each, pod, self._outcome_of_object(meaning), asks=True)
        elif self._has_lost_its_head(each, pod):
            # KubeRay begins both anew, the head and the command. Unless the RayJob is about to say that it has ended.
            if self._done.has_waited(f"head of {self._item.name}", HEAD_SECONDS, self._now):
                yield End(each, pod) if pod is not None else self._vanished(each)
            else:
                yield LookAgain(f"head of {self._item.name}", HEAD_SECONDS)
        elif pod is None and not each.is_running:
            yield from self._cluster_waits(each, self._reason_of(meaning))
        elif pod is not None and started_at(pod) is None and not is_lost:
            yield from self._cluster_waits(each, meaning_of_pod(pod))
        elif pod is not None and not each.is_running and (starter is None or started_at(starter) is None):
            yield from self._cluster_waits(each, _before_its_command(starter))

    def _fails_with_others(self, each: LiveAttempt, pod: Object | None, meaning: Meaning) -> Iterator[End | LookAgain]:
        """Its operator gave up because of another task's pod, of which we may hear later than of that."""
        awaited, fate = f"fate of {self._item.name}", _fate_of(self._matched.values())
        if fate is _Fate.LOST:
            outcome = self._lost(each, f"another pod of its gang was lost: {meaning.sentence}")
            yield End(each, pod, outcome, asks=True)
        elif fate is _Fate.FAILED or self._done.has_waited(awaited, HEAD_SECONDS, self._now):
            yield End(each, pod, self._outcome_of_object(meaning), asks=True)
        else:
            yield LookAgain(awaited, HEAD_SECONDS)

    def _has_lost_its_head(self, each: LiveAttempt, pod: Object | None) -> bool:
        """A Ray cluster outlives its workers, and not its head. One that a user wrote does as it says."""
        is_ray = self._item.kind.name == "RayJob" and not self._wanted.spec.kubernetes.manifest
        is_head = is_ray and each.attempt.task == 0
        return is_head and each.is_running and (pod is None or not self._observed.is_here(pod))

    def _vanished(self, each: LiveAttempt) -> End:
        """Its pod is gone, and its end was not seen."""
        return End(each, None, self._lost(each, _unseen(each)))

    def _lost(self, each: LiveAttempt, message: str) -> Outcome:
        reason = Reason.PREEMPTED if each.is_yielding else Reason.NODE_LOST
        return Outcome(self._now.at, self._now.at, reason=reason, message=message)

    def _outcome_of_object(self, meaning: Meaning) -> Outcome:
        """Of all tasks of an object that ended."""
        at = self._now.at
        if meaning.state is State.SUCCEEDED:
            return Outcome(at, at, exit_code=0)
        if meaning.reason in (None, Reason.EXIT_CODE):
            return Outcome(at, at, exit_code=1, message=meaning.sentence)
        return Outcome(at, at, reason=meaning.reason, message=meaning.sentence)

    def _outcome_without_pod(self, each: LiveAttempt) -> Outcome | None:
        """What the object says of a task whose pod is not there any more, or never was; None: nothing."""
        seen, meaning, at = self._object, self._meaning, self._now.at
        if seen is None or meaning is None:
            return None
        is_job = self._item.kind.name == "Job"
        if is_job and is_within(each.attempt.task, seen.get("status", {}).get("completedIndexes") or ""):
            return Outcome(at, at, exit_code=0)
        if not self._item.kind.by_object and meaning.state is State.FAILED and meaning.reason is Reason.EXIT_CODE:
            # A Job takes a pod that somebody deleted for one that failed; those that failed by themselves stay there.
            return Outcome(at, at, reason=Reason.NODE_LOST, message=_unseen(each))
        is_array = seen.get("spec", {}).get("completions", 1) > 1
        return self._outcome_of_object(meaning) if meaning.state in ENDED and not is_array else None

    # -- what it waits for --------------------------------------------------------------------------------------------

    def _cluster_waits(self, each: LiveAttempt, meaning: Meaning) -> Iterator[Event]:
        yield from awaited(self._done, [each], meaning, self._now)

    def _reason_of(self, meaning: Meaning) -> Meaning:
        if words := self._observed.queue_words.get(self._item.name):
            return Meaning(State.PENDING, Reason.QUOTA, f"it waits in Kueue's queue: {words}")
        if meaning.state is State.RUNNING:  # other tasks of it run
            return Meaning(State.STARTING, None, "its pod is still to be made")
        return meaning


def awaited(done: Done, attempts: Iterable[LiveAttempt], meaning: Meaning, now: Now) -> list[Event]:
    """Told in words, once."""
    fresh = [each.attempt for each in attempts if done.words.get(each.attempt) != meaning.sentence]
    return [AttemptsAwaited((Awaited(attempt, meaning.reason, meaning.sentence),), now.at) for attempt in fresh]


def _fate_of(pods: Iterable[Object]) -> _Fate:
    """One that failed by itself counts before those that its operator removes because of it."""
    found = [(meaning_of_pod(pod), deleted_at(pod) is not None) for pod in pods]
    if any(
        meaning.state is State.FAILED and meaning.reason is not Reason.NODE_LOST and not is_deleted
        for meaning, is_deleted in found
    ):
        return _Fate.FAILED
    is_lost = any(is_deleted or meaning.reason is Reason.NODE_LOST for meaning, is_deleted in found)
    return _Fate.LOST if is_lost else _Fate.UNKNOWN


def _unseen(each: LiveAttempt) -> str:
    return f"its pod{f' {each.pod}' if each.pod else ''} is gone, and nobody saw how it ended"


def _before_its_command(submitter: Object | None) -> Meaning:
    """Of a RayJob whose cluster is up, and whose command nobody runs yet."""
    if submitter is None:
        return Meaning(State.STARTING, None, "its Ray cluster is up, and its command is still to be handed in")
    why = meaning_of_pod(submitter)
    return Meaning(State.STARTING, why.reason, f"the pod that hands its command to Ray: {why.sentence}")
