"""Does the yard run in a cluster, as deploy/ says, with no more rights than it needs?"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml

from jobyard.client.address import Address
from jobyard.client.api import YardClient
from jobyard.errors import Forbidden, UserError
from jobyard.manifests.command import spec_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import State
from jobyard.model.node import ClusterConfig
from jobyard.settings import ClientKnobs
from tests.cluster.api import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.images import SMALL, yard_image
from tests.cluster.node import NODE, Node
from tests.cluster.objects import a_volume, has
from tests.yards import ROOT

NAMESPACE = "jobyard"
IMAGE = "docker.io/library/jobyard:0.1.0"
USER = 10001  # of the server, in deploy/base/server.yaml
PORT = 8470
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass
class Deployed:
    """The yard of the cluster, and a token for it."""

    cluster: Cluster
    token: str

    def pod(self) -> Object:
        (pod,) = self.cluster.api.until_all(
            PODS, has("Ready"), 1, 120, labelSelector="app.kubernetes.io/name=jobyard"
        ).values()
        return pod

    def client(self, token: str = "") -> YardClient:
        """At the pod itself: without kube-proxy a Service has no address that answers."""
        address = Address(host=self.pod()["status"]["podIP"], port=PORT, token=token or self.token)
        return YardClient(address, ClientKnobs(reconnect_seconds=0.0))


@pytest.fixture(scope="module")
def deployed(cluster: Cluster, worker: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """`kubectl apply -k` of deploy/, with a volume and the image that a real cluster would have."""
    place = tmp_path_factory.mktemp("deploy")
    yard_image(place / "image.tar", IMAGE, place)
    worker.import_images(place / "image.tar")
    volume = a_volume(NAMESPACE, "jobyard", place / "volume", user=USER)
    cluster.api.create("/api/v1/persistentvolumes", volume)
    token, overlay = write_overlay(cluster, place)
    cluster.kubectl("apply", "-k", str(overlay))
    try:
        yield Deployed(cluster, token)
    finally:
        cluster.kubectl("delete", "-k", str(overlay), "--wait=false", "--ignore-not-found")
        cluster.api.until(f"/api/v1/namespaces/{NAMESPACE}", bool, gone=True)
        cluster.api.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")


def write_overlay(cluster: Cluster, place: Path) -> tuple[str, Path]:
    """A copy of deploy/ with a token, and around it what this cluster needs: there is no kube-proxy, so the address
    that every pod knows the API server by does not answer.
    """
    shutil.copytree(ROOT / "deploy", place / "deploy", ignore=shutil.ignore_patterns("tokens.env"))
    made = subprocess.run([place / "deploy/new-token", "alice", "--admin"], check=True, capture_output=True, text=True)
    env = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": cluster.api.host},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(cluster.api.port)},
    ]
    change = {"spec": {"template": {"spec": {"containers": [{"name": "server", "env": env}]}}}}
    about = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "jobyard"}}
    overlay = place / "overlay"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["../deploy"], "patches": [{"patch": yaml.safe_dump({**about, **change})}]})
    )
    return made.stdout.strip(), overlay


def test_it_serves_whoever_has_a_token_of_its_secret_and_nobody_else(deployed: Deployed) -> None:
    pod = deployed.pod()
    base = f"http://{pod['status']['podIP']}:{PORT}/api/v1"
    with urlopen(f"{base}/healthz") as answer:
        assert answer.status == 200
    with pytest.raises(HTTPError) as refusal:
        urlopen(f"{base}/jobs")
    refusal.value.close()
    assert refusal.value.code == 401
    with pytest.raises(Forbidden):
        deployed.client("yard_" + "0" * 64).jobs()
    assert deployed.client().jobs() == ()
    assert deployed.client().server().yard == "/data/yard"


def test_its_pod_has_no_root_and_writes_only_where_it_keeps_things(deployed: Deployed) -> None:
    name = deployed.pod()["metadata"]["name"]
    inside = ("exec", f"--namespace={NAMESPACE}", name, "--", "sh", "-c")
    assert deployed.cluster.kubectl(*inside, "id -u").strip() == str(USER)
    assert deployed.cluster.kubectl(*inside, "touch /opt/x /bin/x 2>/dev/null || echo refused").strip() == "refused"


def test_what_it_knows_outlives_its_pod(deployed: Deployed) -> None:
    before, knew = deployed.pod(), deployed.client().server()
    made = deployed.client().create_token("carol")
    path = f"{PODS}/{before['metadata']['name']}"
    deployed.cluster.api.delete(path)
    deployed.cluster.api.until(path, bool, gone=True)
    assert deployed.pod()["metadata"]["uid"] != before["metadata"]["uid"]
    assert deployed.client(made.secret).server().yard_id == knew.yard_id


def test_a_client_with_a_token_runs_a_job_on_the_cluster_that_the_yard_is_in(deployed: Deployed) -> None:
    client = deployed.client()
    added = client.add_cluster(ClusterConfig("kubernetes"))
    assert (added.is_connected, added.problem) == (True, "")
    assert [node.id for node in client.nodes()] == [f"kubernetes/{NODE}"], "the pod itself is no machine for tasks"
    asked = Overrides(on="kubernetes", image=SMALL, cpus="0.1")
    spec = spec_from_command(["echo", "inside"], asked, SubmitContext("/", user="nobody"))
    views = list(client.watch(client.submit(spec).id))
    assert (views[-1].state, views[-1].user) == (State.SUCCEEDED, "alice"), views[-1].message
    said = "".join(chunk.data for chunk in client.logs(views[-1].id))
    assert said == "inside\n"
    client.remove_cluster("kubernetes")


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("serviceAccountName", {"serviceAccountName": "jobyard"}),
        ("claimName", {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "jobyard"}}]}),
        ("secretName", {"volumes": [{"name": "v", "secret": {"secretName": "(of the server)"}}]}),
        ("hostPath", {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
    ],
)
def test_no_job_has_the_servers_account_its_journal_its_tokens_or_the_node(
    deployed: Deployed, tmp_path: Path, field: str, change: Object
) -> None:
    client = deployed.client()
    client.add_cluster(ClusterConfig("kubernetes"))
    mounted = {each["name"]: each for each in deployed.pod()["spec"]["volumes"]}
    for volume in change.get("volumes", ()):
        if "secret" in volume:
            volume["secret"]["secretName"] = mounted["tokens"]["secret"]["secretName"]
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": SMALL, "command": ["id"]}], **change}
    about = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "curious"}}
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump({**about, "spec": pod}))
    spec = spec_from_file(file, Overrides(on="kubernetes"), SubmitContext("/", user="nobody"))
    with pytest.raises(UserError, match=rf"spec\..*{field}: "):
        client.submit(spec)
    client.remove_cluster("kubernetes")


def test_the_namespace_itself_keeps_pods_out_of_the_node(deployed: Deployed) -> None:
    """Also those that no yard has looked at."""
    pod = {"restartPolicy": "Never", "hostPID": True, "containers": [{"name": "main", "image": SMALL}]}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "curious"}, "spec": pod}
    with pytest.raises(Refused, match="baseline"):
        deployed.cluster.api.create(PODS, made)


MAY = [
    *(f"{verb} batch/jobs" for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *(f"{verb} jobset.x-k8s.io/jobsets" for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *(f"{verb} kubeflow.org/pytorchjobs" for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *(f"{verb} ray.io/rayjobs" for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *(f"{verb} /pods" for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *(f"{verb} /configmaps" for verb in ("get", "list", "create", "patch", "delete")),
    *(f"{verb} /services" for verb in ("get", "list", "create", "patch", "delete")),
    *(f"{verb} /resourcequotas" for verb in ("get", "list", "watch")),
    *("get /pods/log", "get /pods/exec", "create /pods/exec", "list /events"),
    *(f"{verb} kueue.x-k8s.io/{kind}" for verb in ("get", "list", "watch") for kind in ("localqueues", "workloads")),
]
MAY_NOT = [
    *(f"{verb} /secrets" for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *("update batch/jobs", "deletecollection batch/jobs", "deletecollection /pods", "create /serviceaccounts/token"),
    *("create rbac.authorization.k8s.io/rolebindings", "create apps/deployments", "patch kueue.x-k8s.io/workloads"),
    *("create /pods/portforward", "impersonate /serviceaccounts", "patch /persistentvolumeclaims"),
]


def test_its_account_may_do_what_the_executor_does_and_nothing_beside(deployed: Deployed) -> None:
    assert [each for each in MAY if not is_allowed(deployed.cluster, each, NAMESPACE)] == []
    assert [each for each in MAY_NOT if is_allowed(deployed.cluster, each, NAMESPACE)] == []


def test_beyond_its_namespace_it_only_looks_at_nodes(deployed: Deployed) -> None:
    assert all(is_allowed(deployed.cluster, f"{verb} /nodes", "") for verb in ("get", "list", "watch"))
    beyond = [f"{verb} /nodes" for verb in ("create", "patch", "update", "delete")]
    assert [each for each in beyond if is_allowed(deployed.cluster, each, "")] == []
    for namespace in ("", "default", "kube-system"):
        assert [each for each in (*MAY, *MAY_NOT) if is_allowed(deployed.cluster, each, namespace)] == []


def is_allowed(cluster: Cluster, deed: str, namespace: str) -> bool:
    """`VERB GROUP/RESOURCE[/PART]`, as the API server itself would decide; without a namespace: in all."""
    verb, _, what = deed.partition(" ")
    group, resource, *part = what.split("/")
    asked = {"verb": verb, "group": group, "resource": resource, "subresource": "".join(part), "namespace": namespace}
    user = f"system:serviceaccount:{NAMESPACE}:jobyard"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    spec = {"user": user, "groups": groups, "resourceAttributes": asked}
    review = cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
    return bool(review["status"]["allowed"])
