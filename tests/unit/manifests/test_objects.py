"""Kubernetes objects as users write them: what they amount to, and what is said where they are none of a yard's."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest
from tests.unit.manifests.conftest import Load

from jobyard.errors import UserError
from jobyard.manifests.overrides import Overrides
from jobyard.model.kubernetes import Toleration

ON = Overrides(on="kubernetes")
POD = """
apiVersion: v1
kind: Pod
metadata: {name: tune, labels: {team: a}}
spec:
  terminationGracePeriodSeconds: 5
  nodeSelector: {zone: a}
  tolerations: [{key: gpu, operator: Exists}, {key: team, value: a, effect: NoSchedule}]
  initContainers:
  - {name: fetch, image: y, resources: {requests: {cpu: 8}}}
  - {name: side, image: y, restartPolicy: Always, resources: {requests: {memory: 1Gi}}}
  containers:
  - name: main
    image: x
    command: [python, train.py]
    args: ["--lr", 0.1]
    resources: {requests: {cpu: 500m, memory: 1.5Gi}, limits: {cpu: 2, nvidia.com/gpu: 2}}
  - {name: other, image: z, resources: {limits: {cpu: "1"}}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {generateName: sweep-}
spec:
  completions: 6
  parallelism: 2
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: x}]}}
"""
JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set}
spec:
  replicatedJobs:
  - name: worker
    replicas: 3
    template: {spec: {completions: 2, parallelism: 2, template: {spec: {containers: [{name: m, image: x}]}}}}
  - name: driver
    template: {spec: {template: {spec: {containers: [{name: m, image: x}]}}}}
"""
PYTORCHJOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: tune}
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: {spec: {containers: [{name: pytorch, image: x}]}}}
    Worker: {replicas: 3, template: {spec: {containers: [{name: pytorch, image: x}]}}}
"""
RAYJOB = """
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: ray}
spec:
  entrypoint: python train.py
  shutdownAfterJobFinishes: true
  rayClusterSpec:
    headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: head, image: x}]}}}
    workerGroupSpecs:
    - groupName: small
      replicas: 2
      minReplicas: 1
      maxReplicas: 4
      rayStartParams: {}
      template: {spec: {containers: [{name: w, image: x}]}}
"""
RANGE = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: tune}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers:
          - name: pytorch
            image: x
            resources: {requests: {nvidia.com/gpu: 2}, limits: {nvidia.com/gpu: 4}}
"""


def test_a_pod_takes_what_its_containers_take_together(load: Load) -> None:
    spec = load(POD, overrides=ON)
    (group,) = spec.groups
    assert (spec.name, spec.kubernetes.kind, spec.submitter.source) == ("tune", "Pod", "kubernetes")
    assert (spec.container.image, spec.policy.grace_seconds) == ("x", 5)
    assert (group.resources.cpu_millis, group.resources.memory_mib, group.resources.gpus) == (8000, 2560, 2)
    assert str(group.command) == "python train.py --lr 0.1"
    assert group.node_selector == {"zone": "a"}
    assert group.tolerations == (Toleration("gpu", "Exists"), Toleration("team", "Equal", "a", "NoSchedule"))
    assert not spec.gang
    assert json.loads(spec.kubernetes.manifest)["spec"]["containers"][0]["args"] == ["--lr", 0.1]


@pytest.mark.parametrize(
    ("more", "taken"),
    [
        ("", (500, 200)),  # KubeRay's own
        ("  submissionMode: HTTPMode\n", (0, 0)),
        (
            "  submitterPodTemplate: {spec: {containers: [{name: s, resources: {requests: {cpu: 2, memory: 1Gi}}}]}}\n",
            (2000, 1024),
        ),
    ],
)
def test_the_head_of_a_rayjob_holds_room_for_the_pod_that_hands_its_command_in(
    more: str, taken: tuple[int, int], load: Load
) -> None:
    head, worker = load(RAYJOB.replace("  rayClusterSpec:", f"{more}  rayClusterSpec:"), overrides=ON).groups
    assert (head.resources.cpu_millis, head.resources.memory_mib) == taken
    assert (worker.resources.cpu_millis, worker.resources.memory_mib) == (0, 0)


def test_a_job_has_as_many_tasks_as_must_succeed(load: Load) -> None:
    spec = load(JOB, overrides=ON)
    assert (spec.name, spec.size, spec.groups[0].parallelism) == ("sweep", 6, 2)
    queue = load(JOB.replace("completions: 6", "completions: null"), overrides=ON)
    assert (queue.size, queue.groups[0].parallelism) == (2, None)


@pytest.mark.parametrize(
    ("text", "groups", "gang"),
    [
        (JOBSET, [("driver", 1, 1), ("worker", 3, 2)], False),
        (PYTORCHJOB, [("master", 1, 1), ("worker", 3, 1)], True),
        (RAYJOB, [("head", 1, 1), ("small", 2, 1)], True),
    ],
)
def test_kinds_of_pods_are_groups(text: str, groups: list[tuple[str, int, int]], gang: bool, load: Load) -> None:
    spec = load(text, overrides=ON)
    assert [(group.name, group.count, group.completions) for group in spec.groups] == groups
    assert spec.gang is gang


def test_a_ray_job_shows_the_command_of_its_head(load: Load) -> None:
    assert str(load(RAYJOB, overrides=ON).groups[0].command) == "python train.py"


def test_requests_and_limits_of_gpus_that_differ_are_a_range(load: Load) -> None:
    spec = load(RANGE, overrides=ON)
    assert spec.elastic is not None
    assert (spec.elastic.gpus, spec.groups[0].resources.gpus) == ((2, 4), 2)
    assert spec.training is not None


def test_flags_say_what_is_the_yards_and_not_what_is_the_pods(load: Load) -> None:
    spec = load(POD, overrides=Overrides(on="lab", name="other", priority=5, after=("x1",), epochs=3))
    assert (spec.on, spec.name, spec.policy.priority, spec.after[0].job) == ("lab", "other", 5, "x1")
    for flags, name in (({"cpus": "2"}, "--cpus"), ({"env": ("A=1",)}, "--env"), ({"gpu_mem": "1G"}, "--gpu-mem")):
        with pytest.raises(UserError, match=f"{name}: the Pod in job.yaml says itself what its pods are"):
            load(POD, overrides=Overrides(on="kubernetes", **flags))


CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CONFIG, "line 2: kind: 'ConfigMap' is no job; a yard takes Pod, Job, JobSet, PyTorchJob, RayJob"),
        (CONFIG + "---" + JOB, "it has 2 objects (ConfigMap, Job); a job is one of them: create the others"),
        (
            "apiVersion: v1\nkind: List\nitems: [{kind: Job}, {kind: Pod}]",
            "kind: a List of Job, Pod is several objects",
        ),
        ("apiVersion: v1\nmetadata: {name: x}", "kind: is missing; an object with an apiVersion is one of Pod"),
        (
            "apiVersion: v1\nkind: Job\nspec: {}",
            "apiVersion: 'v1' is not the version of a Job that a yard knows; write batch/v1",
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: x", "line 3: metadata: must be a mapping, not the text 'x'"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: 7}", "metadata.name: must be text, not 7; put it in quotes"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}", "spec: is missing"),
        ("apiVersion: v1\nkind: Pod\nspec: {containers: []}", "spec.containers: is missing or empty"),
        ("apiVersion: v1\nkind: Pod\nspec: {containers: x}", "spec.containers: must be a list, not the text 'x'"),
        ("apiVersion: v1\nkind: Pod\nspec: {containers: [x]}", "spec.containers[0]: must be a mapping"),
        (POD.replace("1.5Gi", "much"), "line 17: spec.containers[0].resources.memory: cannot read 'much' as an amount"),
        (POD.replace("gpu: 2", "gpu: 0.5"), "'0.5' is not a whole number; write how many"),
        (POD.replace("[python, train.py]", "python"), "spec.containers[0].command: must be a list"),
        (POD.replace("Seconds: 5", "Seconds: soon"), "terminationGracePeriodSeconds: must be a whole number"),
        (JOB.replace("6", "many"), "spec.completions: must be a whole number, 0 or more, not the text 'many'"),
        (JOBSET.replace("- name: driver", "- nam: driver"), "spec.replicatedJobs[1].name: is missing"),
        (JOBSET.replace("driver", "worker"), "spec: two of its groups have the same name"),
        (PYTORCHJOB.replace("Worker", "Helper"), "spec.pytorchReplicaSpecs.Helper: a PyTorchJob has a Master and"),
        (RAYJOB.replace("true", "false"), "spec.shutdownAfterJobFinishes: must be true"),
        (RAYJOB.replace("rayClusterSpec", "clusterSelector"), "spec.clusterSelector: a yard makes the Ray cluster"),
        (RANGE.replace("gpu: 2", "gpu: 0"), "requests 0 to limits 4 GPUs is no range; begin with at least 1"),
        (RANGE.replace("gpu: 2", "gpu: 9"), "requests 9 to limits 4 GPUs is no range"),
        (RANGE.replace("replicas: 1", "replicas: 2"), "a range of GPUs needs a job of one pod"),
        (RANGE.replace("gpu: 2", "gpu: some"), "'some' is not a whole number"),
        ("apiVersion: v1\nkind: {a: b}\n", "kind: is missing"),
        ("apiVersion: [\nkind: Pod", "not valid YAML"),
    ],
)
def test_what_is_no_job_gets_one_sentence(text: str, says: str, load: Load) -> None:
    with pytest.raises(UserError) as caught:
        load(text, overrides=ON)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("job.yaml")


def test_without_a_cluster_such_a_file_is_refused(load: Load) -> None:
    with pytest.raises(UserError, match="a RayJob runs on a Kubernetes cluster only; add --on kubernetes"):
        load(RAYJOB)


def test_numbers_and_flags_stay_what_they_are(load: Load) -> None:
    body = """
        apiVersion: v1
        kind: Pod
        metadata: {name: x, annotations: {a: "1", b: "true"}}
        spec:
          hostNetwork: yes
          volumes: [{name: v, configMap: {name: c, defaultMode: 0644, optional: null}}]
          containers: [{name: m, image: x}]
    """
    kept: dict[str, Any] = json.loads(load(textwrap.dedent(body), overrides=ON).kubernetes.manifest)
    assert kept["metadata"]["annotations"] == {"a": "1", "b": "true"}
    assert kept["spec"]["hostNetwork"] is True
    assert kept["spec"]["volumes"][0]["configMap"] == {"name": "c", "defaultMode": 420, "optional": None}
