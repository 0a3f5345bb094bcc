"""No job uses what is the yard's or another job's, nor reaches into a node, in whatever kind of object and place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders import a_job, with_words
from tests.unit.executors.kubernetes.written import body, written

from jobyard.errors import UserError
from jobyard.executors.kubernetes.forbidden import Own, own_things, refuse_forbidden
from jobyard.executors.kubernetes.kinds import KINDS
from jobyard.executors.kubernetes.manifest import objects_of
from jobyard.executors.kubernetes.raw import templates_of
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.job import JobSpec
from jobyard.model.kubernetes import SecretMount, Volume
from jobyard.model.node import ClusterConfig
from jobyard.model.training import Training

OWN = Own("robot", frozenset({"database"}), frozenset({"journal"}))
CLUSTER = ClusterConfig("k")
ROOT = Path(__file__).resolve().parents[4]
Change = Callable[[dict[str, Any]], Any]


def refused(spec: JobSpec, config: ClusterConfig = CLUSTER, own: Own = OWN) -> str:
    """The sentence; empty: it is taken."""
    try:
        refuse_forbidden(SubmittedJob("5e7a11ce", 7, spec), config, own)
    except UserError as error:
        return str(error)
    return ""


def changed(kind: str, change: dict[str, Any], last: bool = False, **metadata: Any) -> JobSpec:
    """An object of a user in which the pods of one template have these fields more."""
    spec = written(kind, **metadata)
    manifest = json.loads(spec.kubernetes.manifest)
    templates_of(manifest)[-1 if last else 0]["spec"].update(change)
    return with_words(spec, manifest=json.dumps(manifest))


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


def container(**more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "x", **more}]}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"serviceAccountName": "robot"}, "serviceAccountName"),
        ({"serviceAccount": "robot"}, "serviceAccount"),
        (volume(secret={"secretName": "database"}), "volumes[0].secret.secretName"),
        (volume(secret={"secretName": "jobyard-tokens-abc"}), "volumes[0].secret.secretName"),
        (volume(secret={"secretName": "yard-0123456789abcdef"}), "volumes[0].secret.secretName"),
        (volume(projected={"sources": [{"secret": {"name": "database"}}]}), "volumes[0].projected.sources[0].secret"),
        (volume(csi={"nodePublishSecretRef": {"name": "database"}}), "volumes[0].csi.nodePublishSecretRef"),
        (volume(cephfs={"secretRef": {"name": "database"}}), "volumes[0].cephfs.secretRef"),
        ({"imagePullSecrets": [{"name": "a"}, {"name": "database"}]}, "imagePullSecrets"),
        (container(envFrom=[{"secretRef": {"name": "database"}}]), "containers[0].envFrom[0].secretRef"),
        (
            container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "database", "key": "k"}}}]),
            "containers[0].env[0].valueFrom.secretKeyRef",
        ),
        (
            {"initContainers": container(envFrom=[{"secretRef": {"name": "database"}}])["containers"]},
            "initContainers[0].envFrom[0].secretRef",
        ),
        (volume(persistentVolumeClaim={"claimName": "journal"}), "volumes[0].persistentVolumeClaim.claimName"),
        (volume(persistentVolumeClaim={"claimName": "jobyard"}), "volumes[0].persistentVolumeClaim.claimName"),
        (volume(hostPath={"path": "/"}), "volumes[0].hostPath"),
        ({"hostNetwork": True}, "hostNetwork"),
        ({"hostPID": True}, "hostPID"),
        ({"hostIPC": True}, "hostIPC"),
        (container(securityContext={"privileged": True}), "containers[0].securityContext.privileged"),
    ],
)
def test_a_pod_of_any_object_is_refused_with_the_field(
    kind: str, change: dict[str, Any], field: str, last: bool
) -> None:
    sentence = refused(changed(kind, change, last))
    assert sentence.split(": ")[0].endswith(field), sentence
    assert sentence.startswith("spec.")


@pytest.mark.parametrize(
    "place",
    [
        lambda spec: spec["rayClusterSpec"].update(
            gcsFaultToleranceOptions={"redisPassword": {"valueFrom": {"secretKeyRef": {"name": "database"}}}}
        ),
        lambda spec: spec["rayClusterSpec"].update(
            autoscalerOptions={"envFrom": [{"secretRef": {"name": "database"}}]}
        ),
        lambda spec: spec.update(submitterPodTemplate={"spec": {"serviceAccountName": "robot", "containers": []}}),
    ],
)
def test_places_that_only_an_operator_knows_are_looked_at_too(place: Change) -> None:
    spec = body("RayJob")
    place(spec)
    assert refused(written("RayJob", spec))


@pytest.mark.parametrize(
    "change",
    [
        {"serviceAccountName": "mine", "automountServiceAccountToken": True},
        volume(secret={"secretName": "mine"}),
        volume(projected={"sources": [{"serviceAccountToken": {"path": "token", "audience": "vault"}}]}),
        volume(persistentVolumeClaim={"claimName": "data"}),
        volume(ephemeral={"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}),
        volume(emptyDir={}),
        {"hostNetwork": False},
        {},
    ],
)
def test_what_is_the_users_own_is_taken(change: dict[str, Any]) -> None:
    assert refused(changed("Job", change)) == ""


@pytest.mark.parametrize(
    "change", [volume(hostPath={"path": "/data"}), {"hostPID": True}, container(securityContext={"privileged": True})]
)
def test_a_cluster_may_allow_the_node_itself(change: dict[str, Any]) -> None:
    assert "--allow-host-path" in refused(changed("Job", change))
    assert refused(changed("Job", change), replace(CLUSTER, allow_host_path=True)) == ""


def test_where_the_yard_is_the_default_account_a_pod_names_another() -> None:
    own = Own("default")
    assert "default" in refused(written("PyTorchJob"), own=own)
    assert "default" in refused(changed("Pod", {"serviceAccountName": "default"}), own=own)
    assert refused(changed("Pod", {"serviceAccountName": "mine"}), own=own) == ""


def test_an_object_belongs_to_nobody_else_and_a_pod_poses_as_no_controllers() -> None:
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "theirs", "uid": "1", "controller": True}]
    assert refused(written("Pod", ownerReferences=owner)).startswith("metadata.ownerReferences")
    assert refused(written("Pod", labels={"batch.kubernetes.io/controller-uid": "1"})).startswith("metadata.labels")
    assert refused(written("Pod", labels={"team": "a"})) == ""


def test_labels_and_annotations_of_the_yard_are_the_yards_alone() -> None:
    forged = {"jobyard.dev/task": "3", "jobyard.dev/component": "server", "team": "a"}
    spec = written("Job", labels=forged, annotations={"jobyard.dev/workers": "9", "note": "x"})
    manifest = json.loads(spec.kubernetes.manifest)
    templates_of(manifest)[0]["metadata"] = {"labels": forged}
    (made,) = objects_of(SubmittedJob("5e7a11ce", 7, with_words(spec, manifest=json.dumps(manifest))), 1, "team")
    for metadata in (made["metadata"], templates_of(made)[0]["metadata"]):
        assert metadata["labels"]["team"] == "a"
        assert not {"jobyard.dev/task", "jobyard.dev/component"} & metadata["labels"].keys()
    assert made["metadata"]["annotations"] == {"note": "x"}


@pytest.mark.parametrize(
    "text", ["{", "[]", "3", '{"kind":"Job"}', "[" * 100_000, '{"apiVersion":"v1","kind":"Secret"}']
)
def test_a_manifest_that_is_not_of_its_kind_is_refused(text: str) -> None:
    assert refused(with_words(written("Job"), manifest=text)).startswith("manifest: it is no Job of batch/v1")


def test_claims_and_secrets_of_flags_are_looked_at_as_well() -> None:
    assert refused(a_job(volumes=(Volume("journal", "/data"),))).startswith("--volume")
    assert refused(a_job(volumes=(Volume("data", "/data"),))) == ""
    assert refused(a_job(secrets=(SecretMount("database", "k", "/k"),))).startswith("secrets")
    assert refused(a_job(secrets=(SecretMount("yard-0123456789abcdef", "k", "/k"),))) == ""


def test_what_pods_of_the_yards_account_mount_is_the_yards() -> None:
    server = {
        "serviceAccountName": "robot",
        "containers": [{"name": "server", "env": [{"valueFrom": {"secretKeyRef": {"name": "database"}}}]}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "journal"}},
            {"name": "tokens", "secret": {"secretName": "tokens-abc"}},
        ],
    }
    job = {"volumes": [{"name": "own", "ephemeral": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": "d"}}]}
    pods = [{"metadata": {"name": "server-1"}, "spec": server}, {"metadata": {"name": "job-1"}, "spec": job}]
    own = own_things("robot", pods, "checkpoints")
    assert own.secrets == {"database", "tokens-abc"}
    assert own.claims == {"journal", "checkpoints", "job-1-own"}
    assert own_things("", pods, "").secrets == frozenset()


# -- Pod Security, as far as it is about our pods: https://kubernetes.io/docs/concepts/security/pod-security-standards

_BASELINE_VOLUMES = {
    "emptyDir",
    "configMap",
    "secret",
    "persistentVolumeClaim",
    "projected",
    "downwardAPI",
    "ephemeral",
}


def breaches_of_baseline(spec: dict[str, Any]) -> list[str]:
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    found += [str(each) for each in spec.get("volumes", ()) if not set(each) - {"name"} <= _BASELINE_VOLUMES]
    for each in [*spec.get("initContainers", ()), *spec["containers"]]:
        context = each.get("securityContext", {})
        found += [f"{each['name']} {name}" for name in ("privileged", "procMount") if context.get(name)]
        found += context.get("capabilities", {}).get("add", [])
        found += [str(port) for port in each.get("ports", ()) if port.get("hostPort")]
    return found


def breaches_of_restricted(spec: dict[str, Any]) -> list[str]:
    found = breaches_of_baseline(spec)
    pod = spec.get("securityContext", {})
    found += [] if pod.get("runAsNonRoot") and pod.get("runAsUser") != 0 else ["runAsNonRoot"]
    found += [] if pod.get("seccompProfile", {}).get("type") == "RuntimeDefault" else ["seccompProfile"]
    for each in spec["containers"]:
        context = each.get("securityContext", {})
        found += [] if context.get("allowPrivilegeEscalation") is False else ["allowPrivilegeEscalation"]
        found += [] if context.get("capabilities", {}).get("drop") == ["ALL"] else ["capabilities"]
    return found


def test_every_pod_that_a_yard_makes_is_baseline_and_its_server_is_restricted() -> None:
    golden = sorted((Path(__file__).parent / "golden").glob("*.yaml"))
    objects = [each for path in golden for each in yaml.safe_load_all(path.read_text()) if each and "spec" in each]
    spec = a_job(image="x", cluster="k", training=Training(), timeout_seconds=9.0)
    spec = with_words(spec, volumes=(Volume("d", "/d"),), secrets=(SecretMount("yard-0123456789abcdef", "k", "/k"),))
    objects += objects_of(SubmittedJob("5e7a11ce", 7, spec), 1, "team", storage="checkpoints")
    rendered = [each for each in objects if each["kind"] in KINDS]
    assert {each["kind"] for each in rendered} >= {"Job", "JobSet", "PyTorchJob", "RayJob"}
    for each in rendered:
        assert [breaches_of_baseline(pod["spec"]) for pod in templates_of(each)] == [[]] * len(templates_of(each))
    deployed = list(yaml.safe_load_all((ROOT / "deploy" / "base" / "server.yaml").read_text()))
    server = next(each for each in deployed if each["kind"] == "Deployment")
    assert breaches_of_restricted(server["spec"]["template"]["spec"]) == []
    labels = yaml.safe_load((ROOT / "deploy" / "namespace.yaml").read_text())["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
    assert labels["pod-security.kubernetes.io/warn"] == "restricted"


def test_the_servers_service_selects_by_a_label_that_no_job_can_have() -> None:
    deployed = list(yaml.safe_load_all((ROOT / "deploy" / "base" / "server.yaml").read_text()))
    by_kind = {each["kind"]: each["spec"] for each in deployed}
    for selector in (by_kind["Service"]["selector"], by_kind["Deployment"]["selector"]["matchLabels"]):
        assert selector["jobyard.dev/component"] == "server"
