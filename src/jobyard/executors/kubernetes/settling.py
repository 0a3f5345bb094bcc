"""What does one job need in the cluster, now? What the yard wants is compared with what is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from jobyard.errors import ExecutorError, Unavailable
from jobyard.executors.kubernetes import secrets
from jobyard.executors.kubernetes.held_job import HeldJob
from jobyard.executors.kubernetes.kinds import Kind, merged
from jobyard.executors.kubernetes.manifest import objects_of, owned, task_objects_of
from jobyard.executors.kubernetes.units import (
    ARRAY_ATTEMPT,
    Scope,
    UnitKey,
    is_array,
    kind_of_unit,
    units_of,
    with_memory,
)
from jobyard.executors.protocol import JobFacts, LiveAttempt, SubmittedJob, YardView
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.paths import object_path
from jobyard.kubernetes.refusals import Refused
from jobyard.model.events import AttemptsFinished, AttemptsWithdrawn, Event, Finished
from jobyard.model.job import JobSpec, Reason, State
from jobyard.model.node import ClusterConfig
from jobyard.model.task import Outcome

Object = dict[str, Any]
SURE_SECONDS = 1.0  # before a task of an array gets an object of its own
TIDY_SECONDS = 30.0  # before an object is removed whose tasks have all ended
EXPLAIN_SECONDS = 5.0  # an object without a pod for so long has a reason, which its events tell
FORCED_SECONDS = 1  # not 0: that would only forget the pod, which might run on
LINGER_SECONDS = 3.0  # in which pods of an object that has ended end as well
RETRY_SECONDS = 5.0  # until something is tried again that the cluster refused for now
ENDED = (State.SUCCEEDED, State.FAILED)


class Settling:
    """Brings single jobs to where the yard wants them. `again` has a job looked at once more after some seconds."""

    def __init__(
        self,
        config: ClusterConfig,
        yard_id: str,
        yard: YardView,
        tell: Callable[[Sequence[Event]], None],
        again: Callable[[str, float], None],
        sees_all_of: Callable[[Kind], bool],
    ) -> None:
        self._config = config
        self._yard_id = yard_id
        self._yard = yard
        self._tell = tell
        self._again = again
        self._sees_all_of = sees_all_of

    async def settle(self, api: Api, held: HeldJob) -> None:
        facts = self._yard.facts(held.id)
        if facts.is_over:
            await self._clear(api, held, facts)
            return
        if facts.is_held:
            return
        job = self._yard.job(held.id)
        if job.spec.cluster != self._config.id:
            return  # another entry of the same cluster has it
        live = self._yard.live_of(held.id)
        held.prune(live)
        # 1. What is to be, so that what is seen of it can be told.
        try:
            array = held.objects.get(self._array_name(api, job, held)) if is_array(job.spec) else None
            units = units_of(job.spec, live, facts, array, held.standing(), held.has_succeeded)
            named = {key: self._objects(api, job, key, held, attempts) for key, attempts in units.items()}
        except Unavailable:
            raise
        except Exception as error:  # nothing of it was sent, and nothing ever can be
            sentence = f"it cannot be written for the cluster ({error})"
            self._yard.trouble("launch", f"job {held.id} on {self._config.id}: {sentence}", error)
            self._give_up([each for each in live if not each.is_stopping], sentence, Reason.REFUSED)
            return
        # 2. Tell what was seen.
        ended = max(0, job.spec.size - len(live) - facts.waiting)
        for key, attempts in units.items():
            kind = kind_of_unit(job.spec, key)
            name = named[key][0]["metadata"]["name"]
            held.observe(api, job.spec, kind, name, attempts, ended, sees_all=self._sees_all_of(kind))
        # 3. Make and admit; stop what is to stop. A task that runs alone has one of the array's slots.
        alone = sum(len(attempts) for key, attempts in units.items() if key.scope is Scope.TASK)
        facts = facts._replace(slots=facts.slots - alone)
        for key, attempts in units.items():
            await self._advance(api, held, job, facts, key, attempts, named[key])
        # 4. Remove what nobody wants.
        wanted = {objects[0]["metadata"]["name"] for objects in named.values()}
        await self._remove_others(api, held, job, wanted, facts)

    def _array_name(self, api: Api, job: SubmittedJob, held: HeldJob) -> str:
        name: str = self._objects(api, job, UnitKey(Scope.ARRAY, ARRAY_ATTEMPT), held, ())[0]["metadata"]["name"]
        return name

    def _objects(
        self, api: Api, job: SubmittedJob, key: UnitKey, held: HeldJob, attempts: Sequence[LiveAttempt]
    ) -> list[Object]:
        """As they would be sent. They are kept: an object is made once, as it was when its attempt began."""
        if key not in held.built:
            sized = job if key.scope is Scope.ARRAY else job._replace(spec=with_memory(job.spec, attempts))
            held.built[key] = self.build(sized, key, api.namespace, self._resumes_at(attempts))
        return held.built[key]

    def build(self, job: SubmittedJob, key: UnitKey, namespace: str, resumes_at: int | None = None) -> list[Object]:
        yard_id, storage, queue = self._yard_id, self._config.storage, self._config.queue
        if key.scope is Scope.TASK:
            return task_objects_of(
                job,
                key.task,
                key.number,
                namespace,
                resumes_at=resumes_at,
                yard_id=yard_id,
                storage=storage,
                queue=queue,
            )
        return objects_of(
            job, key.number, namespace, resumes_at=resumes_at, yard_id=yard_id, storage=storage, queue=queue
        )

    def _resumes_at(self, attempts: Sequence[LiveAttempt]) -> int | None:
        if not attempts or not self._config.storage:
            return None
        first = attempts[0]
        return self._yard.resumes_at(first.attempt, first.slot.placement.node)

    async def _advance(
        self,
        api: Api,
        held: HeldJob,
        job: SubmittedJob,
        facts: JobFacts,
        key: UnitKey,
        attempts: list[LiveAttempt],
        objects: list[Object],
    ) -> None:
        kind, name = kind_of_unit(job.spec, key), objects[0]["metadata"]["name"]
        going = [each for each in attempts if each.is_stopping]
        staying = [each for each in attempts if not each.is_stopping]
        seen = held.objects.get(name)
        if going:
            await self._stop(api, held, job, facts, key, name, going, staying)
        if not staying or facts.is_stopping:
            return
        if seen is None:
            if name in held.made | held.lost or held.has_begun(staying):
                return  # it was made, or had been: what became of its pods is told from them
            if key.scope is Scope.TASK and not held.has_waited(key, SURE_SECONDS):
                self._again(held.id, SURE_SECONDS)  # its array has just ended: the yard may be about to stop the rest
                return
            if not await secrets.are_kept(api, job.spec, held.id):
                self._give_up(staying, "its Secret is gone from the cluster; submit it again with --mount-secret")
                return
            held.secrets_owner = None
        if seen is None or (name not in held.made and (kind.is_waiting(seen) or len(objects) > 1)):
            # Also what another server has begun: what belongs to it may not be there yet.
            slots = facts.slots if key.scope is Scope.ARRAY else None
            seen = await self._make(api, held, kind, objects, staying, slots, seen)
        if seen is None or self._config.queue:
            return  # Kueue lets it in
        await self._admit(api, held, kind, name, seen, key, facts)

    async def _make(
        self,
        api: Api,
        held: HeldJob,
        kind: Kind,
        objects: list[Object],
        attempts: list[LiveAttempt],
        slots: int | None,
        owner: Object | None,
    ) -> Object | None:
        """With what belongs to it, which goes with it. None: it was refused. Where there is nothing else to make, and
        nobody else to let it in, it is let in as it is made."""
        first, *children = objects
        if not children and not self._config.queue:
            first = merged(first, _admission(kind, first, slots, is_fewer_better=True))
        try:
            path = f"{kind.collection(api.namespace)}/{first['metadata']['name']}"
            owner = owner or await api.apply(path, first)
            for child in children:
                plural = {"ConfigMap": "configmaps", "Service": "services"}[child["kind"]]
                body = owned(child, {**first, "metadata": owner["metadata"]})
                await _create_once(api, object_path("v1", plural, api.namespace), body)
        except Refused as refused:
            self._refused(held, refused, attempts)
            return None
        held.made.add(first["metadata"]["name"])
        held.object_changed(kind, owner, False)
        return owner

    def _refused(self, held: HeldJob, refused: Refused, attempts: list[LiveAttempt]) -> None:
        if "exceeded quota" in str(refused):
            held.await_all(attempts, Reason.QUOTA, f"the cluster's quota does not allow it: {refused}")
            self._again(held.id, RETRY_SECONDS)
            return
        if not refused.is_final:  # an API server that has just come up knows of no rights yet
            held.await_all(attempts, Reason.HELD, f"the cluster does not take it now: {refused}")
            self._again(held.id, RETRY_SECONDS)
            return
        self._give_up(attempts, f"the cluster refused it: {refused}")

    def _give_up(self, attempts: list[LiveAttempt], message: str, reason: Reason = Reason.UNKNOWN) -> None:
        now = time.time()
        outcome = Outcome(now, now, reason=reason, message=message)
        waiting = [each for each in attempts if not each.is_running]
        self._tell([AttemptsFinished(tuple(Finished(each.attempt, outcome) for each in waiting), now)])

    async def _admit(
        self, api: Api, held: HeldJob, kind: Kind, name: str, seen: Object, key: UnitKey, facts: JobFacts
    ) -> None:
        """Let it in; an array with as many pods at once as it has slots."""
        slots = facts.slots if key.scope is Scope.ARRAY else None
        patch = _admission(kind, seen, slots, is_fewer_better=facts.waiting > 0)
        if not patch or held.patched.get(name) == patch:
            return
        held.patched[name] = patch
        collection = kind.collection(api.namespace)
        try:
            answer = await api.patch(f"{collection}/{name}", patch)
        except Refused as refused:
            held.patched.pop(name, None)
            if not refused.is_absent:
                raise
        else:
            held.object_changed(kind, answer, False)

    async def explain(self, api: Api, jobs: Iterable[HeldJob]) -> None:
        """Objects that were let in and have no pods: whoever should make them has said why."""
        absent = {name: held for held in jobs for name in held.without_pods()}
        waiting = {name: held for name, held in absent.items() if held.has_waited(f"pods of {name}", EXPLAIN_SECONDS)}
        if not waiting:
            return
        selector = "type=Warning,reason=FailedCreate"
        found = await api.get(object_path("v1", "events", api.namespace), fieldSelector=selector)
        for event in found["items"]:
            about, words = event["involvedObject"].get("name", ""), event.get("message", "")
            for name, held in waiting.items():
                if about.startswith(name):
                    reason = Reason.QUOTA if "exceeded quota" in words else Reason.HELD
                    held.await_all(self._yard.live_of(held.id), reason, f"its pods cannot be made: {words}")

    async def _stop(
        self,
        api: Api,
        held: HeldJob,
        job: SubmittedJob,
        facts: JobFacts,
        key: UnitKey,
        name: str,
        going: list[LiveAttempt],
        staying: list[LiveAttempt],
    ) -> None:
        """At a checkpoint where that was asked and its time is not over; otherwise now, with the pods' own grace."""
        patient = [each for each in going if each.is_yielding and not each.at_once and held.is_within_deadline(each)]
        for each in patient:
            due = await held.ask_to_yield(api, each)
            self._again(held.id, due)
        now = [each for each in going if each not in patient]
        if not now:
            return
        held.signalled(now)
        kind = kind_of_unit(job.spec, key)
        pods = held.pods_of(now)
        if key.scope is Scope.ARRAY and not facts.is_stopping:
            if not staying and all(each.is_yielding for each in now) and not self._config.queue:
                await self._patch_quietly(api, kind, name, kind.suspended(True))  # the rest of it waits
                held.patched.pop(name, None)
            else:
                for pod in pods:
                    await api.delete(object_path("v1", "pods", api.namespace, pod["metadata"]["name"]))
        elif name in held.objects or name in held.made:
            await self._delete(api, held, kind, name)
        for hasty in held.hurry(now):
            await api.delete(object_path("v1", "pods", api.namespace, hasty), grace_seconds=FORCED_SECONDS)
        without = [each for each in now if held.has_no_pod(each)]
        if without:
            self._tell([AttemptsWithdrawn(tuple(each.attempt for each in without), time.time())])

    async def _patch_quietly(self, api: Api, kind: Kind, name: str, patch: Object) -> None:
        with suppress(Refused):
            await api.patch(f"{kind.collection(api.namespace)}/{name}", patch)

    async def _delete(self, api: Api, held: HeldJob, kind: Kind, name: str) -> None:
        if name not in held.deleted:
            held.deleted.add(name)
            try:
                await api.delete(f"{kind.collection(api.namespace)}/{name}")
            except ExecutorError:
                held.deleted.discard(name)
                raise

    async def _remove_others(
        self, api: Api, held: HeldJob, job: SubmittedJob, wanted: set[str], facts: JobFacts
    ) -> None:
        """Objects of attempts that are over or were given up. Those that ended by themselves stay for who looks."""
        array = self._array_name(api, job, held) if is_array(job.spec) else ""
        for pod in held.strays(job.spec, array, lambda task: self._yard.is_ended(held.id, task)):
            await api.delete(object_path("v1", "pods", api.namespace, pod))
        for name, seen in list(held.objects.items()):
            kind = held.kinds[name]
            if name in wanted:
                continue
            if kind.by_object:  # its operator was seen to begin pods anew that it had just cleared away
                await self._delete(api, held, kind, name)
                continue
            if kind.meaning(seen).state in ENDED and not self._lingers(held, kind, name):
                continue
            if name == array and not facts.is_stopping:
                # Its other tasks wait for room: so does it.
                if not facts.slots and not kind.is_waiting(seen) and not self._config.queue:
                    await self._patch_quietly(api, kind, name, kind.suspended(True))
                    held.patched.pop(name, None)
                continue
            if self._is_about_to_end(held, kind, name):
                continue
            await self._delete(api, held, kind, name)

    def _lingers(self, held: HeldJob, kind: Kind, name: str) -> bool:
        """Has it ended, and its pods have not? Operators leave workers behind, or begin a pod anew that they have just
        cleared away: that must neither hold room nor write beside the next attempt."""
        if not held.has_running_pods(kind, name):
            return False
        if held.has_waited(f"end of {name}", LINGER_SECONDS):
            return True
        self._again(held.id, LINGER_SECONDS)
        return False

    def _is_about_to_end(self, held: HeldJob, kind: Kind, name: str) -> bool:
        """All its pods have ended: its controller will say so in a moment, and then it stays for who looks there."""
        if held.has_running_pods(kind, name) or held.has_waited(name, TIDY_SECONDS):
            return False
        self._again(held.id, TIDY_SECONDS)
        return True

    async def _clear(self, api: Api, held: HeldJob, facts: JobFacts) -> None:
        """The job is over: nothing of it may run on. What ended by itself stays for a week, for who looks there."""
        for name, seen in list(held.objects.items()):
            kind = held.kinds[name]
            if kind.meaning(seen).state in ENDED and not self._lingers(held, kind, name):
                continue
            if facts.is_stopping or not self._is_about_to_end(held, kind, name):
                await self._delete(api, held, kind, name)
        with suppress(KeyError):  # a job that nobody knows any more
            await self._let_go_of_secrets(api, held, self._yard.job(held.id).spec)

    async def _let_go_of_secrets(self, api: Api, held: HeldJob, spec: JobSpec) -> None:
        """What stays for a while owns them: the job may be tried again."""
        staying = [name for name in held.objects if name not in held.deleted]
        owner = max(staying, key=lambda name: held.objects[name]["metadata"]["creationTimestamp"], default="")
        if not spec.secrets or held.secrets_owner == owner or spec.cluster != self._config.id:
            return
        if owner:
            await secrets.give_to(api, spec, held.kinds[owner], held.objects[owner])
        else:
            await secrets.remove(api, spec)
        held.secrets_owner = owner


async def _create_once(api: Api, collection: str, body: Object) -> None:
    """What is there already stays as it is: it may be immutable, and made by a server of another version."""
    try:
        await api.create(collection, body)
    except Refused as refused:
        if not refused.is_there_already:
            raise


def _admission(kind: Kind, seen: Object, slots: int | None, *, is_fewer_better: bool) -> Object:
    """The patch that lets it in; an array with as many pods at once as it has slots. Empty: it is in already.

    With no task waiting, fewer slots need no fewer pods: none would follow those that run.
    """
    patch: Object = kind.admission(seen) if kind.is_waiting(seen) else {}
    if slots is not None:
        at_once: int = seen["spec"]["parallelism"]
        if slots > at_once or (slots < at_once and is_fewer_better):
            patch = merged(patch, {"spec": {"parallelism": slots}})
    return patch
