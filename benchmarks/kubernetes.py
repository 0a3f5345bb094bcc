"""How many Jobs per second go through a cluster of 1,000 nodes x 8 GPUs? The yard against plain `kubectl create`.

The cluster is that of the tests: a real control plane, and KWOK, which plays the nodes; a pod there starts and ends at
once. Both contestants make the same Jobs: the yard's as its scheduler lets them in, kubectl's all at once. The
clock runs from the first submit until the last Job is done and its maker knows it. Rounds alternate who begins.
What the yard asked of the API server is counted by the API server, through a flow schema of the yard's own.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import yaml

import record
from temporary_yard import Yard, temporary_yard

sys.path.insert(0, str(record.REPOSITORY))
from tests.cluster.build import KUBERNETES, CannotBuild
from tests.cluster.cluster import Cluster
from tests.cluster.images import SMALL

from jobyard.client.address import Address
from jobyard.client.api import YardClient
from jobyard.manifests.command import spec_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import JobSpec, State
from jobyard.settings import ClientKnobs, socket_path

BARS = {"kubectl": 0.8, "API calls per job": 1.0}
CALLS_PER_JOB = 6.0
NAMESPACE = "bench"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
POLL_SECONDS = 0.1
SUBMITTERS = 8  # a submit waits for the API server's word on the Job and for the disk, and the server does both at once
TICKS = os.sysconf("SC_CLK_TCK")

Object = dict[str, Any]


def main() -> None:
    options = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the cluster and the yard are put away then too
    try:
        with Cluster(node=False) as cluster, a_yard_with(cluster, options) as contestant:
            figures = measure(cluster, contestant, options)
    except CannotBuild as error:
        sys.exit(str(error))
    middle = {name: median(each) for name, each in figures.items()}
    ratios = {"kubectl": middle["yard"] / middle["kubectl"]}
    ratios["API calls per job"] = CALLS_PER_JOB / middle["API calls per job"]
    if options.json:
        size = {"jobs": options.jobs, "nodes": options.nodes, "bar_calls": CALLS_PER_JOB}
        print(record.line("kubernetes", ratios=ratios, bars=BARS, figures=figures, **size))
    else:
        for name, each in middle.items():
            against = f"   {ratios[name]:.2f} (bar {BARS[name]})" if name in ratios else ""
            print(f"{name:<24} {each:9.2f}{against}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000, help="Jobs in a round (default: 2000)")
    parser.add_argument("--nodes", type=int, default=1000, help="nodes with 8 GPUs each (default: 1000)")
    parser.add_argument("--gpus", type=int, default=4, help="GPUs of each Job (default: 4, so that all just fit)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of both (default: 2)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    return parser.parse_args()


def measure(cluster: Cluster, contestant: Contestant, options: argparse.Namespace) -> dict[str, list[float]]:
    plain = Kubectl(cluster, contestant.rendered(), options.jobs)
    figures: dict[str, list[float]] = {"kubectl": [], "yard": []}

    def the_yard() -> None:
        calls, cpu = contestant.calls(), contestant.cpu_seconds()
        rate = options.jobs / contestant.seconds(options.jobs)
        note("yard", rate)
        note("API calls per job", (contestant.calls() - calls) / options.jobs)
        note("server CPU ms per job", 1000 * (contestant.cpu_seconds() - cpu) / options.jobs)
        note("server MiB at most", contestant.peak_mib())

    def kubectl() -> None:
        note("kubectl", options.jobs / plain.seconds())

    def note(name: str, figure: float) -> None:
        figures.setdefault(name, []).append(round(figure, 2))
        print(f"round {number + 1}: {name} {figure:.2f}", file=sys.stderr, flush=True)

    for number in range(options.rounds):
        order: list[Callable[[], None]] = [kubectl, the_yard]
        for run in order if number % 2 == 0 else reversed(order):
            run()
            clear(cluster)
    return figures


class Contestant:
    """The yard, with a server that is up and has seen all nodes."""

    def __init__(self, cluster: Cluster, yard: Yard, gpus: int) -> None:
        self._cluster = cluster
        self._yard = yard
        self._gpus = gpus
        self._client = YardClient(Address(socket=str(socket_path(Path(yard.env["YARD_DIR"])))), ClientKnobs())
        self._pid = self._client.server().pid

    def seconds(self, jobs: int) -> float:
        """From the first submit until the server knows that the last has ended."""
        begin = time.monotonic()
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            made = list(pool.map(lambda n: self._client.submit(self._spec(f"bench-{n}")).id, range(jobs)))
        print(f"submitted after {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
        while self._client.server().jobs_active:
            time.sleep(POLL_SECONDS)
        spent = time.monotonic() - begin
        bad = [job for job in made[:: max(1, jobs // 100)] if self._client.job(job).state is not State.SUCCEEDED]
        assert not bad, f"jobs did not succeed: {self._client.job(bad[0])}"
        return spent

    def rendered(self) -> Object:
        """The Job as the yard would make it."""
        text = self._client.plan(self._spec("bench"), render=True).rendered
        (job,) = [each for each in yaml.safe_load_all(text) if each["kind"] == "Job"]
        found: Object = job
        return found

    def calls(self) -> int:
        """What the API server has answered to the yard's user, watches included."""
        pattern = r'apiserver_flowcontrol_dispatched_requests_total\{flow_schema="yard",.*\} (\S+)'
        metrics = self._cluster.api.raw("GET", "/metrics").decode()
        return sum(int(float(number)) for number in re.findall(pattern, metrics))

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def peak_mib(self) -> float:
        status = Path(f"/proc/{self._pid}/status").read_text()
        (kib,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
        return int(kib) / 1024

    def _spec(self, name: str) -> JobSpec:
        asked = Overrides(name=name, on="kubernetes", image=SMALL, gpus=self._gpus)
        return spec_from_command(["true"], asked, SubmitContext(str(self._yard.directory), user="benchmark"))


class Kubectl:
    """One `kubectl create` of all Jobs, not suspended, as another user with the same rights."""

    def __init__(self, cluster: Cluster, job: Object, jobs: int) -> None:
        self._cluster = cluster
        self._file = cluster.directory / "jobs.yaml"
        program, identity = KUBERNETES.program("kubectl"), cluster.kubeconfig_of("kubectl")
        self._command = [str(program), f"--kubeconfig={identity}", f"--namespace={NAMESPACE}", "create", "-f"]
        job["spec"]["suspend"] = False
        documents = [{**job, "metadata": {**job["metadata"], "name": f"plain-{number}"}} for number in range(jobs)]
        self._file.write_text(yaml.dump_all(documents, Dumper=yaml.CSafeDumper))

    def seconds(self) -> float:
        begin = time.monotonic()
        env = {**os.environ, "HOME": str(self._cluster.directory)}
        subprocess.run([*self._command, str(self._file)], check=True, env=env, stdout=subprocess.DEVNULL)
        print(f"created after {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
        # Cheap to ask: nobody reads two thousand Jobs to know that the last is done.
        while self._cluster.api.items(JOBS, fieldSelector="status.successful!=1", limit="1"):
            time.sleep(POLL_SECONDS)
        return time.monotonic() - begin


@contextmanager
def a_yard_with(cluster: Cluster, options: argparse.Namespace) -> Iterator[Contestant]:
    """Both users may do what deploy/ lets a yard do; the yard has added the cluster and its nodes are there."""
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    cluster.api.until(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default", bool)
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(permissions()))
    for user in ("yard", "kubectl"):
        cluster.api.create(FLOWS, flow_schema(user))
    cluster.add_fake_nodes(options.nodes, taint=False)
    with temporary_yard() as yard:
        identity = cluster.kubeconfig_of("yard")
        yard.run("clusters", "add", "--kubeconfig", str(identity), "--namespace", NAMESPACE)
        yield Contestant(cluster, yard, options.gpus)


def permissions() -> Iterator[Object]:
    """Those of deploy/, for our two users in place of the service account."""
    text = (record.REPOSITORY / "deploy/base/permissions.yaml").read_text()
    for each in yaml.safe_load_all(text):
        if each["kind"].startswith("Role"):
            each["metadata"]["namespace"] = NAMESPACE
        if "subjects" in each:
            users = ("yard", "kubectl")
            each["subjects"] = [
                {"kind": "User", "name": name, "apiGroup": each["roleRef"]["apiGroup"]} for name in users
            ]
        if each["kind"] != "ServiceAccount":
            yield each


def flow_schema(user: str) -> Object:
    """Puts a user's requests into a class of their own, which the API server counts; of the same rank for both."""
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    rule = {
        "subjects": [{"kind": "User", "user": {"name": user}}],
        "resourceRules": [everything],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    level = {"priorityLevelConfiguration": {"name": "workload-high"}, "matchingPrecedence": 100}
    return {"metadata": {"name": user}, "spec": {**level, "rules": [rule]}}


def clear(cluster: Cluster) -> None:
    """No Job and no pod of a round is left for the next."""
    cluster.api.raw("DELETE", JOBS, {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"})
    for path in (JOBS, f"/api/v1/namespaces/{NAMESPACE}/pods"):
        while cluster.api.items(path, limit="1"):
            time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
