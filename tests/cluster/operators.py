"""Operators as they are released, run as host processes: their own definitions, webhooks by address, nothing mocked."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.api import Object
from tests.cluster.build import JOBSET, KUBERAY, KUEUE, TRAINING, CannotBuild, Product, build
from tests.cluster.certificates import Authority
from tests.cluster.cluster import Cluster
from tests.cluster.images import SMALL
from tests.cluster.objects import has
from tests.cluster.processes import Program, free_port

COLLECTIONS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}
HARD_WIRED = Path("/tmp/k8s-webhook-server")
"""Where the training operator looks for its certificate, whatever it is told."""


@dataclass(frozen=True)
class Place:
    """Where one operator listens and finds its files."""

    directory: Path
    host: str
    webhook: int
    probe: int

    @property
    def certificates(self) -> Path:
        return self.directory / "serving-certs"


@dataclass(frozen=True)
class Operator:
    """How one operator is installed and called."""

    product: Product
    kustomization: str
    words: Callable[[Place], list[str | Path]]
    namespace: str
    service: str = ""
    """The name in its certificate, with the namespace; empty when it has no webhooks."""
    secret: str = ""
    """Where its own rotator of certificates looks for them, if it has one."""
    authority: str = "jobyard-test"
    """The name of that rotator's authority; under another it would make its own."""


def _jobset(place: Place) -> list[str | Path]:
    return [JOBSET.program("jobset"), f"--config={_settings(place, 'config.jobset.x-k8s.io/v1alpha1', enable=False)}"]


def _kueue(place: Place) -> list[str | Path]:
    kinds = {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]}
    version = "config.kueue.x-k8s.io/v1beta2"
    settings = _settings(place, version, enable=True, namespace="kueue-system", integrations=kinds)
    return [KUEUE.program("kueue"), f"--config={settings}", "--feature-gates=VisibilityOnDemand=false"]


def _training(place: Place) -> list[str | Path]:
    if os.getuid() != 0:
        raise CannotBuild(f"it reads its certificate from {HARD_WIRED} only, and a private one there needs root.")
    words = f"""mkdir -p {HARD_WIRED} && mount --bind {place.directory} {HARD_WIRED} && exec "$@" """
    return [
        *("unshare", "--mount", "sh", "-c", words, "training-operator"),
        TRAINING.program("training-operator.v1"),
        f"--webhook-server-port={place.webhook}",
        f"--health-probe-bind-address=127.0.0.1:{place.probe}",
        "--metrics-bind-address=0",
        f"--pytorch-init-container-template-file={_waiting(place)}",
    ]


def _waiting(place: Place) -> Path:
    """Where workers wait for the master's name. Of an image that is here, and busybox 1.35's nslookup fails also when
    it finds the name, but not in all domains that it tries."""
    look = "nslookup {{.MasterAddr}} | grep -q ^Name: && exit 0; echo waiting for the master; sleep 1"
    script = f"for try in $(seq {{{{.MaxTries}}}}); do {look}; done; exit 1"
    path = place.directory / "init-container.yaml"
    path.write_text(json.dumps([{"name": "init-pytorch", "image": SMALL, "command": ["sh", "-c", script]}]))
    return path


def _kuberay(place: Place) -> list[str | Path]:
    return [
        KUBERAY.program("kuberay"),
        f"--health-probe-bind-address=127.0.0.1:{place.probe}",
        "--metrics-addr=0",
        "--enable-leader-election=false",
        "--use-kubernetes-proxy",  # the host does not know the names of services
    ]


def _settings(place: Place, version: str, *, enable: bool, **more: Any) -> Path:
    path = place.directory / "settings.yaml"
    about = {
        "apiVersion": version,
        "kind": "Configuration",
        "webhook": {"host": place.host, "port": place.webhook, "certDir": str(place.certificates)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{place.probe}"},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": enable},
        **more,
    }
    path.write_text(yaml.safe_dump(about))
    return path


JOBSETS = Operator(JOBSET, "config/default", _jobset, "jobset-system", "jobset-webhook-service")
KUEUES = Operator(
    KUEUE,
    "config/default",
    _kueue,
    "kueue-system",
    "kueue-webhook-service",
    secret="kueue-webhook-server-cert",
    authority="kueue-ca",
)
TRAININGS = Operator(
    TRAINING,
    "manifests/base",
    _training,
    "kubeflow",
    "training-operator",
    secret="training-operator-webhook-cert",
    authority="training-operator-ca",
)
RAYS = Operator(KUBERAY, "config/default", _kuberay, "ray-system")


@contextmanager
def running(cluster: Cluster, operator: Operator) -> Iterator[Program]:
    """The operator, ready; once in a cluster's life. At the end it is stopped and its webhooks are gone."""
    # 1. Certificates, and the namespace where it keeps things.
    home = build(operator.product)
    directory = cluster.directory / operator.product.name
    directory.mkdir()
    host = cluster.network.address
    place = Place(directory, host, free_port(host), free_port())
    words = operator.words(place)
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": operator.namespace}})
    authority = _write_certificates(cluster, operator, place)
    # 2. The definitions as its own kustomization has them, except that webhooks are called by address.
    made = [_call_by_address(each, place, authority) for each in _definitions(cluster, home, operator)]
    for each in made:
        if each["kind"] == "CustomResourceDefinition":
            cluster.api.create(COLLECTIONS[each["kind"]], each)
    for each in made:
        if each["kind"] == "CustomResourceDefinition":
            cluster.api.until(f"{COLLECTIONS[each['kind']]}/{each['metadata']['name']}", has("Established"))
    webhooks = [each for each in made if each["kind"] != "CustomResourceDefinition"]
    for each in webhooks:
        cluster.api.create(COLLECTIONS[each["kind"]], each)
    # 3. The program.
    env = {"KUBECONFIG": str(cluster.kubeconfig), "POD_NAMESPACE": operator.namespace}
    program = cluster.run(operator.product.name, words, env)
    try:
        program.until_it_answers(f"http://127.0.0.1:{place.probe}/readyz")
        yield program
    finally:
        for each in webhooks:
            cluster.api.delete(f"{COLLECTIONS[each['kind']]}/{each['metadata']['name']}")
        program.stop()


def _definitions(cluster: Cluster, home: Path, operator: Operator) -> list[Object]:
    """What its kustomization says, kept beside its programs: some render for seconds."""
    kept = home / "definitions.json"
    if not kept.exists():
        text = cluster.kubectl("kustomize", str(home / operator.kustomization))
        wanted = [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each["kind"] in COLLECTIONS]
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(wanted))
        partial.rename(kept)
    definitions: list[Object] = json.loads(kept.read_text())
    return definitions


def _write_certificates(cluster: Cluster, operator: Operator, place: Place) -> Authority:
    authority = Authority(place.directory / "authority", operator.authority, rsa=True)
    name = f"{operator.service}.{operator.namespace}.svc"
    pair = authority.issue("server", name, addresses=[place.host, name])
    files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.certificate}
    place.certificates.mkdir()
    for target, source in files.items():
        shutil.copy(source, place.certificates / target)
    if operator.secret:
        files["ca.key"] = authority.pair.key
        data = {key: base64.b64encode(path.read_bytes()).decode() for key, path in files.items()}
        body = {"metadata": {"name": operator.secret}, "data": data}
        cluster.api.create(f"/api/v1/namespaces/{operator.namespace}/secrets", body)
    return authority


def _call_by_address(definition: Object, place: Place, authority: Authority) -> Object:
    """The definition with every webhook, for admission or conversion, called at the place's address."""
    bundle = base64.b64encode(authority.certificate.read_bytes()).decode()
    calls = list(definition.get("webhooks", []))
    if conversion := definition.get("spec", {}).get("conversion", {}).get("webhook"):
        calls.append(conversion)
    for call in calls:
        path = call["clientConfig"].get("service", {}).get("path", "/convert")
        call["clientConfig"] = {"url": f"https://{place.host}:{place.webhook}{path}", "caBundle": bundle}
    return definition
