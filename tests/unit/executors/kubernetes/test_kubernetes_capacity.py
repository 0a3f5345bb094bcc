"""Nodes, pods and quotas as the yard counts them."""

from __future__ import annotations

from typing import Any

from jobyard.executors.kubernetes.capacity import Amounts, asked_by, foreign_of, node_of, quota_of
from jobyard.executors.kubernetes.room import ClusterRoom
from jobyard.model.events import NodeJoined, NodeLost, NodeMeasured, QuotaMeasured
from jobyard.model.node import Device, Foreign, Quota, Taint

Object = dict[str, Any]


def a_node_object(name: str = "n1", gpus: int = 4, **spec: Any) -> Object:
    allocatable = {"cpu": "7500m", "memory": "31Gi", "nvidia.com/gpu": str(gpus)}
    labels = {"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.memory": "81920"}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}}


def a_pod(name: str = "p", node: str = "n1", cpu: str = "500m", gpus: int = 0, **labels: str) -> Object:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "metadata": {"name": name, "namespace": "ns", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": "Running"},
    }


def test_a_node_has_what_it_can_give_and_its_taints() -> None:
    taints = [{"key": "gpu", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]
    node = node_of("prod", a_node_object(taints=taints))
    assert (node.id, node.cpu_millis, node.memory_mib, len(node.devices)) == ("prod/n1", 7500, 31 * 1024, 4)
    assert node.devices[0].memory_mib == 81920
    assert node.taints == (Taint("gpu", "", "NoSchedule"),)
    assert "nvidia.com/gpu.product=A100" in node.labels


def test_init_containers_count_where_they_ask_for_more_and_sidecars_beside_all() -> None:
    pod = a_pod(cpu="500m")
    big = {"name": "i", "resources": {"requests": {"cpu": "2"}}}
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
    assert asked_by(pod).cpu_millis == 500
    pod["spec"]["initContainers"] = [sidecar]
    assert asked_by(pod).cpu_millis == 600
    pod["spec"]["initContainers"] = [big, sidecar]
    assert asked_by(pod).cpu_millis == 2000


def test_gpus_of_others_are_none_of_ours() -> None:
    four = [Device(index, "A100", 81920) for index in range(4)]
    assert foreign_of(Amounts(gpus=2), {2, 3}, four).whole_devices == (0, 1)
    assert foreign_of(Amounts(gpus=2), (), four).whole_devices == (2, 3)
    assert foreign_of(Amounts(gpus=9), (), four).whole_devices == (0, 1, 2, 3)


def a_sliced_node() -> Object:
    node = a_node_object(gpus=1)
    node["status"]["allocatable"] |= {"nvidia.com/mig-1g.10gb": "2", "nvidia.com/mig-3g.40gb": "1"}
    node["metadata"]["labels"]["nvidia.com/mig-1g.10gb.memory"] = "9728"
    return node


def test_slices_of_gpus_are_devices_of_their_own_with_their_profile_and_memory() -> None:
    devices = node_of("prod", a_sliced_node()).devices
    assert [(each.index, each.name, each.profile, each.memory_mib) for each in devices] == [
        (0, "A100", "", 81920),
        (1, "A100 MIG 1g.10gb", "1g.10gb", 9728),
        (2, "A100 MIG 1g.10gb", "1g.10gb", 9728),
        (3, "A100 MIG 3g.40gb", "3g.40gb", 40960),
    ]


def test_slices_that_others_hold_are_neither_ours_nor_whole_gpus_and_come_back() -> None:
    room, pod = a_room(), a_pod("other")
    pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/mig-1g.10gb": "1"}
    room.node_changed(a_sliced_node(), False)
    room.changes([], 1.0)
    room.pod_changed(pod, False)
    assert room.changes([], 2.0) == [NodeMeasured("prod/n1", Foreign(500, 1024, whole_devices=(2,)), 2.0)]
    room.pod_changed(pod, True)
    assert room.changes([], 3.0) == [NodeMeasured("prod/n1", Foreign(), 3.0)]


def test_of_slices_an_init_container_and_the_others_count_as_of_cores() -> None:
    pod = a_pod()
    limits = pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/mig-1g.10gb": "1"}
    pod["spec"]["containers"].append({"name": "d", "resources": {"limits": limits}})
    pod["spec"]["initContainers"] = [{"name": "i", "resources": {"limits": {"nvidia.com/mig-3g.40gb": "1"}}}]
    assert asked_by(pod).slices == (("1g.10gb", 2), ("3g.40gb", 1))


def test_a_quota_leaves_what_others_do_not_use() -> None:
    hard, used = {"requests.nvidia.com/gpu": "8", "pods": "10"}, {"requests.nvidia.com/gpu": "5", "pods": "4"}
    quota = {"spec": {"hard": hard}, "status": {"hard": hard, "used": used}}
    assert quota_of([quota], Amounts(gpus=2, pods=1)) == Quota(gpus=5, tasks=7)
    assert quota_of([{**quota, "spec": {"scopes": ["BestEffort"]}}], Amounts()) == Quota()


def a_room() -> ClusterRoom:
    return ClusterRoom("prod", False, lambda pod: "job" in pod["metadata"]["labels"])


def test_room_is_told_once_and_again_when_it_changes() -> None:
    room = a_room()
    room.node_changed(a_node_object(), False)
    assert [type(event) for event in room.changes([], 1.0)] == [NodeJoined, NodeMeasured, QuotaMeasured]
    assert room.changes([], 1.0) == []
    room.pod_changed(a_pod("other", gpus=1), False)
    assert room.changes([], 2.0) == [NodeMeasured("prod/n1", Foreign(500, 1024, whole_devices=(3,)), 2.0)]
    room.pod_changed(a_pod("ours", gpus=1, job="j"), False)
    assert room.changes([], 3.0) == []  # the yard has it in its own books
    room.pod_changed(a_pod("other", gpus=1), True)
    assert room.changes([], 4.0) == [NodeMeasured("prod/n1", Foreign(), 4.0)]
    room.node_changed(a_node_object(), True)
    assert [type(event) for event in room.changes([], 5.0)] == [NodeLost]


def test_a_quota_is_told_with_our_own_pods_in_it() -> None:
    room = a_room()
    hard = {"requests.nvidia.com/gpu": "4"}
    status = {"hard": hard, "used": {"requests.nvidia.com/gpu": "3"}}
    room.pod_changed(a_pod("ours", gpus=1, job="j"), False)
    room.quota_changed({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": status}, False)
    assert room.changes([], 1.0) == [QuotaMeasured("prod", Quota(gpus=2), 1.0)]
    room.quota_changed({"metadata": {"name": "q"}}, True)
    assert room.changes([], 2.0) == [QuotaMeasured("prod", Quota(), 2.0)]


def test_pods_of_ours_that_have_no_node_yet_are_not_taken_for_those_of_others() -> None:
    room = a_room()
    hard = {"requests.nvidia.com/gpu": "8"}
    status = {"hard": hard, "used": {"requests.nvidia.com/gpu": "4"}}  # a quota counts them from the beginning
    waiting = a_pod("ours", gpus=4, job="j")
    del waiting["spec"]["nodeName"]
    room.pod_changed(waiting, False)
    room.quota_changed({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": status}, False)
    assert room.changes([], 1.0) == [QuotaMeasured("prod", Quota(gpus=8), 1.0)]


def test_a_yard_that_slept_hears_of_what_has_gone_meanwhile() -> None:
    room = a_room()
    room.node_changed(a_node_object(), False)
    room.tell_all(["n1", "n7"])  # and n1 was full of other people's pods
    events = room.changes([], 1.0)
    assert [event.node for event in events if isinstance(event, NodeLost)] == ["prod/n7"]
    assert NodeMeasured("prod/n1", Foreign(), 1.0) in events
    assert QuotaMeasured("prod", Quota(), 1.0) in events
    room.tell_all(["n1"])
    assert [type(event) for event in room.changes([], 2.0)] == [NodeJoined, NodeMeasured, QuotaMeasured]
