"""A cluster that is played: the API server, the controllers of Jobs and JobSets, the kubelet, and who harms them.

It follows Kubernetes 1.36 and JobSet 0.11 as far as single pods and indexes go. Answers may be lost, watches are late.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from jobyard.errors import Unavailable
from jobyard.executors.kubernetes.kinds import KINDS, merged
from jobyard.kubernetes.refusals import Refused
from jobyard.kubernetes.states import is_over

Object = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
FAILED_BEFORE = "batch.kubernetes.io/job-index-failure-count"
REPLACED_BEFORE = "batch.kubernetes.io/job-index-ignored-failure-count"


class Place(NamedTuple):
    """Of a pod in its object: the replicated job and the replica, where there are any."""

    group: str
    replica: int
    completion: int


class Books:
    """What the controllers know of one object."""

    def __init__(self) -> None:
        self.failed: Counter[Place] = Counter()
        self.replaced: Counter[Place] = Counter()
        self.completed: set[Place] = set()
        self.given_up: set[Place] = set()
        self.counted: set[str] = set()  # pods


class PlayedCluster:
    namespace = "ns"

    def __init__(self, dice: random.Random, meanwhile: Callable[[], None]) -> None:
        """`meanwhile` is called while an answer is on its way."""
        self.dice, self.meanwhile = dice, meanwhile
        self.second = 1_800_000_000
        self.objects: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.books: defaultdict[str, Books] = defaultdict(Books)
        self.news: dict[str, deque[tuple[Object, bool, int]]] = {"objects": deque(), "pods": deque()}
        self.loss = 0.0  # how likely an answer, or a request, is lost

    # -- the API ------------------------------------------------------------------------------------------------------

    async def apply(self, path: str, body: Object) -> Any:
        return self._request(lambda: self._apply(path.rpartition("/")[2], body))

    async def patch(self, path: str, body: Object) -> Any:
        return self._request(lambda: self._patch(path.rpartition("/")[2], body))

    async def create(self, path: str, body: Object) -> Any:
        return self._request(lambda: body)

    async def delete(self, path: str, **_: Any) -> None:
        kind, name = path.rsplit("/", 1)
        self._request(lambda: self.delete_pod(name) if kind.endswith("/pods") else self.delete_object(name))

    def _request(self, do: Any) -> Any:
        if self.dice.random() < self.loss / 2:
            raise Unavailable("the request was lost")
        if self.dice.random() < self.loss / 10:
            raise Refused(403, "Forbidden", "not now")
        answer = copy.deepcopy(do())
        self.meanwhile()
        if self.dice.random() < self.loss / 2:
            raise Unavailable("the answer was lost")
        return answer

    def _apply(self, name: str, body: Object) -> Object:
        if name in self.objects:
            return self.objects[name]
        metadata = {**body["metadata"], "uid": f"{name}@{self.second}", "creationTimestamp": self._time()}
        return self._keep(name, {**body, "metadata": metadata})

    def _patch(self, name: str, body: Object) -> Object:
        if name not in self.objects:
            raise Refused(404, "NotFound", f"{name} not found")
        return self._keep(name, merged(self.objects[name], body))

    def _keep(self, name: str, seen: Object) -> Object:
        self.objects[name] = seen
        self.news["objects"].append((copy.deepcopy(seen), False, self.second))
        return seen

    def delete_object(self, name: str) -> None:
        seen = self.objects.pop(name, None)
        if seen is not None:
            self.news["objects"].append((copy.deepcopy(seen), True, self.second))
            for pod in self._pods_of(name):
                self.delete_pod(pod["metadata"]["name"])

    def delete_pod(self, name: str) -> None:
        pod = self.pods.get(name)
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"] |= {"deletionTimestamp": self._time(), "deletionGracePeriodSeconds": 0}
            self._tell(pod)

    def drain(self, name: str) -> None:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        self.pods[name]["status"]["conditions"] = [condition]
        self.delete_pod(name)

    def _time(self) -> str:
        return datetime.fromtimestamp(self.second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _tell(self, pod: Object, gone: bool = False) -> None:
        self.news["pods"].append((copy.deepcopy(pod), gone, self.second))

    def age_of_news(self, what: str) -> int:
        """Seconds since the oldest that has not arrived; -1: all have."""
        return self.second - self.news[what][0][2] if self.news[what] else -1

    # -- the controllers ----------------------------------------------------------------------------------------------

    def control(self) -> None:
        self.second += 1
        for name, seen in list(self.objects.items()):
            self._count(name)
            if not _is_final(seen):
                self._control(name, seen)
        for name, pod in list(self.pods.items()):
            owner = _owner(pod)
            is_counted = owner not in self.objects or name in self.books[owner].counted
            if "deletionTimestamp" in pod["metadata"] and is_over(pod) and is_counted:
                self._tell(self.pods.pop(name), gone=True)

    def _count(self, name: str) -> None:
        books = self.books[name]
        for pod in self._pods_of(name):
            place, pod_name = _place(pod), pod["metadata"]["name"]
            if not is_over(pod) or pod_name in books.counted:
                continue
            books.counted.add(pod_name)
            if pod["status"]["phase"] == "Succeeded":
                books.completed.add(place)
            elif pod["status"].get("conditions") and "podFailurePolicy" in self._spec(name, place):
                books.replaced[place] += 1
            else:
                books.failed[place] += 1
                if books.failed[place] > self._spec(name, place)["backoffLimitPerIndex"]:
                    books.given_up.add(place)

    def _control(self, name: str, seen: Object) -> None:
        books, places = self.books[name], self._places(seen)
        running = [pod for pod in self._pods_of(name) if not is_over(pod)]
        if seen["spec"].get("suspend"):
            for pod in running:
                self.delete_pod(pod["metadata"]["name"])
            return
        is_set = seen["kind"] == "JobSet"
        is_over_now = not set(places) - books.completed - books.given_up or (is_set and books.given_up)
        if is_over_now:
            how = ("Failed", "FailedJobs" if is_set else "FailedIndexes") if books.given_up else ("Complete", "")
            how = ("Completed", "AllJobsCompleted") if is_set and not books.given_up else how
            seen["status"] = {"conditions": [{"type": how[0], "status": "True", "reason": how[1]}]}
            for pod in running:
                self.delete_pod(pod["metadata"]["name"])
        else:
            busy = {_place(pod) for pod in running}
            free = [place for place in places if place not in busy | books.completed | books.given_up]
            room = len(places) if is_set else max(0, seen["spec"].get("parallelism", 1) - len(busy))
            for place in free[:room]:
                self._make_pod(name, place)
        if not is_set:
            for key, found in (("completedIndexes", books.completed), ("failedIndexes", books.given_up)):
                seen.setdefault("status", {})[key] = ",".join(str(place.completion) for place in sorted(found))
        self._keep(name, seen)

    def _places(self, seen: Object) -> list[Place]:
        if seen["kind"] == "Job":
            return [Place("", 0, index) for index in range(seen["spec"].get("completions", 1))]
        return [
            Place(each["name"], replica, index)
            for each in seen["spec"]["replicatedJobs"]
            for replica in range(each["replicas"])
            for index in range(each["template"]["spec"]["completions"])
        ]

    def _spec(self, name: str, place: Place) -> Object:
        spec: Object = self.objects[name]["spec"]
        for each in spec.get("replicatedJobs", ()):
            if each["name"] == place.group:
                spec = each["template"]["spec"]
        return {"backoffLimitPerIndex": 0, **spec}

    def _make_pod(self, name: str, place: Place) -> None:
        books, template = self.books[name], copy.deepcopy(self._spec(name, place)["template"])
        labels = {**template["metadata"]["labels"]}
        annotations = {FAILED_BEFORE: str(books.failed[place])}
        if books.replaced[place]:
            annotations[REPLACED_BEFORE] = str(books.replaced[place])
        if "completions" in self._spec(name, place):
            labels[INDEX] = str(place.completion)
        base = name
        if place.group:
            labels |= {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": place.group}
            labels["jobset.sigs.k8s.io/job-index"] = str(place.replica)
            base = f"{name}-{place.group}-{place.replica}"
        else:
            labels[KINDS["Job"].pods_label] = name
        pod_name = f"{base}-{place.completion}-{self.dice.randrange(16**5):05x}"
        metadata = {"name": pod_name, "uid": pod_name, "labels": labels, "annotations": annotations, "owner": name}
        metadata |= {"creationTimestamp": self._time(), "place": place}
        self.pods[pod_name] = {
            "metadata": metadata,
            "spec": {"nodeName": "n1", "containers": template["spec"]["containers"][:1]},
            "status": {"phase": "Pending"},
        }
        self._tell(self.pods[pod_name])

    def _pods_of(self, name: str) -> list[Object]:
        return [pod for pod in self.pods.values() if _owner(pod) == name]

    # -- the kubelet --------------------------------------------------------------------------------------------------

    def run_pods(self, chance: float) -> list[Object]:
        """Each may go a step further. Answers with those whose task begins now."""
        begun = []
        for pod in self.pods.values():
            if is_over(pod) or self.dice.random() > chance:
                continue
            is_leaving = "deletionTimestamp" in pod["metadata"]
            if pod["status"]["phase"] == "Pending" and not is_leaving:
                begun.append(pod)
                self._become(pod, "Running", {"running": {"startedAt": self._time()}})
            else:
                # Some end well within their grace.
                is_killed = is_leaving and (pod["status"]["phase"] == "Pending" or self.dice.random() < 0.7)
                self.end_pod(pod, 137 if is_killed else 0)
        return begun

    def end_pod(self, pod: Object, code: int = 0) -> None:
        ended = {"exitCode": code, "startedAt": self._time(), "finishedAt": self._time()}
        self._become(pod, "Failed" if code else "Succeeded", {"terminated": ended})

    def _become(self, pod: Object, phase: str, state: Object) -> None:
        name = pod["spec"]["containers"][0]["name"]
        pod["status"] |= {"phase": phase, "containerStatuses": [{"name": name, "state": state}]}
        self._tell(pod)


def number_of(pod: Object) -> int:
    """The attempt that the pod's own variables tell."""
    annotations = pod["metadata"]["annotations"]
    before = int(annotations[FAILED_BEFORE]) + int(annotations.get(REPLACED_BEFORE, "0"))
    return int(pod["metadata"]["labels"]["jobyard.dev/attempt"]) + before


def _owner(pod: Object) -> str:
    name: str = pod["metadata"]["owner"]
    return name


def _place(pod: Object) -> Place:
    place: Place = pod["metadata"]["place"]
    return place


def _is_final(seen: Object) -> bool:
    return bool(seen.get("status", {}).get("conditions"))


async def ends_told() -> None:
    """All attempts that have ended are reported."""
    while ends := [task for task in asyncio.all_tasks() if task.get_name().startswith("end of ")]:
        await asyncio.gather(*ends)
