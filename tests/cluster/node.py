"""One real node: containerd and a kubelet, with directories, cgroups and a network of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import yaml

from tests.cluster.api import Api, Object, Refused
from tests.cluster.build import KUBERNETES
from tests.cluster.certificates import Authority
from tests.cluster.images import PAUSE, small_images
from tests.cluster.leftovers import clear_node, make_cgroups
from tests.cluster.network import Network
from tests.cluster.processes import GRACE_SECONDS, Program, free_port
from tests.packages import why_lacking
from tests.waiting import until

CNI_PLUGINS = Path("/usr/lib/cni")
NODE = "worker"
DOMAIN = "cluster.local"


def why_no_node() -> str:
    """Empty when this machine can run a kubelet; otherwise one sentence."""
    if os.getuid() != 0:
        return "A kubelet needs root."
    return why_lacking("cluster")


class Node:
    """Made by its Cluster. `stop` takes the containers with it."""

    def __init__(self, directory: Path, admin: Api, authority: Authority, network: Network) -> None:
        self.directory = directory
        self.admin = admin
        self.authority = authority
        self.network = network
        self.socket = directory / "containerd.sock"
        self.cgroup = directory.parent.name
        self.registries = directory / "registries"
        self.containerd: Program | None = None
        self.kubelet: Program | None = None
        directory.mkdir()

    def start(self) -> None:
        """Returns when the node is Ready."""
        # 1. The runtime, with the images of the tests.
        make_cgroups(self.cgroup)
        config = self.directory / "containerd.toml"
        config.write_text(self._containerd_config())
        self._write_cni()
        self.containerd = Program(["containerd", "--config", config], self.directory.parent / "containerd.log")
        self.containerd.until_ready(lambda: self._ctr("version").returncode == 0)
        archive = self.directory / "images.tar"
        small_images(archive)
        self.import_images(archive)
        # 2. The kubelet.
        port = free_port(self.network.address)
        kubeconfig = self.directory / "kubelet.kubeconfig"
        user = self.authority.issue("kubelet", f"system:node:{NODE}", groups=["system:nodes"])
        api = Api(self.admin.url, self.authority.certificate, user)
        kubeconfig.write_text(yaml.safe_dump(api.kubeconfig()))
        settings = self.directory / "kubelet.yaml"
        settings.write_text(yaml.safe_dump(self._kubelet_settings(port)))
        words: list[str | Path] = [
            KUBERNETES.program("kubelet"),
            f"--config={settings}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={self.directory / 'kubelet'}",
            f"--cert-dir={self.directory / 'pki'}",
            f"--hostname-override={NODE}",
            f"--node-ip={self.network.address}",
        ]
        self.kubelet = Program(words, self.directory.parent / "kubelet.log")
        self.kubelet.until_ready(lambda: any(is_ready(node) for node in self._registered()))

    def import_images(self, archive: Path) -> None:
        """Every image of an archive as `docker save` writes it; pods name them with `imagePullPolicy: Never`."""
        done = self._ctr("images", "import", "--no-unpack", str(archive))
        assert done.returncode == 0, done.stderr

    def push_image(self, name: str, to: str) -> None:
        """An image that was imported, into a registry that speaks no TLS."""
        for words in (("tag", "--force", name, to), ("push", "--plain-http", to)):
            done = self._ctr("images", *words)
            assert done.returncode == 0, done.stderr

    def know_registry(self, name: str, address: str) -> None:
        """Images of `name` are pulled from this address, without TLS. containerd looks at each pull."""
        place = self.registries / name
        place.mkdir(parents=True)
        (place / "hosts.toml").write_text(
            f'server = "http://{address}"\n[host."http://{address}"]\n  capabilities = ["pull", "resolve"]\n'
        )

    def stop(self) -> None:
        """Ends the containers through the kubelet when it still answers, and by force what is left."""
        if self.kubelet is not None:
            self._delete_pods()
            self.kubelet.stop()
        if self.containerd is not None:
            for task in self._ctr("tasks", "list", "--quiet").stdout.split():
                self._ctr("tasks", "delete", "--force", task)
            self.containerd.stop()
        clear_node(self.directory)

    # -- parts

    def _registered(self) -> list[Object]:
        return [node for node in self.admin.items("/api/v1/nodes") if node["metadata"]["name"] == NODE]

    def _delete_pods(self) -> None:
        here = {"fieldSelector": f"spec.nodeName={NODE}"}
        try:
            for pod in self.admin.items("/api/v1/pods", **here):
                about = pod["metadata"]
                path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
                if about.get("finalizers"):  # its controller is gone by now
                    self.admin.patch(path, {"metadata": {"finalizers": None}})
                self.admin.delete(path, gracePeriodSeconds=1)
            until(lambda: not self.admin.items("/api/v1/pods", **here), seconds=GRACE_SECONDS)
        except (AssertionError, OSError, Refused):
            pass  # no API server any more: the containers are ended by force

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *words]
        return subprocess.run(command, capture_output=True, text=True)

    def _containerd_config(self) -> str:
        cri = '[plugins."io.containerd.grpc.v1.cri"'
        return f"""\
version = 2
root = "{self.directory / "containerd"}"
state = "{self.directory / "run"}"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.directory / "opt"}"
{cri}]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  enable_selinux = false
{cri}.registry]
  config_path = "{self.registries}"
{cri}.cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{self.directory / "cni"}"
{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
{cri}.containerd.runtimes.runc.options]
  BinaryName = "{shutil.which("runc") or "/usr/sbin/runc"}"
  SystemdCgroup = false
"""

    def _write_cni(self) -> None:
        directory = self.directory / "cni"
        directory.mkdir()
        (directory / "10-test.conf").write_text(f"""\
{{"cniVersion": "0.4.0", "name": "test", "type": "bridge", "bridge": "{self.network.bridge}", "isGateway": true,
  "ipam": {{"type": "host-local", "subnet": "{self.network.subnet}", "dataDir": "{self.directory / "addresses"}"}}}}
""")

    def _kubelet_settings(self, port: int) -> Object:
        pair = self.authority.issue("kubelet-server", NODE, addresses=[self.network.address, NODE])
        names = self.directory / "resolv.conf"
        names.write_text("")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.network.address,
            "port": port,
            "healthzPort": 0,
            "tlsCertFile": str(pair.certificate),
            "tlsPrivateKeyFile": str(pair.key),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            # The machine's disk and memory belong to others too: nothing is evicted for what they use.
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(self.directory / "logs"),
            "volumePluginDir": str(self.directory / "volume-plugins"),
            "clusterDNS": [self.network.address],
            "clusterDomain": DOMAIN,
            "resolvConf": str(names),
            "maxPods": 200,
        }


def is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
