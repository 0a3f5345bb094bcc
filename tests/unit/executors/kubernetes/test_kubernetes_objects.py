"""Which objects a job becomes, and what is said where Kubernetes cannot run it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_group, a_job, with_words
from tests.yards import ROOT

from jobyard.errors import UserError
from jobyard.executors.kubernetes.manifest import objects_of, owned, task_objects_of
from jobyard.executors.kubernetes.raw import templates_of
from jobyard.executors.kubernetes.text import render, yaml_of
from jobyard.executors.protocol import SubmittedJob
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.kinds import with_kind
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.model.codec import decode, encode
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.kubernetes import SecretMount, Toleration, Volume
from jobyard.model.lines import Lines
from jobyard.model.policy import FailurePolicy
from jobyard.model.resources import Resources
from jobyard.model.source import GitState
from jobyard.model.training import Training

GOLDEN = Path(__file__).parent / "golden"
SCENARIOS = ["5-1-1", "10-1-1", "wkr-heavy-1-1-1", "10-10-10", "10-2-10"]
LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def objects(spec: JobSpec, attempt: int = 1) -> list[dict[str, Any]]:
    return objects_of(SubmittedJob("5e7a11ce", 7, with_words(spec, image=spec.container.image or "demo")), attempt)


def the_job(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = objects(a_job(**spec))[0]["spec"]
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_aichor_scenarios_become_these_objects(scenario: str) -> None:
    """With JOBYARD_WRITE_GOLDEN=1 the files are written anew: read the difference before you keep it."""
    context = SubmitContext("/project", {"SECRET": "geheim"}, "ada")
    spec = spec_from_file(ROOT / "examples" / "aichor" / f"manifest.{scenario}.yaml", Overrides(), context)
    text = render(SubmittedJob("5e7a11ce", 7, spec))
    golden = GOLDEN / f"{scenario}.yaml"
    if os.environ.get("JOBYARD_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def golden(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("JOBYARD_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("kind", ["PyTorchJob", "RayJob"])
def test_gangs_of_other_operators_become_these_objects(kind: str) -> None:
    group = GroupSpec(Command(shell="python train.py"), count=2, resources=Resources(4000, 8192, 2))
    asked = a_job(
        groups=(group,), name="tune", gang=True, image="demo", kind=kind, on="kubernetes", training=Training(3)
    )
    job = SubmittedJob("5e7a11ce", 7, with_kind(asked))
    made = objects_of(job, 2, "team", resumes_at=1, yard_id="y1", storage="disk", queue="lab")
    assert [each["kind"] for each in made] == [kind, "ConfigMap"]
    golden(kind.lower(), yaml_of(made[:1]))


def test_where_there_is_storage_tasks_that_do_not_belong_together_share_no_directory() -> None:
    def paths(spec: JobSpec, number: int | None = None, storage: str = "disk") -> list[str]:
        job = SubmittedJob("5e7a11ce", 7, with_words(spec, image="x"))
        made = (
            objects_of(job, 1, storage=storage) if number is None else task_objects_of(job, number, 2, storage=storage)
        )
        inside = templates_of(made[0])[0]["spec"]
        source = {"persistentVolumeClaim": {"claimName": storage}} if storage else {"emptyDir": {}}
        assert inside["volumes"][0] == {"name": "yard", **source}
        mounts = inside["containers"][0]["volumeMounts"][:2]
        assert [each["mountPath"] for each in mounts] == ["/yard/checkpoints", "/yard/output"]
        return [each.get("subPath") or each["subPathExpr"] for each in mounts]

    shared = ["jobs/5e7a11ce/checkpoints", "jobs/5e7a11ce/output"]
    assert paths(a_job()) == paths(a_job(3, gang=True)) == shared
    assert paths(a_job(3)) == [f"{each}/$(JOB_COMPLETION_INDEX)" for each in shared]
    assert paths(a_job(3), number=2) == [f"{each}/2" for each in shared]
    assert paths(a_job(groups=(a_group("a", 2, 2),)))[1] == f"{shared[1]}/a-$(JOB_INDEX)-$(JOB_COMPLETION_INDEX)"
    assert paths(a_job(3), storage="") == ["checkpoints", "output"]


def test_volumes_are_claims_and_one_claim_is_one_volume() -> None:
    volumes = (Volume("data", "/data", read_only=True), Volume("scratch", "/s"), Volume("data", "/again"))
    inside = the_job(volumes=volumes)["template"]["spec"]
    assert inside["volumes"][1:] == [
        {"name": "claim-0", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "claim-1", "persistentVolumeClaim": {"claimName": "scratch"}},
    ]
    assert inside["containers"][0]["volumeMounts"][2:] == [
        {"name": "claim-0", "mountPath": "/data", "readOnly": True},
        {"name": "claim-1", "mountPath": "/s"},
        {"name": "claim-0", "mountPath": "/again"},
    ]


def test_secrets_are_files_and_one_secret_is_one_volume() -> None:
    secrets = (SecretMount("yard-1", "file-0", "/etc/a"), SecretMount("yard-1", "file-1", "/etc/b"))
    inside = the_job(secrets=secrets)["template"]["spec"]
    assert inside["volumes"][1:] == [{"name": "secret-0", "secret": {"secretName": "yard-1", "defaultMode": 0o444}}]
    assert inside["containers"][0]["volumeMounts"][2:] == [
        {"name": "secret-0", "mountPath": "/etc/a", "subPath": "file-0", "readOnly": True},
        {"name": "secret-0", "mountPath": "/etc/b", "subPath": "file-1", "readOnly": True},
    ]


def test_only_gpus_with_enough_memory_are_asked_for() -> None:
    group = replace(a_group(), least_device_mib=40960)
    affinity = the_job(groups=(group,))["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["40959"]}]
    assert "affinity" not in the_job()["template"]["spec"]


def test_a_kind_of_gpu_is_the_products_that_the_cluster_calls_so() -> None:
    group = replace(a_group(gpus=2), gpu_products=("A100", "A100-X"), least_device_mib=1024)
    inside = the_job(groups=(group,))["template"]["spec"]
    (term,) = inside["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"][1:] == [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["A100", "A100-X"]}
    ]
    assert inside["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}


def test_slices_are_asked_for_as_what_they_are_counted_as() -> None:
    group = replace(a_group(gpus=2), gpu_profile="1g.10gb")
    inside = the_job(groups=(group,))["template"]["spec"]
    assert inside["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "2"}


def test_what_an_image_was_made_from_is_written_on_objects_and_pods() -> None:
    git = GitState("3f" * 20, "main", is_dirty=True)
    made = objects(a_job(user="ada", host="desk", image="lab/x@sha256:00", git=git))[0]
    told = {
        "jobyard.dev/submitted-by": "ada@desk",
        "jobyard.dev/commit": f"{'3f' * 20}+changes",
        "jobyard.dev/branch": "main",
        "jobyard.dev/image-digest": "sha256:00",
    }
    assert told.items() <= made["metadata"]["annotations"].items()
    assert made["spec"]["template"]["metadata"]["annotations"] == told


def test_objects_and_pods_say_whose_they_are_and_in_which_queue_they_stand() -> None:
    job = SubmittedJob("5e7a11ce", 7, a_job(3, gang=True, image="x", training=Training()))
    made = objects_of(job, 2, "team", yard_id="y1", queue="lab")
    assert [each["kind"] for each in made] == ["Job", "ConfigMap", "Service"]
    for each in made:
        assert each["metadata"]["labels"]["jobyard.dev/yard"] == "y1"
        assert each["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == ("lab" if each["kind"] == "Job" else None)
    labels = made[0]["spec"]["template"]["metadata"]["labels"]
    assert (labels["jobyard.dev/yard"], labels["jobyard.dev/object"]) == ("y1", "job-5e7a11ce-a2")
    assert made[2]["spec"]["selector"].items() <= labels.items()
    assert made[0]["spec"]["suspend"] is True


def test_a_task_that_is_tried_again_alone_is_a_job_of_one_pod() -> None:
    job = SubmittedJob("5e7a11ce", 7, a_job(100, name="x" * 80, image="x", retries=3, timeout_seconds=5))
    (made,) = task_objects_of(job, 99, 4, "team", yard_id="y1", queue="lab")
    assert made["metadata"]["name"].endswith("-5e7a11ce-t99-a4")
    assert len(made["metadata"]["name"]) <= 52
    assert made["metadata"]["labels"]["jobyard.dev/task"] == "99"
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lab"
    assert (made["spec"]["backoffLimit"], made["spec"]["suspend"]) == (0, True)
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert (labels["jobyard.dev/task"], labels["jobyard.dev/attempt"]) == ("99", "4")


def test_one_replica_of_one_group_is_an_indexed_job_that_waits_to_be_admitted() -> None:
    (job,) = objects(a_job(5, retries=2, max_fails=3, limit=2, deadline_seconds=3600.5, timeout_seconds=60))
    spec = job["spec"]
    assert (job["apiVersion"], job["kind"], spec["suspend"]) == ("batch/v1", "Job", True)
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 5, 2)
    assert spec["backoffLimitPerIndex"] == 2
    assert (spec["podReplacementPolicy"], spec["ttlSecondsAfterFinished"]) == ("Failed", 604800)
    assert (spec["activeDeadlineSeconds"], spec["template"]["spec"]["activeDeadlineSeconds"]) == (3601, 60)
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_several_groups_or_replicas_are_a_jobset_in_order_of_their_names() -> None:
    (made,) = objects(a_job(groups=(a_group("b", 2), a_group("a", 1, completions=4, parallelism=3))))
    spec = made["spec"]
    assert (made["apiVersion"], made["kind"], spec["suspend"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet", True)
    assert [(group["name"], group["replicas"]) for group in spec["replicatedJobs"]] == [("a", 1), ("b", 2)]
    assert spec["replicatedJobs"][0]["template"]["spec"]["parallelism"] == 3
    assert spec["failurePolicy"] == {"maxRestarts": 0}
    (alone,) = objects(a_job(groups=(a_group("a", 1, completions=4),)))
    assert alone["kind"] == "Job"


def test_an_object_is_one_attempt_of_a_gang_and_kubernetes_retries_nothing_of_it() -> None:
    for spec in (a_job(3, gang=True, retries=5), a_job(training=Training(), retries=5)):
        made = objects(spec, attempt=4)[0]
        assert made["metadata"]["name"] == "job-5e7a11ce-a4"
        assert made["spec"]["backoffLimitPerIndex"] == 0
        assert "podFailurePolicy" not in made["spec"]


def test_a_drained_node_and_a_stop_at_a_checkpoint_cost_no_retry() -> None:
    rules = the_job(tasks=3, training=Training(), retries=1)["podFailurePolicy"]["rules"]
    assert [rule["action"] for rule in rules] == ["Ignore", "Ignore"]
    assert rules[0]["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert rules[1]["onExitCodes"]["values"] == [85]


def test_failures_of_an_array_are_counted_by_the_yard_alone() -> None:
    """Kubernetes takes a task that was cancelled for one that failed."""
    for counted in ({"on_failure": FailurePolicy.STOP}, {"max_fails": 2}):
        assert "maxFailedIndexes" not in the_job(tasks=3, **counted)


def test_memory_is_reserved_and_capped_cores_are_reserved_and_gpus_are_whole() -> None:
    group = replace(a_group(cpus=1.5, mem=2048, gpus=2, gpu_mem=4096), cpu_limit_millis=3000)
    (container,) = the_job(groups=(group,))["template"]["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1500m", "memory": "2048Mi"},
        "limits": {"cpu": "3", "memory": "2048Mi", "nvidia.com/gpu": "2"},
    }
    (container,) = the_job()["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "1"}}


def test_memory_without_a_limit_is_only_reserved() -> None:
    resources = replace(a_group(mem=2048).resources, memory_limit=False)
    (container,) = the_job(groups=(replace(a_group(), resources=resources),))["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "1", "memory": "2048Mi"}}


def test_shared_memory_selectors_tolerations_and_grace_reach_the_pod() -> None:
    tolerations = (Toleration("gpu", "Exists"), Toleration("team", "Equal", "a", "NoSchedule"))
    group = replace(a_group(), shm_mib=512, node_selector={"zone": "a"}, tolerations=tolerations)
    pod = the_job(groups=(group,), grace_seconds=2.5)["template"]["spec"]
    assert pod["volumes"][1:] == [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "512Mi"}}]
    assert pod["containers"][0]["volumeMounts"][2:] == [{"name": "shm", "mountPath": "/dev/shm"}]
    assert (pod["nodeSelector"], pod["terminationGracePeriodSeconds"]) == ({"zone": "a"}, 3)
    assert pod["tolerations"] == [
        {"key": "gpu", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
    ]
    assert decode(GroupSpec, json.loads(json.dumps(encode(group)))) == group


def test_a_child_goes_with_its_owner() -> None:
    job, table = objects(a_job(groups=(GroupSpec(Command(lines=Lines.of(["a", "b"])), completions=2),)))
    created = {**job, "metadata": {**job["metadata"], "uid": "u-1"}}
    (reference,) = owned(table, created)["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"], reference["uid"]) == ("Job", job["metadata"]["name"], "u-1")
    assert "ownerReferences" not in table["metadata"]


def test_who_asked_and_for_what_is_written_on_the_object() -> None:
    spec = a_job(name="Büro / Sweep №1", user="ada", workdir="/project")
    metadata = objects_of(SubmittedJob("5e7a11ce", 7, with_words(spec, image="x")), 1, "team-a")[0]["metadata"]
    assert metadata["name"] == "b-ro-sweep-1-5e7a11ce-a1"
    assert metadata["namespace"] == "team-a"
    assert metadata["labels"]["app.kubernetes.io/managed-by"] == "jobyard"
    assert (metadata["labels"]["jobyard.dev/job"], metadata["labels"]["jobyard.dev/attempt"]) == ("5e7a11ce", "1")
    assert metadata["annotations"] == {
        "jobyard.dev/name": "Büro / Sweep №1",
        "jobyard.dev/user": "ada",
        "jobyard.dev/workdir": "/project",
        "jobyard.dev/command": "true",
    }


MANY = Lines(("x" * 30 + "\n") * 50_000)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (JobSpec("x", (a_group(),)), "job 'x' has no image, and on Kubernetes every task runs in one; write image:"),
        (a_job(1_000_000, image="x"), "has 1000000 tasks, and Kubernetes takes 100000 in a Job; split it"),
        (
            a_job(groups=(GroupSpec(Command(lines=MANY), completions=50_000),), image="x"),
            "the lines of its tasks take 2 MiB, and a ConfigMap holds 1 MiB",
        ),
        (a_job(groups=(a_group("a-", 2),), image="x"), "group 'a-': Kubernetes wants a letter or digit at the end"),
        (a_job(groups=(a_group("a" * 60, 2),), image="x"), "give the group a shorter name"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_kubernetes_cannot_run_gets_one_sentence(spec: JobSpec, says: str) -> None:
    with pytest.raises(UserError) as caught:
        objects_of(SubmittedJob("5e7a11ce", 7, spec), 1)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_id_that_looks_like_a_number_stays_a_text() -> None:
    text = yaml_of(objects_of(SubmittedJob("12345e01", 7, a_job(image="x")), 1))
    assert "jobyard.dev/job: '12345e01'" in text


some_groups = st.lists(
    st.builds(
        a_group,
        st.from_regex(re.compile(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", re.ASCII), fullmatch=True),
        st.integers(1, 50),
        st.integers(1, 50),
        st.one_of(st.none(), st.integers(1, 60)),
        gpus=st.integers(0, 8),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda group: group.name,
)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=200), some_groups, st.booleans(), st.integers(1, 9999))
def test_every_job_becomes_objects_that_can_be_sent(
    name: str, groups: list[GroupSpec], gang: bool, attempt: int
) -> None:
    spec = a_job(groups=tuple(groups), name=name, gang=gang, image="x")
    made = objects_of(SubmittedJob("5e7a11ce", 7, spec), attempt)
    json.dumps(made)
    first = made[0]
    assert all(LABEL.fullmatch(each["metadata"]["name"]) for each in made)
    assert len(first["metadata"]["name"]) <= 52
    assert all(re.fullmatch(r"([A-Za-z0-9][-\w.]{0,61})?[A-Za-z0-9]", v) for v in first["metadata"]["labels"].values())
    if first["kind"] == "JobSet":
        listed = [each["name"] for each in first["spec"]["replicatedJobs"]]
        assert listed == sorted(listed)
        for each in first["spec"]["replicatedJobs"]:
            last = f"{each['replicas'] - 1}-{each['template']['spec']['completions'] - 1}-xxxxx"
            assert LABEL.fullmatch(f"{first['metadata']['name']}-{each['name']}-{last}")
    else:
        assert LABEL.fullmatch(f"{first['metadata']['name']}-{first['spec']['completions'] - 1}")
    if name.isprintable():
        assert list(yaml.safe_load_all(yaml_of(made))) == made


def test_head_and_submitter_of_a_rayjob_ask_together_for_what_its_slot_holds() -> None:
    for cpus, memory, expected in (
        (1.0, 4096, ("900m", "3896Mi", "100m", "200Mi")),
        (0.05, 0, ("0", None, "50m", None)),
    ):
        head, worker = with_kind(a_job(groups=(a_group(),), image="x", on="k", cluster="k", kind="RayJob")).groups
        sized = replace(head, resources=Resources(int(cpus * 1000), memory))
        job = SubmittedJob(
            "5e7a11ce", 7, a_job(groups=(sized, worker), image="x", cluster="k", kind="RayJob", gang=True)
        )
        spec = objects_of(job, 1, "team")[0]["spec"]
        (first,) = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
        (submitter,) = spec["submitterPodTemplate"]["spec"]["containers"]
        asked = [each["resources"]["requests"] for each in (first, submitter)]
        assert tuple(each.get(name) for each in asked for name in ("cpu", "memory")) == expected


def test_a_task_of_a_jobset_finds_its_directories_again_in_a_job_of_its_own() -> None:
    groups = (a_group("chief"), a_group("worker", count=2, completions=3))
    job = SubmittedJob("abcd1234", 7, a_job(groups=groups, cluster="k", image="i"))
    (alone, *_) = task_objects_of(job, 6, 2, "ns", storage="disk")
    (jobset, *_) = objects_of(job, 1, "ns", storage="disk")
    (container,) = alone["spec"]["template"]["spec"]["containers"]
    (inside,) = jobset["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["containers"]
    filled = {"$(JOB_INDEX)": "1", "$(JOB_COMPLETION_INDEX)": "2"}
    for own, shared in zip(container["volumeMounts"], inside["volumeMounts"], strict=True):
        path = shared["subPathExpr"]
        for name, value in filled.items():
            path = path.replace(name, value)
        assert own["subPath"] == path
