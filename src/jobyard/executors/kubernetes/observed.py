"""Observed objects: what is known of one job, by watches and answers? A cache: watches fill a new one at any time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from jobyard.executors.kubernetes import names
from jobyard.executors.kubernetes.kinds import KINDS, Kind
from jobyard.kubernetes.states import is_over, phase_of
from jobyard.model.job import State

Object = dict[str, Any]
ENDED = (State.SUCCEEDED, State.FAILED)


@dataclass
class Observed:
    objects: dict[str, Object] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)  # of the objects
    lost: set[str] = field(default_factory=set)  # objects that were there and were deleted
    pods: dict[str, Object] = field(default_factory=dict)
    gone: dict[str, Object] = field(default_factory=dict)  # pods that were deleted, as they were last seen
    buried: set[str] = field(default_factory=set)  # the uids of these
    queue_words: dict[str, str] = field(default_factory=dict)  # by object: why Kueue holds it

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
            self.buried.add(seen["metadata"].get("uid", ""))
        else:
            self.objects[name] = seen
            self.kinds[name] = kind
            self.lost.discard(name)

    def answered(self, kind: Kind, seen: Object) -> None:
        """What the API server said to us. Watches may have been faster: what they told counts."""
        metadata, known = seen["metadata"], self.objects.get(seen["metadata"]["name"])
        if metadata.get("uid") in self.buried or (
            known is not None and is_same(known, seen) and _is_newer(known, seen)
        ):
            return
        self.object_changed(kind, seen, False)

    def workload_changed(self, seen: Object, gone: bool) -> None:
        """What Kueue says of it."""
        conditions = {each["type"]: each for each in seen.get("status", {}).get("conditions") or ()}
        admitted = conditions.get("Admitted", {}).get("status") == "True"
        told = conditions.get("QuotaReserved") or conditions.get("Admitted") or {}
        for owner in seen["metadata"].get("ownerReferences") or ():
            if gone or admitted:
                self.queue_words.pop(owner["name"], None)
            else:
                self.queue_words[owner["name"]] = told.get("message", "")

    def forget_gone(self, wanted: Collection[str]) -> None:
        """Arrays may have very many tasks: only these pods are still asked for."""
        self.gone = {name: pod for name, pod in self.gone.items() if name in wanted}

    # -- questions ----------------------------------------------------------------------------------------------------

    def pods_of(self, kind: Kind, name: str) -> list[Object]:
        label = kind.pods_label
        return [pod for pod in self.pods.values() if (pod["metadata"].get("labels") or {}).get(label) == name]

    def is_here(self, pod: Object) -> bool:
        return pod["metadata"]["name"] in self.pods

    def is_running(self, pod: Object) -> bool:
        """Does it run, and has nobody told it to go?"""
        return self.is_here(pod) and not is_leaving(pod) and not is_over(pod)

    def latest(self, pod: Object) -> Object:
        """As it was last seen. An operator may begin another of the same name."""
        name = pod["metadata"]["name"]
        seen = (each for each in (self.pods.get(name), self.gone.get(name)) if each is not None)
        return next((each for each in seen if is_same(each, pod)), pod)

    def has_gone(self, pod: Object) -> bool:
        name = pod["metadata"]["name"]
        return name in self.gone and is_same(self.gone[name], pod)

    def has_succeeded(self, pod: str) -> bool:
        return phase_of(self.pods.get(pod, {})) == "Succeeded"

    def has_ended(self, name: str) -> bool:
        return self.kinds[name].meaning(self.objects[name]).state in ENDED

    def has_running_pods(self, name: str) -> bool:
        return not all(map(is_over, self.pods_of(self.kinds[name], name)))

    def standing(self) -> int | None:
        """The attempt of the newest object of all tasks that has not ended."""
        found = [seen["metadata"] for name, seen in self.objects.items() if not self.has_ended(name)]
        numbers = [
            int(metadata["labels"][names.ATTEMPT])
            for metadata in found
            if "deletionTimestamp" not in metadata and names.TASK not in metadata["labels"]
        ]
        return max(numbers, default=None)

    def without_pods(self) -> list[str]:
        """Objects that have not ended and have none."""
        starting = [
            name for name, seen in self.objects.items() if self.kinds[name].meaning(seen).state is State.STARTING
        ]
        return [name for name in starting if not self.pods_of(self.kinds[name], name)]


def is_leaving(seen: Object) -> bool:
    return "deletionTimestamp" in seen["metadata"]


def _is_newer(known: Object, other: Object) -> bool:
    """By what the API server counts with; where it says nothing, no."""
    versions = [each["metadata"].get("resourceVersion", "") for each in (known, other)]
    return all(map(str.isdigit, versions)) and int(versions[0]) > int(versions[1])


def is_same(seen: Object, pod: Object) -> bool:
    return bool(seen["metadata"]["uid"] == pod["metadata"]["uid"])
