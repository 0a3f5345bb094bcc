"""What does a cluster's refusal look like? One sentence that names the thing and the way out; nothing stays behind."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import yaml

from jobyard.executors.kubernetes.rights import NEEDED, Right
from tests.cluster.api import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.images import SMALL
from tests.cluster.yards import WAITS, ClusterYard
from tests.waiting import until
from tests.yards import Done, TemporaryYard

ON = ("--on", "kubernetes", "--image", SMALL, "-c", "0.1")
ROLES = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def lonely() -> Iterator[TemporaryYard]:
    """A yard that knows no cluster."""
    with TemporaryYard() as made:
        made.env.pop("KUBECONFIG", None)
        yield made


def sentence(done: Done, code: int = 2) -> str:
    assert done.code == code, done
    assert done.err.count("\n") == 1, done.err
    assert "Traceback" not in done.err
    return done.err


def journal(yard: TemporaryYard) -> list[str]:
    with closing(sqlite3.connect(f"file:{yard.directory}/yard.db?mode=ro", uri=True)) as database:
        return [events for (events,) in database.execute("SELECT events FROM journal ORDER BY seq")]


def as_manifest(yard: TemporaryYard, name: str, body: Object) -> str:
    return yard.write(name, json.dumps(body))


# -- the way to the cluster


def test_without_a_kubeconfig_the_way_out_is_named(lonely: TemporaryYard) -> None:
    for words in (("clusters", "add"), ("submit", *ON, "--", "true")):
        said = sentence(lonely.run(*words))
        assert "no kubeconfig" in said
        assert "yard clusters add --kubeconfig FILE" in said
    assert "nowhere.yaml" in sentence(lonely.run("clusters", "add", "--kubeconfig", "nowhere.yaml"))
    lonely.write("torn.yaml", "{ not: [a kubeconfig")
    assert "torn.yaml cannot be read" in sentence(lonely.run("clusters", "add", "--kubeconfig", "torn.yaml"))
    assert lonely.json("clusters") == []
    assert lonely.json("ls", "--all") == []


def test_a_kubeconfig_of_a_cluster_that_does_not_answer_is_not_added(cluster: Cluster, lonely: TemporaryYard) -> None:
    config = cluster.api.kubeconfig()
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    said = sentence(lonely.run("clusters", "add", "--kubeconfig", as_manifest(lonely, "nobody.json", config)))
    assert said.startswith("yard: cluster kubernetes was not added: the cluster at https://127.0.0.1:1 does not answer")
    assert lonely.json("clusters") == []


def test_credentials_that_nobody_knows_are_told(cluster: Cluster, lonely: TemporaryYard) -> None:
    config = cluster.api.kubeconfig()
    config["users"][0]["user"] = {"token": "nonsense"}
    said = sentence(lonely.run("clusters", "add", "--kubeconfig", as_manifest(lonely, "unknown.json", config)))
    assert "was not added: " in said
    assert "Unauthorized" in said
    assert lonely.json("clusters") == []


def test_a_namespace_that_does_not_exist_is_told(cluster: Cluster, lonely: TemporaryYard) -> None:
    words = ("clusters", "add", "--kubeconfig", str(cluster.kubeconfig), "--namespace", "no-such-place")
    said = sentence(lonely.run(*words))
    assert "there is no namespace no-such-place in it" in said
    assert lonely.json("clusters") == []


def test_a_queue_that_does_not_exist_is_told(cluster: Cluster, lonely: TemporaryYard) -> None:
    """Whether or not Kueue was installed by a test before."""
    said = sentence(lonely.run("clusters", "add", "--kubeconfig", str(cluster.kubeconfig), "--queue", "no-such-queue"))
    assert "it has no Kueue: install it" in said or "there is no LocalQueue no-such-queue in namespace default" in said
    assert lonely.json("clusters") == []


# -- permissions


class Limited:
    """A user with all that a yard needs, less what a test takes away."""

    def __init__(self, cluster: Cluster, namespace: str, yard: TemporaryYard, user: str) -> None:
        self.cluster, self.user = cluster, user
        self.role = f"{ROLES}/namespaces/{namespace}/roles"
        self.without(None)
        who = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
        for kind, name, path in (
            ("Role", user, f"{ROLES}/namespaces/{namespace}/rolebindings"),
            ("ClusterRole", f"nodes-{user}", f"{ROLES}/clusterrolebindings"),
        ):
            reference = {"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"}
            cluster.api.create(path, {"metadata": {"name": name}, "roleRef": reference, "subjects": who})
        self.may_see_nodes(True)
        config = cluster.identity(user, user).kubeconfig()
        config["contexts"][0]["context"]["namespace"] = namespace
        self.kubeconfig = yard.root / f"{user}.json"
        self.kubeconfig.write_text(json.dumps(config))

    def without(self, missing: Right | None) -> None:
        rules: list[dict[str, Any]] = [
            {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
            for right in NEEDED
            if right != missing
        ]
        self._write(self.role, self.user, rules)

    def may_see_nodes(self, is_allowed: bool) -> None:
        rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}] if is_allowed else []
        self._write(f"{ROLES}/clusterroles", f"nodes-{self.user}", rules)

    def _write(self, collection: str, name: str, rules: list[dict[str, Any]]) -> None:
        try:
            self.cluster.api.create(collection, {"metadata": {"name": name}, "rules": rules})
        except Refused:  # it is there
            self.cluster.api.patch(f"{collection}/{name}", {"rules": rules})


@pytest.fixture
def limited(cluster: Cluster, namespace: str, lonely: TemporaryYard) -> Iterator[Limited]:
    user = f"limited-{namespace}"
    yield Limited(cluster, namespace, lonely, user)
    cluster.api.delete(f"{ROLES}/clusterroles/nodes-{user}")
    cluster.api.delete(f"{ROLES}/clusterrolebindings/nodes-{user}")


def test_a_right_that_is_missing_is_named_with_verb_and_resource(
    limited: Limited, lonely: TemporaryYard, namespace: str
) -> None:
    add = ("clusters", "add", "--kubeconfig", str(limited.kubeconfig))
    for right in (
        Right("delete", "jobs", "batch"),
        Right("get", "pods/log"),
        Right("watch", "pods"),
        Right("patch", "configmaps"),
    ):
        limited.without(right)
        words = f"user {limited.user} may not {right} in namespace {namespace}"
        assert words in until(lambda: said if words in (said := sentence(lonely.run(*add))) else None)  # noqa: B023
        assert lonely.json("clusters") == []
    limited.without(None)
    limited.may_see_nodes(False)
    words = f'User "{limited.user}" cannot list resource "nodes" in API group "" at the cluster scope'
    assert words in until(lambda: said if words in (said := sentence(lonely.run(*add))) else None)
    assert lonely.json("clusters") == []


def test_who_has_no_more_rights_than_the_list_says_runs_a_job(
    limited: Limited, lonely: TemporaryYard, cluster: Cluster, namespace: str
) -> None:
    """Pods of other namespaces and kinds of operators may not be seen, and are not needed."""
    lonely.ok("clusters", "add", "--kubeconfig", str(limited.kubeconfig))
    try:
        lonely.write("lines.txt", "echo one\necho two\n")
        job = lonely.submit(*ON, "lines.txt")
        assert until(lambda: seen if (seen := lonely.job(job))["state"] in ("SUCCEEDED", "FAILED") else None)["state"]
        assert lonely.job(job)["state"] == "SUCCEEDED", lonely.server_log()
        assert [lonely.logs(job, "--task", task).strip() for task in ("0", "1")] == ["one", "two"]
    finally:
        lonely.ok("clusters", "rm", "kubernetes", "--force")


def test_the_deployed_role_has_every_right_that_is_asked_for() -> None:
    with open("deploy/base/permissions.yaml") as file:
        (role,) = [each for each in yaml.safe_load_all(file) if each["kind"] == "Role"]
    given = {
        Right(verb, resource, group)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert set(NEEDED) <= given


# -- jobs


def test_a_kind_whose_operator_is_not_there_names_it(yard: ClusterYard) -> None:
    """Which tests before this one may have installed."""
    for kind, group, operator in (
        ("pytorchjob", "kubeflow.org", "the Kubeflow training operator v1"),
        ("rayjob", "ray.io", "the KubeRay operator"),
    ):
        if any(each["name"] == group for each in yard.cluster.api.get("/apis")["groups"]):
            continue
        said = sentence(yard.run("submit", *ON, "--kind", kind, "--workers", "2", "--", "true"))
        assert f"install {operator}" in said
        assert yard.json("ls", "--all") == []


def test_an_invalid_manifest_is_refused_in_the_api_servers_own_words(yard: ClusterYard) -> None:
    template = {"spec": {"restartPolicy": "Sometimes", "containers": [{"name": "main", "image": SMALL}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "bad"}, "spec": {"template": template}}
    before = len(yard.json("ls", "--all"))
    said = sentence(yard.run("submit", "--on", "kubernetes", as_manifest(yard, "bad.json", job)))
    assert "cluster kubernetes refuses the Job: " in said
    assert 'Unsupported value: "Sometimes"' in said
    template["spec"] = {"restartPolicy": "Never", "containers": [{"name": "main", "image": SMALL, "colour": "red"}]}
    said = sentence(yard.run("submit", "--on", "kubernetes", as_manifest(yard, "bad.json", job)))
    assert 'unknown field "spec.template.spec.containers[0].colour"' in said
    assert len(yard.json("ls", "--all")) == before


@pytest.mark.long
def test_a_quota_that_only_the_cluster_knows_of_is_told_in_its_words(yard: ClusterYard) -> None:
    """Objects are counted by a quota that the yard does not plan with: the job waits until there is room."""
    quotas = yard.path("/api/v1", "resourcequotas")
    yard.cluster.api.create(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"count/jobs.batch": "0"}}})
    try:
        yard.cluster.api.until(f"{quotas}/few", lambda seen: seen.get("status", {}).get("hard"))
        said = yard.run("submit", "-q", *ON, "--", "true")
        if said.code:  # told at once by the dry run
            assert "exceeded quota: few" in sentence(said)
        else:
            job = said.out.strip()
            why = until(lambda: text if "exceeded quota: few" in (text := yard.ok("why", job).out) else None)
            assert "count/jobs.batch" in why
            yard.cluster.api.delete(f"{quotas}/few")
            assert yard.ended(job)["state"] == "SUCCEEDED"
    finally:
        yard.cluster.api.delete(f"{quotas}/few")


@pytest.mark.long
def test_pods_that_a_policy_of_the_cluster_does_not_let_be_made_are_explained(yard: ClusterYard) -> None:
    """A limit of the namespace on single containers is told only when a pod is made."""
    ranges = yard.path("/api/v1", "limitranges")
    limit = {"type": "Container", "max": {"cpu": "50m"}}
    yard.cluster.api.create(ranges, {"metadata": {"name": "tiny"}, "spec": {"limits": [limit]}})
    try:
        job = yard.submit(*ON, "--", "true")
        why = until(lambda: text if "its pods cannot be made" in (text := yard.ok("why", job).out) else None, 120)
        assert "must be less than or equal to cpu limit of 50m" in why
    finally:
        yard.cluster.api.delete(f"{ranges}/tiny")
    yard.ok("cancel", job, "--force")
    assert yard.ended(job)["state"] == "CANCELLED"
    until(lambda: not yard.objects(job))


@pytest.mark.long
def test_an_image_that_cannot_be_pulled_is_explained_and_cancelled_without_a_trace(yard: ClusterYard) -> None:
    job = yard.submit("--on", "kubernetes", "--image", "jobyard.test/none:2", "-c", "0.1", "--", "true")
    why = until(lambda: text if "image" in (text := yard.ok("why", job).out) else None)
    assert "jobyard.test/none:2" in why
    yard.ok("cancel", job, "--force")
    assert yard.ended(job)["state"] == "CANCELLED"
    until(lambda: not yard.objects(job) and not yard.pods(job))


@pytest.mark.long
def test_a_pod_that_fits_no_node_says_why_in_the_schedulers_words(yard: ClusterYard) -> None:
    """A volume that is nowhere is no matter of room: only the cluster's scheduler knows of it."""
    job = yard.submit(*ON, "--volume", "no-such-claim:/data", "--", "true")
    why = until(lambda: text if "no-such-claim" in (text := yard.ok("why", job).out) else None)
    assert "not found" in why
    yard.ok("cancel", job, "--force")
    assert yard.ended(job)["state"] == "CANCELLED"
    until(lambda: not yard.objects(job) and not yard.pods(job))


def test_a_selector_that_no_node_has_is_refused_at_once(yard: ClusterYard) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "picky"},
        "spec": {"nodeSelector": {"planet": "mars"}, "containers": [{"name": "main", "image": SMALL}]},
    }
    done = yard.run("submit", "-q", "--on", "kubernetes", as_manifest(yard, "pod.json", pod))
    if done.code:
        assert "planet=mars" in sentence(done)
        return
    job = yard.job(done.out.strip())["id"]
    why = until(lambda: text if "planet" in (text := yard.ok("why", job).out) or "node" in text else None)
    assert "planet=mars" in why or "node affinity/selector" in why
    yard.ok("cancel", job, "--force")
    until(lambda: not yard.pods(job))


@pytest.mark.long
def test_an_evicted_pod_is_told_and_run_again(yard: ClusterYard) -> None:
    job = yard.submit(*ON, *WAITS)
    yard.wait_state(job, "RUNNING")
    first = yard.tasks(job)[0]["unit"]
    eviction: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": first}}
    eviction["deleteOptions"] = {"gracePeriodSeconds": 1}
    yard.cluster.api.create(f"{yard.path('/api/v1', 'pods')}/{first}/eviction", eviction)
    until(lambda: (task := yard.tasks(job)[0])["attempt"] == 2 and task["state"] == "RUNNING")
    yard.let_go(job)
    assert yard.ended(job)["state"] == "SUCCEEDED"
    assert yard.tasks(job)[0]["unit"] != first
    assert yard.logs(job) == "begin\nend\n"
    assert yard.logs(job, "--attempt", "1") == "begin\n"
    assert any("evicted: its node is being drained" in events for events in journal(yard))


@pytest.mark.long
def test_cancelling_while_the_cluster_is_away_removes_everything_once_it_is_back(yard: ClusterYard) -> None:
    job = yard.submit(*ON, "--", "tail", "-f", "/dev/null")
    yard.wait_state(job, "RUNNING")
    server = yard.cluster.programs["kube-apiserver"]
    server.kill()
    try:
        until(lambda: not yard.json("clusters")[0]["is_connected"])
        yard.ok("cancel", job, "--force")
        assert yard.job(job)["state"] not in ("FAILED", "SUCCEEDED")
    finally:
        server.restart()
        yard.cluster.wait_ready()
    assert yard.ended(job)["state"] == "CANCELLED"
    until(lambda: not yard.objects(job) and not yard.pods(job))
