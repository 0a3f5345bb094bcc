"""Which objects there should be, and which pod is which attempt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.builders import a_group, a_job

from jobyard.executors.kubernetes.attempt_pods import pods_by_attempt
from jobyard.executors.kubernetes.kinds import KINDS
from jobyard.executors.kubernetes.object_keys import ObjectKey, Scope, attempts_by_object, with_memory
from jobyard.executors.protocol import JobFacts, LiveAttempt
from jobyard.model.job import JobSpec
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Slot
from jobyard.model.training import Training

Object = dict[str, Any]
FRESH, WORN = JobFacts(False, is_fresh=True, slots=2), JobFacts(False, slots=2)
ARRAY = ObjectKey(Scope.ARRAY, 1)


def live(task: int, number: int = 1, pod: str = "", running: bool = False, memory: int = 0) -> LiveAttempt:
    slot = Slot(str(task), "j", 0, Placement("prod/n1", Resources(memory_mib=memory)))
    return LiveAttempt(AttemptId("j", task, number), slot, False, pod=pod, is_running=running)


def an_array(name: str = "a-j-a1", failed: str = "", condition: str = "") -> Object:
    conditions = [{"type": condition, "status": "True", "reason": ""}] if condition else []
    return {"metadata": {"name": name}, "status": {"failedIndexes": failed, "conditions": conditions}}


def a_pod(name: str, index: int, at: int) -> Object:
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    created = f"2026-01-01T00:00:{at:02d}Z"
    return {"metadata": {"name": name, "labels": labels, "creationTimestamp": created}}


def spec_of(tasks: int = 3, **more: Any) -> JobSpec:
    return a_job(tasks, cluster="prod", image="i", **more)


def test_a_fresh_array_is_one_indexed_job() -> None:
    first, second = live(0), live(1)
    assert attempts_by_object(spec_of(), [first, second], FRESH, None) == {ARRAY: [first, second]}


def test_tasks_of_an_array_whose_job_is_over_have_one_each() -> None:
    again = live(1, 2, "a-j-a1-1-x")
    for over in (an_array(condition="Failed"), an_array(failed="1"), None):
        assert list(attempts_by_object(spec_of(), [again], WORN, over)) == [ObjectKey(Scope.TASK, 2, 1)]


def test_a_retry_by_kubernetes_stays_in_the_array() -> None:
    again = live(1, 2, "a-j-a1-1-x")
    assert list(attempts_by_object(spec_of(), [again], WORN, an_array(failed="0,3-7"))) == [ARRAY]


def test_a_task_that_runs_stays_where_its_pod_is() -> None:
    inside, alone = live(0, 1, "a-j-a1-0-x", True), live(1, 2, "a-j-t1-a2-y", True)
    found = attempts_by_object(spec_of(), [inside, alone], WORN, an_array(condition="Failed"))
    assert found == {ARRAY: [inside], ObjectKey(Scope.TASK, 2, 1): [alone]}


def test_a_gang_and_a_training_are_one_object_for_each_attempt() -> None:
    gang = spec_of(groups=(a_group(count=2),), gang=True)
    assert list(attempts_by_object(gang, [live(0, 3), live(1, 2)], WORN, None)) == [ObjectKey(Scope.WHOLE, 3)]
    training = spec_of(1, training=Training(epochs=3))
    assert list(attempts_by_object(training, [live(0, 2)], WORN, None)) == [ObjectKey(Scope.WHOLE, 2)]


def test_the_last_of_a_grown_gang_is_still_in_the_object_of_its_first() -> None:
    grown = spec_of(groups=(a_group(count=2),), gang=True)
    last = live(1, 1, "p1", True)  # it came with the second attempt of task 0, which has ended
    assert attempts_by_object(grown, [last], WORN._replace(attempt=2), None, 2) == {ObjectKey(Scope.WHOLE, 2): [last]}


def test_a_waiting_attempt_gets_the_next_pod_of_its_task_and_never_an_old_one() -> None:
    old, new, newer = a_pod("p1", 0, 1), a_pod("p2", 0, 2), a_pod("p3", 0, 3)
    kind, spec = KINDS["Job"], spec_of()
    first = live(0)
    assert pods_by_attempt(spec, kind, [first], [newer, old, new], {}) == {first: old}
    second = live(0, 2, "p1")
    assert pods_by_attempt(spec, kind, [second], [old, newer, new], {}) == {second: new}
    assert pods_by_attempt(spec, kind, [second], [old], {}) == {}
    assert pods_by_attempt(spec, kind, [second], [newer], {"p1": old}) == {second: newer}
    assert pods_by_attempt(spec, kind, [second], [newer], {}) == {second: newer}


def test_a_running_attempt_keeps_its_pod_also_when_that_is_gone() -> None:
    old, new = a_pod("p1", 0, 1), a_pod("p2", 0, 2)
    running = live(0, 1, "p1", True)
    kind, spec = KINDS["Job"], spec_of()
    assert pods_by_attempt(spec, kind, [running], [old, new], {}) == {running: old}
    assert pods_by_attempt(spec, kind, [running], [new], {"p1": old}) == {running: old}
    assert pods_by_attempt(spec, kind, [running], [new], {}) == {}


def test_pods_that_do_not_tell_their_task_are_given_out_once() -> None:
    def nameless(name: str, age: int, phase: str) -> dict[str, Any]:
        pod = a_pod(name, 0, age)
        del pod["metadata"]["labels"]
        return {**pod, "status": {"phase": phase}}

    kind, spec = KINDS["Job"], spec_of()
    running, ended, next_one = (
        nameless("p1", 1, "Running"),
        nameless("p2", 2, "Succeeded"),
        nameless("p3", 3, "Succeeded"),
    )
    first, third = live(0, 1, "p1", True), live(2)
    known = {first: running}
    assert pods_by_attempt(spec, kind, [first, third], [running, ended], {}, 1) == known
    assert pods_by_attempt(spec, kind, [first, third], [running, ended, next_one], {}, 1) == {**known, third: next_one}
    assert pods_by_attempt(spec, kind, [first, third], [running, next_one], {"p2": ended}, 1) == {
        **known,
        third: next_one,
    }


def test_more_memory_than_was_asked_for_is_given_where_the_yard_grants_it() -> None:
    spec = spec_of(1, groups=(replace(a_group(), resources=Resources(memory_mib=100)),))
    assert with_memory(spec, [live(0, 2, memory=200)]).groups[0].resources.memory_mib == 200
    assert with_memory(spec, [live(0, 1, memory=100)]) is spec


def test_a_jobset_whose_pods_are_retried_stays_the_same_object() -> None:
    jobset = spec_of(groups=(a_group(count=3),), retries=2)
    running, again = live(1, 1, "p1", True), live(0, 2, "p0")
    assert attempts_by_object(jobset, [again, running], WORN, None, 1) == {ObjectKey(Scope.WHOLE, 1): [again, running]}


def test_a_single_task_of_a_jobset_that_is_over_has_a_job_of_its_own() -> None:
    jobset = spec_of(groups=(a_group(count=3),))
    again = live(1, 2, "p1")
    assert list(attempts_by_object(jobset, [again], WORN, None)) == [ObjectKey(Scope.TASK, 2, 1)]
    everything = [live(number, 2, f"p{number}") for number in range(3)]
    assert list(attempts_by_object(jobset, everything, WORN, None)) == [ObjectKey(Scope.WHOLE, 2)]


def test_a_task_that_succeeded_and_is_wanted_again_does_not_wait_for_its_array() -> None:
    again = live(1, 2, "a-j-a1-1-x")
    found = attempts_by_object(spec_of(), [again], WORN, an_array(), None, lambda pod: pod == "a-j-a1-1-x")
    assert list(found) == [ObjectKey(Scope.TASK, 2, 1)]


def test_a_pod_that_failed_long_ago_is_not_taken_for_the_next_attempt() -> None:
    """The pod of the attempt between went with its node while no server was there."""
    old = a_pod("p1", 0, 1) | {"status": {"phase": "Failed"}}
    old["metadata"]["labels"]["jobyard.dev/attempt"] = "1"
    third = live(0, 3, "p2")
    assert pods_by_attempt(spec_of(retries=1), KINDS["Job"], [third], [old], {}) == {}
    new = a_pod("p3", 0, 9)
    new["metadata"] |= {"annotations": {"batch.kubernetes.io/job-index-failure-count": "2"}}
    new["metadata"]["labels"]["jobyard.dev/attempt"] = "1"
    assert pods_by_attempt(spec_of(retries=1), KINDS["Job"], [third], [old, new], {}) == {third: new}


def test_a_pod_that_came_and_went_is_still_that_of_its_attempt() -> None:
    """Its object was deleted before anybody had told that it began."""
    gone = a_pod("p1", 0, 1) | {"status": {"phase": "Succeeded"}}
    gone["metadata"]["labels"]["jobyard.dev/attempt"] = "1"
    first, second = live(0), live(0, 2)
    assert pods_by_attempt(spec_of(), KINDS["Job"], [first], [], {"p1": gone}) == {first: gone}
    assert pods_by_attempt(spec_of(), KINDS["Job"], [second], [], {"p1": gone}) == {}
