"""A whole Kubernetes as processes of ours: etcd, the control plane, KWOK for nodes by the thousand, and one real node.

`python -m tests.cluster.cluster` starts one, prints its kubeconfig and keeps it until Ctrl-C.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from tests.cluster.api import Api, Object, Refused
from tests.cluster.build import COREDNS, ETCD, KUBERNETES, KWOK, CannotBuild, build
from tests.cluster.certificates import Authority, Pair
from tests.cluster.leftovers import new_directory
from tests.cluster.network import LOOPBACK, Network, make_bridge
from tests.cluster.node import DOMAIN, NODE, Node, is_ready, why_no_node
from tests.cluster.processes import Program, free_port
from tests.packages import why_lacking

GPU = "nvidia.com/gpu"
FAKE = "kwok.x-k8s.io/node"
"""The annotation of a node that KWOK plays; also its taint, so that real pods keep away."""
# Sockets named so in the cluster's directory, where all its programs run and nobody else may look.
STORE, PEER = "unix://etcd:1", "unix://etcd:2"
SERVICES = "10.96.0.0/16"
QUICK = ["--kube-api-qps=500", "--kube-api-burst=1000"]  # the defaults (20, 50) would be what benchmarks measure
BUILDERS = 8
NEEDED = ("openssl", "util-linux")  # of the packages; the others are a real node's


class Cluster:
    """Started by `with`; what it started is ended at the end, whatever happened. Logs lie in `directory` until then."""

    def __init__(self, *, node: bool = True, kwok: bool = True) -> None:
        """Without `node` there is no kubelet; `without_node` says why there is none."""
        self.without_node = why_no_node() if node else "This cluster was asked for without a node."
        self.with_kwok = kwok
        self.programs: dict[str, Program] = {}
        self.node: Node | None = None
        self._ending = ExitStack()

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when pods can run. Raises CannotBuild or DidNotStart."""
        # 1. Programs, a directory, an address.
        if lacking := why_lacking("cluster", NEEDED):
            raise CannotBuild(lacking)
        for product in (
            KUBERNETES,
            ETCD,
            *([KWOK] if self.with_kwok else []),
            *([] if self.without_node else [COREDNS]),
        ):
            build(product)
        self.directory, lock = new_directory()
        self._ending.enter_context(lock)
        self._ending.callback(self._remove_directory)
        self.network: Network = LOOPBACK if self.without_node else make_bridge(self.directory.name)
        self._ending.callback(self.network.close)
        # 2. Who is who.
        self.authority = Authority(self.directory / "certificates")
        here = [self.network.address, "127.0.0.1", "localhost", "10.96.0.1", "kubernetes.default.svc"]
        self._server = self.authority.issue("server", "server", addresses=here)
        self._accounts = self.authority.issue("service-accounts", "service-accounts")
        self.url = f"https://{self.network.address}:{free_port(self.network.address)}"
        self.api = self.identity("admin", "admin", ["system:masters"])
        self.kubeconfig = self._write_kubeconfig("admin", self.api)
        # 3. The control plane.
        self.run("etcd", self._etcd_words())
        self.run("kube-apiserver", self._apiserver_words())
        self.wait_ready()
        self.run("kube-controller-manager", self._controller_words())
        self.run("kube-scheduler", self._scheduler_words())
        if self.with_kwok:
            address = f"127.0.0.1:{free_port()}"
            self.run("kwok", self._kwok_words(address)).until_it_answers(f"http://{address}/healthz")
        # 4. A node, when there can be one, and names for its pods. No pod can be made without its service account.
        if not self.without_node:
            address = f"127.0.0.1:{free_port()}"
            self.run("coredns", self._coredns_words(address)).until_it_answers(f"http://{address}/ready")
            self.node = Node(self.directory / "node", self.api, self.authority, self.network)
            self._ending.callback(self.node.stop)
            self.node.start()
        self.api.until("/api/v1/namespaces/default/serviceaccounts/default", bool)
        self._ending.callback(self._stop_controllers)  # first, or they make new pods while the node goes

    def stop(self) -> None:
        """Ends what was started, newest first. Repeatable."""
        self._ending.close()

    def run(self, name: str, words: Sequence[str | Path], env: dict[str, str] | None = None) -> Program:
        """A program of the cluster, as an operator is; it ends with the cluster, or earlier by its own `stop`."""
        program = Program(words, self.directory / f"{name}.log", env)
        self.programs[name] = program
        self._ending.callback(program.stop)
        return program

    def identity(self, name: str, user: str, groups: Sequence[str] = ()) -> Api:
        """The API as another user sees it."""
        api = Api(self.url, self.authority.certificate, self.authority.issue(name, user, groups=groups))
        self._ending.callback(api.close)
        return api

    def wait_ready(self) -> None:
        """Returns when the API server serves, for the first time or again."""
        self.programs["kube-apiserver"].until_ready(lambda: _ready(self.api))

    def kubectl(self, *words: str, input: str = "") -> str:
        """What kubectl prints as admin; its exit code must be 0."""
        command = [str(KUBERNETES.program("kubectl")), f"--kubeconfig={self.kubeconfig}", *words]
        env = {**os.environ, "HOME": str(self.directory)}  # its cache of the API is about this cluster
        done = subprocess.run(command, input=input, capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def set_gpus(self, count: int, node: str = NODE) -> None:
        """As a device plugin would. Returns when the scheduler can see them."""
        amount = {GPU: str(count)}
        self.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"capacity": amount, "allocatable": amount}})
        self.api.until(f"/api/v1/nodes/{node}", lambda seen: seen["status"]["allocatable"].get(GPU) == str(count))

    def add_fake_nodes(self, count: int, *, gpus: int = 8, prefix: str = "fake", taint: bool = True) -> list[str]:
        """Nodes that KWOK plays: pods on them start and end at once. Returns when all are Ready.

        Without `taint`, pods that know nothing of KWOK go there too.
        """
        nodes = [fake_node(f"{prefix}-{number:04}", gpus, prefix, taint) for number in range(count)]
        self.add_nodes(nodes, prefix)
        return [node["metadata"]["name"] for node in nodes]

    def add_nodes(self, nodes: list[Object], prefix: str) -> None:
        """Fake nodes with labels or amounts of their own: what is patched while they begin was seen to be lost."""
        with ThreadPoolExecutor(BUILDERS) as pool:
            list(pool.map(lambda node: self.api.create("/api/v1/nodes", node), nodes))
        self.api.until_all("/api/v1/nodes", is_ready, len(nodes), 180, labelSelector=f"jobyard.test/fake={prefix}")

    def remove_fake_nodes(self, prefix: str = "fake") -> None:
        self.api.raw("DELETE", "/api/v1/nodes", query={"labelSelector": f"jobyard.test/fake={prefix}"})

    @contextmanager
    def namespace(self) -> Iterator[str]:
        """A namespace for one test; everything in it is asked to go at the end."""
        made = self.api.create("/api/v1/namespaces", {"metadata": {"generateName": "test-"}})
        name: str = made["metadata"]["name"]
        self.api.until(f"/api/v1/namespaces/{name}/serviceaccounts/default", bool)
        try:
            yield name
        finally:
            self.api.delete(f"/api/v1/namespaces/{name}")

    # -- how each program is called

    def _etcd_words(self) -> list[str | Path]:
        return [
            ETCD.program("etcd"),
            "--unsafe-no-fsync",  # nothing here outlives the machine
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={STORE}",
            f"--advertise-client-urls={STORE}",
            f"--listen-peer-urls={PEER}",
            f"--initial-advertise-peer-urls={PEER}",
            f"--initial-cluster=default={PEER}",
        ]

    def _apiserver_words(self) -> list[str | Path]:
        kubelet = self.authority.issue("kubelet-client", "kube-apiserver", groups=["system:masters"])
        # Nobody can be told to come to a loopback address, so there no endpoint is published.
        alone = ["--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none"]
        return [
            KUBERNETES.program("kube-apiserver"),
            f"--bind-address={self.network.address}",
            f"--secure-port={self.api.port}",
            *([f"--advertise-address={self.network.address}"] if self.network.bridge else alone),
            f"--etcd-servers={STORE}",
            f"--client-ca-file={self.authority.certificate}",
            *_pair_words(self._server, "--tls-cert-file", "--tls-private-key-file"),
            f"--kubelet-certificate-authority={self.authority.certificate}",
            *_pair_words(kubelet, "--kubelet-client-certificate", "--kubelet-client-key"),
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._accounts.certificate}",
            f"--service-account-signing-key-file={self._accounts.key}",
            f"--service-cluster-ip-range={SERVICES}",
        ]

    def _controller_words(self) -> list[str | Path]:
        return [
            KUBERNETES.program("kube-controller-manager"),
            f"--kubeconfig={self._kubeconfig_of('kube-controller-manager')}",
            f"--service-account-private-key-file={self._accounts.key}",
            f"--root-ca-file={self.authority.certificate}",
            "--use-service-account-credentials",
            *self._serving_words(),
            *QUICK,
        ]

    def _scheduler_words(self) -> list[str | Path]:
        kubeconfig = self._kubeconfig_of("kube-scheduler")
        return [
            KUBERNETES.program("kube-scheduler"),
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            *self._serving_words(),
            *QUICK,
        ]

    def _kwok_words(self, address: str) -> list[str | Path]:
        stages = self.directory / "kwok.yaml"
        stages.write_text(self.kubectl("kustomize", str(KWOK.home / "kustomize/stage/fast")))
        return [
            KWOK.program("kwok"),
            f"--kubeconfig={self.kubeconfig}",
            f"--manage-nodes-with-annotation-selector={FAKE}=fake",
            f"--config={stages}",
            "--node-lease-duration-seconds=200",
            f"--server-address={address}",
        ]

    def _coredns_words(self, address: str) -> list[str | Path]:
        path = self.directory / "Corefile"
        path.write_text(f"""\
.:53 {{
    bind {self.network.address}
    kubernetes {DOMAIN} {{
        kubeconfig {self.kubeconfig}
        ttl 1
    }}
    ready {address}
    errors
}}
""")
        return [COREDNS.program("coredns"), f"-conf={path}"]

    def _serving_words(self) -> list[str]:
        words = ["--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={free_port()}"]
        return words + _pair_words(self._server, "--tls-cert-file", "--tls-private-key-file")

    # -- parts

    def kubeconfig_of(self, user: str) -> Path:
        """For programs that are to be this user; what the user may do is for the caller to say."""
        return self._write_kubeconfig(user, self.identity(user, user))

    def _kubeconfig_of(self, component: str) -> Path:
        return self._write_kubeconfig(component, self.identity(component, f"system:{component}"))

    def _write_kubeconfig(self, name: str, api: Api) -> Path:
        path = self.directory / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(api.kubeconfig()))
        return path

    def _stop_controllers(self) -> None:
        for name, program in self.programs.items():
            if name not in ("etcd", "kube-apiserver"):
                program.signal(signal.SIGTERM)
        for name, program in self.programs.items():
            if name not in ("etcd", "kube-apiserver"):
                program.stop()

    def _remove_directory(self) -> None:
        if kept := os.environ.get("JOBYARD_ARTEFACTS"):
            logs = Path(kept) / self.directory.name
            logs.mkdir(parents=True)
            for log in self.directory.glob("*.log"):
                shutil.copy(log, logs)
        shutil.rmtree(self.directory, ignore_errors=True)


def fake_node(name: str, gpus: int, group: str, taint: bool = True) -> Object:
    """A node object that KWOK takes for its own; with `taint`, only pods that say so come."""
    amount = {"cpu": "64", "memory": "512Gi", "pods": "256", GPU: str(gpus)}
    labels = {"kubernetes.io/hostname": name, "type": "kwok", "jobyard.test/fake": group}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {FAKE: "fake"}, "labels": labels},
        "spec": {"taints": [{"key": FAKE, "value": "fake", "effect": "NoSchedule"}] if taint else []},
        "status": {"capacity": amount, "allocatable": amount},
    }


def _ready(api: Api) -> bool:
    try:
        return api.raw("GET", "/readyz") == b"ok"
    except (OSError, Refused):
        return False


def _pair_words(pair: Pair, certificate: str, key: str) -> list[str]:
    return [f"{certificate}={pair.certificate}", f"{key}={pair.key}"]


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Cluster() as cluster:
            print(f"export KUBECONFIG={cluster.kubeconfig}")
            print(cluster.without_node or f"The node is {NODE}; logs are in {cluster.directory}.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except CannotBuild as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
