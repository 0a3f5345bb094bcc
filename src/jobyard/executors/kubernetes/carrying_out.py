"""Carrying out a plan: step by step, against the API server; each step is remembered as soon as it is done."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jobyard.agent_protocol.stop_request import StopRequest
from jobyard.errors import ExecutorError
from jobyard.executors.kubernetes import secrets
from jobyard.executors.kubernetes.held_job import HeldJob
from jobyard.executors.kubernetes.last_words import clocks
from jobyard.executors.kubernetes.manifest import owned
from jobyard.executors.kubernetes.reporting import CONTAINER as SIDECAR
from jobyard.executors.kubernetes.states import Meaning
from jobyard.executors.kubernetes.steps import (
    Apply,
    AskToStop,
    Delete,
    DeletePod,
    End,
    Follow,
    LookAgain,
    Patch,
    Signal,
    Step,
    Tell,
)
from jobyard.executors.kubernetes.telling import awaited
from jobyard.executors.kubernetes.variables import REPORTS
from jobyard.executors.protocol import LiveAttempt
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.paths import object_path
from jobyard.kubernetes.refusals import Refused
from jobyard.model.events import AttemptsFinished, Event, Finished
from jobyard.model.job import Reason, State
from jobyard.model.task import Outcome

log = logging.getLogger(__name__)

Object = dict[str, Any]
RETRY_SECONDS = 5.0  # until something is tried again that the cluster refused for now
SECRET_GONE = "its Secret is gone from the cluster; submit it again with --mount-secret"
STOP_SECONDS = 10.0  # to write the stop file
PLURALS = {"ConfigMap": "configmaps", "Service": "services"}  # of what belongs to an object


class CarryingOut:
    """`again` has a job looked at once more after some seconds."""

    def __init__(self, tell: Callable[[Sequence[Event]], None], again: Callable[[str, float], None]) -> None:
        self._tell_yard = tell
        self._again = again

    async def carry_out(self, api: Api, held: HeldJob, steps: Iterable[Step]) -> bool:
        """True: an object was made, and the next plan is due at once. A step that is refused holds up no other, and is
        told at the end; one that nobody answers breaks the rest off, for the next plan. Raises ExecutorError for both.
        """
        has_made, refusals = False, []
        for step in steps:
            try:
                has_made = await self._do(api, held, step) or has_made
            except Refused as refused:
                refusals.append(refused)
        if refusals:
            raise refusals[0]
        return has_made

    async def _do(self, api: Api, held: HeldJob, step: Step) -> bool:
        match step:
            case Tell(events=events):
                self.tell(held, events)
            case Follow(live=live, pod=pod, writer=writer):
                held.done.followed.add(live.attempt)
                held.followers.begin(api, live.attempt, pod, writer)
            case End():
                held.last_words.begin(api, step)
            case Apply():
                return await self._apply(api, held, step)
            case Patch():
                await self._patch(api, held, step)
            case Delete(kind=kind, name=name):
                await api.delete(f"{kind.collection(api.namespace)}/{name}")
                held.done.deleted.add(name)
            case DeletePod(name=name, grace_seconds=grace):
                path = object_path("v1", "pods", api.namespace, name)
                await (api.delete(path) if grace is None else api.delete(path, grace_seconds=grace))
            case AskToStop(live=live, pod=pod):
                self._again(held.id, await _ask_to_stop(api, held, live, pod))
            case Signal(attempts=attempts):
                held.done.signalled(attempts, clocks())
            case LookAgain(what=what, seconds=seconds):
                if what:
                    held.done.since.setdefault(what, clocks().up)
                self._again(held.id, seconds)
        return False

    def tell(self, held: HeldJob, events: Sequence[Event]) -> None:
        held.done.told(events)
        self._tell_yard(events)

    def give_up(self, attempts: Iterable[LiveAttempt], message: str, reason: Reason = Reason.UNKNOWN) -> None:
        """Those that have not begun never will."""
        now = clocks().at
        outcome = Outcome(now, now, reason=reason, message=message)
        waiting = tuple(Finished(each.attempt, outcome) for each in attempts if not each.is_running)
        self._tell_yard([AttemptsFinished(waiting, now)] if waiting else [])

    def await_all(self, held: HeldJob, attempts: Iterable[LiveAttempt], reason: Reason, sentence: str) -> None:
        self.tell(held, awaited(held.done, attempts, Meaning(State.PENDING, reason, sentence), clocks()))

    async def _apply(self, api: Api, held: HeldJob, step: Apply) -> bool:
        """False: it was refused."""
        first, *rest = step.objects
        name = first["metadata"]["name"]
        try:
            if not step.is_there:
                if not await secrets.are_kept(api, step.spec, held.id):
                    self.give_up(step.attempts, SECRET_GONE)
                    return False
                held.done.secrets_owner = None
                held.done.begin_anew(name)
                made = await api.apply(f"{step.kind.collection(api.namespace)}/{name}", first)
                held.observed.answered(step.kind, made)
            owner = held.observed.objects.get(name)
            if owner is None:  # somebody has deleted it meanwhile
                return True
            for child in rest:
                body = owned(child, {**first, "metadata": owner["metadata"]})
                await _create_once(api, object_path("v1", PLURALS[child["kind"]], api.namespace), body)
        except Refused as refused:
            self._refused(held, refused, step.attempts)
            return False
        held.done.made.add(name)
        return True

    def _refused(self, held: HeldJob, refused: Refused, attempts: Sequence[LiveAttempt]) -> None:
        if "exceeded quota" in str(refused):
            self.await_all(held, attempts, Reason.QUOTA, f"the cluster's quota does not allow it: {refused}")
            self._again(held.id, RETRY_SECONDS)
        elif not refused.is_final:  # an API server that has just started refuses everything
            self.await_all(held, attempts, Reason.HELD, f"the cluster does not take it now: {refused}")
            self._again(held.id, RETRY_SECONDS)
        else:
            self.give_up(attempts, f"the cluster refused it: {refused}")

    async def _patch(self, api: Api, held: HeldJob, step: Patch) -> None:
        """One that is gone is no error."""
        held.done.patched.pop(step.name, None)
        try:
            answer = await api.patch(f"{step.kind.collection(api.namespace)}/{step.name}", step.body)
        except Refused as refused:
            if refused.is_absent:
                return
            raise
        held.observed.answered(step.kind, answer)
        if step.is_kept:
            held.done.patched[step.name] = step.body


async def _ask_to_stop(api: Api, held: HeldJob, each: LiveAttempt, pod: Object) -> float:
    """Write the stop file; answers with the seconds until it is to be looked at again."""
    now = clocks()
    request = StopRequest(now.up, each.yield_seconds, 0.0)
    words = shlex.quote(json.dumps(vars(request)))
    script = f"cd {REPORTS} && {{ [ -e stop ] || {{ echo {words} >stop.new && mv stop.new stop; }}; }}"
    asking = f"asking {each.attempt}"
    try:
        await api.run(pod["metadata"]["name"], SIDECAR, ["sh", "-c", script], STOP_SECONDS)
    except ExecutorError as error:
        log.warning("pod %s cannot be asked to stop: %s", pod["metadata"]["name"], error)
        held.done.since.setdefault(asking, now.up)
        if held.done.has_waited(asking, each.yield_seconds, now):
            # then it is ended without being asked
            held.done.stop_requests[each.attempt] = StopRequest(now.up, 0.0, 0.0)
        return 1.0
    held.done.stop_requests[each.attempt] = request
    return max(0.1, request.due_in(clocks().up))


async def _create_once(api: Api, collection: str, body: Object) -> None:
    """What is there already stays as it is: it may be immutable, and made by a server of another version."""
    try:
        await api.create(collection, body)
    except Refused as refused:
        if not refused.is_there_already:
            raise
