"""Plan for one job of a cluster: what the yard wants is compared with what was observed, and steps follow.

Pure: no cluster is asked and no clock is read. Whatever is done of a plan, in whatever order the cluster tells of it,
the next plan goes on from there.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from jobyard.executors.kubernetes.attempt_pods import task_of
from jobyard.executors.kubernetes.done import Done, Now
from jobyard.executors.kubernetes.kinds import Kind, kind_of, merged
from jobyard.executors.kubernetes.object_keys import ObjectKey, Scope
from jobyard.executors.kubernetes.observed import Observed, is_leaving
from jobyard.executors.kubernetes.outcomes import deleted_at, started_at
from jobyard.executors.kubernetes.reporting import has_sidecar
from jobyard.executors.kubernetes.steps import (
    Apply,
    AskToStop,
    Delete,
    DeletePod,
    End,
    LookAgain,
    Patch,
    Signal,
    Step,
    Tell,
)
from jobyard.executors.kubernetes.telling import matched_pods, told_of_object
from jobyard.executors.kubernetes.wanted import Wanted, WantedObject
from jobyard.executors.protocol import JobFacts, LiveAttempt
from jobyard.kubernetes.states import is_over
from jobyard.model.events import AttemptsStarted, AttemptsWithdrawn

Object = dict[str, Any]
SURE_SECONDS = 1.0  # before a task of an array gets an object of its own
TIDY_SECONDS = 30.0  # before an object is removed whose tasks have all ended
FORCED_SECONDS = 1  # not 0: that would only forget the pod, which might run on
LINGER_SECONDS = 3.0  # in which pods of an object that has ended end as well


def plan(wanted: Wanted, observed: Observed, done: Done, now: Now) -> list[Step]:
    """For a job that goes on."""
    planning = _Planning(wanted, observed, done, now)
    # 1. Tell what was seen.
    for item in wanted.objects:
        planning.tell(item)
    # 2. Make and let in; stop what is to stop.
    for item in wanted.objects:
        planning.advance(item)
    # 3. Remove what nobody wants.
    planning.remove_others()
    return planning.steps


def plan_of_ended(facts: JobFacts, observed: Observed, done: Done, now: Now) -> list[Step]:
    """For a job that is over: nothing of it may go on running. Ended objects stay for a week, for people to look at."""
    tidying = _Tidying(observed, done, now)
    for name in observed.objects:
        if not tidying.stays(name) and (facts.is_stopping or not tidying.is_about_to_end(name)):
            tidying.delete(observed.kinds[name], name)
    return tidying.steps


class _Tidying:
    """Removes objects, where they do not end by themselves."""

    def __init__(self, observed: Observed, done: Done, now: Now) -> None:
        self.steps: list[Step] = []
        self._observed, self._done, self._now = observed, done, now

    def delete(self, kind: Kind, name: str) -> None:
        if name not in self._done.deleted:
            self.steps.append(Delete(kind, name))

    def has_waited(self, what: ObjectKey | str, seconds: float) -> bool:
        if self._done.has_waited(what, seconds, self._now):
            return True
        self.steps.append(LookAgain(what, seconds))
        return False

    def stays(self, name: str) -> bool:
        """Has it ended, with all its pods? Operators leave workers behind, or begin a pod anew that they have just
        cleared away: that must neither hold room nor write beside the next attempt."""
        if not self._observed.has_ended(name):
            return False
        lingers = self._observed.has_running_pods(name) and self.has_waited(f"end of {name}", LINGER_SECONDS)
        return not lingers

    def is_about_to_end(self, name: str) -> bool:
        """All its pods have ended: its controller will say so in a moment, and then it stays for who looks there."""
        return not self._observed.has_running_pods(name) and not self.has_waited(name, TIDY_SECONDS)


class _Planning(_Tidying):
    def __init__(self, wanted: Wanted, observed: Observed, done: Done, now: Now) -> None:
        super().__init__(observed, done, now)
        self._wanted = wanted
        self._pods: dict[LiveAttempt, Object] = {}
        self._ending = set(done.ending)  # with what this plan tells of
        self._begun = set(done.begun)

    def tell(self, wanted_object: WantedObject) -> None:
        matched = matched_pods(self._wanted, self._observed, wanted_object)
        self._pods |= matched
        steps = told_of_object(self._wanted, self._observed, self._done, wanted_object, matched, self._now)
        self._ending |= {step.live.attempt for step in steps if isinstance(step, End)}
        told = [event for step in steps if isinstance(step, Tell) for event in step.events]
        self._begun |= {item.attempt for event in told if isinstance(event, AttemptsStarted) for item in event.items}
        self.steps += steps

    # -- making -------------------------------------------------------------------------------------------------------

    def advance(self, item: WantedObject) -> None:
        facts, seen = self._wanted.facts, self._observed.objects.get(item.name)
        staying = [each for each in item.attempts if not each.is_stopping]
        if going := [each for each in item.attempts if each.is_stopping]:
            self._stop(item, going, is_last=not staying)
        if not staying or facts.is_stopping:
            return
        if seen is None or self._is_half_made(item, seen):
            beginning = [each for each in staying if each.attempt not in self._ending]
            if seen is not None or self._may_be_made(item, beginning):
                self._apply(item, beginning, seen)
        elif not self._wanted.has_queue:  # else Kueue lets it in
            self._admit(item, seen)

    def _may_be_made(self, item: WantedObject, beginning: list[LiveAttempt]) -> bool:
        is_made = item.name in self._done.made and item.name not in self._observed.lost
        if is_made or len(beginning) < len(item.attempts) or any(each.is_running for each in beginning):
            return False  # first the yard has to hear what became of its pods
        if any(each.attempt.task in self._busy for each in beginning):
            return False  # the pod of an earlier attempt is on its way out
        if item.key.scope is not Scope.TASK:
            return True
        # Its array or JobSet is over: the yard may be about to stop the rest, and other tasks are still to end with it.
        return not self._are_others_ending() and self.has_waited(item.key, SURE_SECONDS)

    @cached_property
    def _busy(self) -> set[int]:
        """Tasks of which a pod is there that may still do something."""
        spec = self._wanted.spec
        running = (pod for pod in self._observed.pods.values() if not is_over(pod))
        tasks = (task_of(spec, kind_of(spec), pod) for pod in running)
        return {task for task in tasks if task is not None}

    def _are_others_ending(self) -> bool:
        """Are tasks of a JobSet that has gone, or failed, still on their way out? If all go, all begin anew."""
        return any(
            item.key.scope is Scope.WHOLE
            and not self._stands(item.name)
            and any(each.is_running for each in item.attempts)
            for item in self._wanted.objects
        )

    def _stands(self, name: str) -> bool:
        seen = self._observed.objects.get(name)
        return seen is not None and not is_leaving(seen) and not self._observed.has_ended(name)

    def _is_half_made(self, item: WantedObject, seen: Object) -> bool:
        """By another server, or by us when the answer was lost: what belongs to it may not be there yet."""
        return item.name not in self._done.made and (item.kind.is_waiting(seen) or len(item.bodies) > 1)

    def _apply(self, item: WantedObject, staying: list[LiveAttempt], seen: Object | None) -> None:
        """Where nothing belongs to it, and nobody else lets it in, it is let in as it is made."""
        first, *rest = item.bodies
        if not rest and not self._wanted.has_queue:
            first = merged(first, self._admission(item, first, is_fewer_better=True))
        self.steps.append(Apply(item.kind, (first, *rest), tuple(staying), self._wanted.spec, seen is not None))

    def _admit(self, item: WantedObject, seen: Object) -> None:
        patch = self._admission(item, seen, is_fewer_better=self._wanted.facts.waiting > 0)
        if patch and self._done.patched.get(item.name) != patch:
            self.steps.append(Patch(item.kind, item.name, patch))

    def _admission(self, item: WantedObject, seen: Object, *, is_fewer_better: bool) -> Object:
        """The patch that lets it in; an array with as many pods at once as it has slots. Empty: it is in already.

        With no task waiting, fewer slots need no fewer pods: none would follow those that run.
        """
        patch: Object = item.kind.admission(seen) if item.kind.is_waiting(seen) else {}
        if item.key.scope is Scope.ARRAY:
            slots, at_once = self._wanted.slots, int(seen["spec"]["parallelism"])
            if slots > at_once or (slots < at_once and is_fewer_better):
                patch = merged(patch, {"spec": {"parallelism": slots}})
        return patch

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _stop(self, item: WantedObject, going: list[LiveAttempt], is_last: bool) -> None:
        """At a checkpoint where that was asked and its time is not over; otherwise now, with the pods' own grace."""
        now = [each for each in going if not (each.is_yielding and not each.at_once and self._waits_for(each))]
        if not now:
            return
        self.steps.append(Signal(tuple(now)))
        pods = [pod for each in now if (pod := self._pods.get(each)) and self._observed.is_running(pod)]
        if item.key.scope is Scope.ARRAY and not self._wanted.facts.is_stopping:
            if is_last and all(each.is_yielding for each in now) and not self._wanted.has_queue:
                self._suspend(item.kind, item.name)  # the rest of it waits
            else:
                self.steps += [DeletePod(pod["metadata"]["name"]) for pod in pods]
        elif item.name in self._observed.objects or item.name in self._done.made:
            self.delete(item.kind, item.name)
        hasty = [pod for each in now if each.attempt in self._done.hurried and (pod := self._pods.get(each))]
        here = [pod for pod in hasty if self._observed.is_here(pod) and not _is_hurried(pod)]
        self.steps += [DeletePod(pod["metadata"]["name"], FORCED_SECONDS) for pod in here]
        if without := tuple(each.attempt for each in now if self._has_no_pod(each)):
            self.steps.append(Tell((AttemptsWithdrawn(without, self._now.at),)))

    def _waits_for(self, each: LiveAttempt) -> bool:
        """Is it asked to stop at a checkpoint, and has it time left? Asks it, where nobody has."""
        request, pod = self._done.stop_requests.get(each.attempt), self._pods.get(each)
        if request is None:
            if pod is None or started_at(pod) is None or not has_sidecar(pod):
                return False  # nothing of it can stop by itself
            if deleted_at(pod) is None:  # else an earlier server ended it
                self.steps.append(AskToStop(each, pod))
            return True
        due = request.due_in(self._now.up)
        if due > 0:
            self.steps.append(LookAgain("", max(0.1, due)))
        return due > 0

    def _suspend(self, kind: Kind, name: str) -> None:
        self.steps.append(Patch(kind, name, kind.suspended(True), is_kept=False))

    def _has_no_pod(self, each: LiveAttempt) -> bool:
        """Is there nothing of it that could tell of its end?"""
        if each.is_running or each.attempt in self._ending or each.attempt in self._begun:
            return False
        pod = self._pods.get(each)
        return pod is None or not self._observed.is_here(pod)

    # -- removing -----------------------------------------------------------------------------------------------------

    def remove_others(self) -> None:
        """Objects of attempts that are over or were given up. Those that ended by themselves stay for who looks."""
        self._remove_strays()
        wanted = {item.name for item in self._wanted.objects}
        for name, seen in self._observed.objects.items():
            kind = self._observed.kinds[name]
            if name in wanted:
                continue
            if kind.by_object:  # its operator was seen to begin pods anew that it had just cleared away
                self.delete(kind, name)
            elif self.stays(name):
                continue
            elif name == self._wanted.array and not self._wanted.facts.is_stopping:
                # Its other tasks wait for room: so does it.
                if not self._wanted.slots and not kind.is_waiting(seen) and not self._wanted.has_queue:
                    self._suspend(kind, name)
            elif not self.is_about_to_end(name):
                self.delete(kind, name)

    def _remove_strays(self) -> None:
        """Pods of an array that Kubernetes began for tasks that were cancelled."""
        array = self._wanted.array
        if array not in self._observed.objects:
            return
        kind = self._observed.kinds[array]
        for pod in self._observed.pods_of(kind, array):
            task = kind.task_of(self._wanted.spec, pod)
            if task is not None and not is_over(pod) and not is_leaving(pod) and self._wanted.is_ended(task):
                self.steps.append(DeletePod(pod["metadata"]["name"]))


def _is_hurried(pod: Object) -> bool:
    return is_leaving(pod) and bool(pod["metadata"].get("deletionGracePeriodSeconds", 0) <= FORCED_SECONDS)
