"""Reconciler of one job of a cluster: asks what is wanted, has it planned, and has the plan carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from jobyard.errors import Unavailable
from jobyard.executors.kubernetes import secrets
from jobyard.executors.kubernetes.carrying_out import CarryingOut
from jobyard.executors.kubernetes.held_job import HeldJob
from jobyard.executors.kubernetes.kinds import Kind
from jobyard.executors.kubernetes.last_words import clocks
from jobyard.executors.kubernetes.manifest import objects_of, task_objects_of
from jobyard.executors.kubernetes.object_keys import (
    ARRAY_ATTEMPT,
    ObjectKey,
    Scope,
    attempts_by_object,
    is_array,
    kind_of_object,
    with_memory,
)
from jobyard.executors.kubernetes.plan import plan, plan_of_ended
from jobyard.executors.kubernetes.wanted import Wanted, WantedObject, with_pod_of
from jobyard.executors.protocol import JobFacts, LiveAttempt, SubmittedJob, YardView
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.paths import object_path
from jobyard.model.events import Event
from jobyard.model.job import JobSpec, Reason
from jobyard.model.node import ClusterConfig

Object = dict[str, Any]
EXPLAIN_SECONDS = 5.0  # an object without a pod for so long has a reason, which its events tell
PLANS_AT_ONCE = 3  # one makes an object, the next lets it in


class Reconciler:
    """Brings single jobs to where the yard wants them. `again` has a job looked at once more after some seconds."""

    def __init__(
        self,
        config: ClusterConfig,
        yard_id: str,
        yard: YardView,
        tell: Callable[[Sequence[Event]], None],
        again: Callable[[str, float], None],
        sees_all_of: Callable[[Kind], bool],
        is_simulated: Callable[[str], bool],
    ) -> None:
        self._config = config
        self._yard_id = yard_id
        self._yard = yard
        self._sees_all_of = sees_all_of
        self._is_simulated = is_simulated
        self._carrying = CarryingOut(tell, again)

    async def reconcile(self, api: Api, held: HeldJob) -> None:
        for _ in range(PLANS_AT_ONCE):
            if not await self._reconcile_once(api, held):
                return

    async def _reconcile_once(self, api: Api, held: HeldJob) -> bool:
        """True: another plan is due at once."""
        facts = self._yard.facts(held.id)
        if facts.is_over:
            await self._clear(api, held, facts)
            return False
        job = self._yard.job(held.id)
        if facts.is_quarantined or job.spec.cluster != self._config.id:
            return False  # in quarantine, or of another entry of the same cluster
        live = self._yard.live_of(held.id)
        held.prune(live)
        try:
            wanted = self._wanted(api, job, facts, live, held)
        except Unavailable:
            raise
        except Exception as error:  # it was not sent, and never can be
            sentence = f"it cannot be written for the cluster ({error})"
            self._yard.count_error("launch", f"job {held.id} on {self._config.id}: {sentence}", error)
            self._carrying.give_up([each for each in live if not each.is_stopping], sentence, Reason.REFUSED)
            return False
        steps = plan(wanted, held.observed, held.done, clocks())
        return await self._carrying.carry_out(api, held, steps)

    def _wanted(
        self, api: Api, job: SubmittedJob, facts: JobFacts, live: Sequence[LiveAttempt], held: HeldJob
    ) -> Wanted:
        array = ""
        if is_array(job.spec):
            built = self._objects(api, job, ObjectKey(Scope.ARRAY, ARRAY_ATTEMPT), held, ())
            array = built[0]["metadata"]["name"]
        observed = held.observed
        keys = attempts_by_object(
            job.spec,
            live,
            facts,
            observed.objects.get(array),
            observed.standing(),
            observed.has_succeeded,
            with_pod_of(job.spec, observed, live),
        )
        objects = [
            WantedObject(key, kind_of_object(job.spec, key), self._objects(api, job, key, held, attempts), attempts)
            for key, attempts in keys.items()
        ]
        return Wanted(
            job.spec,
            facts,
            live,
            objects,
            array,
            self._config.id,
            bool(self._config.queue),
            lambda task: self._yard.is_ended(held.id, task),
            self._sees_all_of,
            self._is_simulated,
        )

    def _objects(
        self, api: Api, job: SubmittedJob, key: ObjectKey, held: HeldJob, attempts: Sequence[LiveAttempt]
    ) -> list[Object]:
        """As they would be sent. They are kept: an object is made once, as it was when its attempt began."""
        if key not in held.built:
            sized = job if key.scope is Scope.ARRAY else job._replace(spec=with_memory(job.spec, attempts))
            held.built[key] = self.build(sized, key, api.namespace, self._resumes_at(attempts))
        return held.built[key]

    def build(self, job: SubmittedJob, key: ObjectKey, namespace: str, resumes_at: int | None = None) -> list[Object]:
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

    async def explain(self, api: Api, jobs: Iterable[HeldJob]) -> None:
        """Objects that were let in and have no pods: whoever should make them has said why."""
        absent = {name: held for held in jobs for name in held.observed.without_pods()}
        now = clocks()
        for name, held in absent.items():
            held.done.since.setdefault(f"pods of {name}", now.up)
        waiting = {
            name: held for name, held in absent.items() if held.done.has_waited(f"pods of {name}", EXPLAIN_SECONDS, now)
        }
        if not waiting:
            return
        selector = "type=Warning,reason=FailedCreate"
        found = await api.get(object_path("v1", "events", api.namespace), fieldSelector=selector)
        for event in found["items"]:
            about, words = event["involvedObject"].get("name", ""), event.get("message", "")
            for name, held in waiting.items():
                if about.startswith(name):
                    reason = Reason.QUOTA if "exceeded quota" in words else Reason.HELD
                    live = self._yard.live_of(held.id)
                    self._carrying.await_all(held, live, reason, f"its pods cannot be made: {words}")

    async def _clear(self, api: Api, held: HeldJob, facts: JobFacts) -> None:
        steps = plan_of_ended(facts, held.observed, held.done, clocks())
        await self._carrying.carry_out(api, held, steps)
        with suppress(KeyError):  # a job that nobody knows any more
            spec = self._yard.job(held.id).spec
            if spec.kubernetes.secrets and spec.cluster == self._config.id:
                await self._let_go_of_secrets(api, held, spec)

    async def _let_go_of_secrets(self, api: Api, held: HeldJob, spec: JobSpec) -> None:
        """What stays for a while owns them: the job may be tried again."""
        objects = held.observed.objects
        staying = [name for name in objects if name not in held.done.deleted]
        owner = max(staying, key=lambda name: objects[name]["metadata"]["creationTimestamp"], default="")
        if held.done.secrets_owner == owner:
            return
        if owner:
            await secrets.give_to(api, spec, held.observed.kinds[owner], objects[owner])
        else:
            await secrets.remove(api, spec)
        held.done.secrets_owner = owner
