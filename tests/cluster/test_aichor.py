"""The AIchor manifests of the examples in real containers: every pod finds the environment of the reference, exactly.

Only the numbers of cores are smaller than in the files, because the one real node is this machine.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from _pytest.mark.structures import ParameterSet

from tests.cluster.cluster import GPU, Cluster
from tests.cluster.images import python_image
from tests.cluster.node import NODE, Node
from tests.cluster.yards import ClusterYard, Object, cluster_yard
from tests.waiting import until
from tests.yards import ROOT, TemporaryYard

pytestmark = pytest.mark.usefixtures("jobset_operator")

EXAMPLES = ROOT / "examples" / "aichor"
IMAGE = "jobset-multi-jobs:1"
# Scenario, its groups as name -> (count, completions), at most so many pods of a replica at once, cores divided by.
SCENARIOS = [
    ("5-1-1", {"worker": (5, 1)}, 1, 20),
    ("10-1-1", {"worker": (10, 1)}, 1, 400),
    ("wkr-heavy-1-1-1", {"worker-heavy": (1, 1), "worker": (7, 1)}, 1, 400),
    ("10-10-10", {"worker": (10, 10)}, 10, 125),
    ("10-2-10", {"worker": (10, 10)}, 2, 125),
]
SHOWN_BY_OTHERS = ("5-1-1", "10-10-10", "10-2-10")
# The reference's own table: scenario, group, replica, completion -> what was seen there on the platform.
REFERENCE = {
    ("10-1-1", "worker", 2, 0): ("0", "2", "2", "10", "worker", "10"),
    ("wkr-heavy-1-1-1", "worker", 5, 0): ("0", "5", "5", "8", "worker", "7"),
    ("wkr-heavy-1-1-1", "worker-heavy", 0, 0): ("0", "0", "7", "8", "worker-heavy", "1"),
    ("10-10-10", "worker", 8, 5): ("5", "8", "8", "10", "worker", "10"),
}
NAMES = (
    *("JOB_COMPLETION_INDEX", "JOB_INDEX", "JOB_GLOBAL_INDEX"),
    *("GLOBAL_REPLICAS", "REPLICATED_JOB_NAME", "REPLICATED_JOB_REPLICAS"),
)
SAY = r"""echo "found $(env -0 | tr '\0\n' '\t ')";"""
JOBSETS = ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets")
PRODUCT = "Tesla-V100-SXM3-32GB"
Place = tuple[str, int, int]


@pytest.fixture(scope="module")
def shared(cluster: Cluster, worker: Node) -> Iterator[ClusterYard]:
    with tempfile.TemporaryDirectory() as directory:  # as examples/aichor/Dockerfile makes it
        archive = Path(directory) / "image.tar"
        python_image(archive, IMAGE, {"/opt/app/src": EXAMPLES / "src"})
        worker.import_images(archive)
    with cluster.namespace() as namespace, cluster_yard(cluster, namespace) as made:
        yield made


def _manifest(yard: TemporaryYard, scenario: str, divisor: int, directory: str) -> str:
    """The example's file with the image that there is, and a command that tells its environment first."""
    manifest = yaml.safe_load((EXAMPLES / f"manifest.{scenario}.yaml").read_text())
    manifest["builder"]["image"] = manifest["spec"]["image"] = IMAGE
    manifest["spec"]["command"] = f"cd {directory}; {SAY} exec {manifest['spec']['command']}"
    for group in manifest["spec"]["types"].values():
        group["resources"]["cpus"] /= divisor
    return yard.write(f"manifest.{scenario}.yaml", yaml.safe_dump(manifest, sort_keys=False))


def _environments(text: str) -> dict[Place, dict[str, str]]:
    """Of all tasks, by where they stand."""
    found = {}
    for line in re.findall(r"found (.*)", text):
        variables = dict(entry.split("=", 1) for entry in line.split("\t") if "=" in entry)
        place = variables["REPLICATED_JOB_NAME"], variables["JOB_INDEX"], variables["JOB_COMPLETION_INDEX"]
        assert place not in found
        found[place] = variables
    return {(group, int(replica), int(completion)): env for (group, replica, completion), env in found.items()}


def _expected(groups: dict[str, tuple[int, int]]) -> dict[Place, tuple[str, ...]]:
    """The reference's rule: counts of replicas, over the groups in order of their names."""
    total, before = str(sum(count for count, _ in groups.values())), 0
    found: dict[Place, tuple[str, ...]] = {}
    for name, (count, completions) in sorted(groups.items()):
        for replica in range(count):
            for completion in range(completions):
                row = (str(completion), str(replica), str(before + replica), total, name, str(count))
                found[(name, replica, completion)] = row
        before += count
    return found


def _scenario(name: str, groups: dict[str, tuple[int, int]], *more: int) -> ParameterSet:
    """What another scenario shows as well is left to `make test-all`."""
    return pytest.param(name, groups, *more, id=name, marks=[pytest.mark.long] if name in SHOWN_BY_OTHERS else [])


@pytest.mark.parametrize(("scenario", "groups", "at_once", "divisor"), [_scenario(*each) for each in SCENARIOS])
def test_every_pod_of_a_scenario_finds_what_the_reference_says(
    scenario: str, groups: dict[str, tuple[int, int]], at_once: int, divisor: int, yard: ClusterYard
) -> None:
    job = yard.submit("--on", "kubernetes", _manifest(yard, scenario, divisor, "/opt/app"))
    ended = yard.ended(job, 600)
    assert ended["state"] == "SUCCEEDED", ended
    # 1. The table, for every pod.
    text = yard.logs(job)
    found = _environments(text)
    rows = {place: tuple(env[name] for name in NAMES) for place, env in found.items()}
    assert rows == _expected(groups)
    for (named, *place), row in REFERENCE.items():
        assert named != scenario or rows[tuple(place)] == row  # type: ignore[index]
    for (group, replica, completion), env in found.items():
        label = f"{group}/{replica}.{completion}" if groups[group][1] > 1 else f"{group}/{replica}"
        assert (env["YARD_TASK"], env["YARD_GROUP"], env["YARD_NODE"]) == (label, group, NODE)
        assert (env["AICHOR_EXPERIMENT_ID"], env["AICHOR_OUTPUT_PATH"]) == (job, "/yard/output/")
        assert not {"RANK", "WORLD_SIZE", "SLURM_ARRAY_TASK_ID"} & env.keys()
    # 2. The work: all items, each once.
    ranges = re.findall(r"items (\d+) to (\d+)", text)
    covered = Counter(item for first, last in ranges for item in range(int(first), int(last) + 1))
    assert covered == Counter(range(1, 1001))
    # 3. The object: groups in order of their names, whatever their order in the file; a pod for each task.
    (jobset,) = yard.objects(job, *JOBSETS)
    replicated = jobset["spec"]["replicatedJobs"]
    assert [each["name"] for each in replicated] == sorted(groups)
    for each in replicated:
        count, completions = groups[each["name"]]
        inside = each["template"]["spec"]
        assert (each["replicas"], inside["completions"]) == (count, completions)
        assert inside["parallelism"] == min(at_once, completions)
    pods = {pod["metadata"]["name"] for pod in yard.pods(job)}
    assert {re.sub(r"^.*?-a1-|-[a-z0-9]{5}$", "", name) for name in pods} == {
        f"{group}-{replica}-{completion}" for group, replica, completion in found
    }
    assert {task["unit"] for task in yard.tasks(job)} == pods
    assert {task["attempt"] for task in yard.tasks(job)} == {1}


@pytest.mark.parametrize("scenario", ["wkr-heavy-1-1-1"])
def test_a_pod_finds_the_same_environment_as_a_task_on_a_machine(scenario: str, yard: ClusterYard) -> None:
    jobs = [
        yard.submit("--on", "kubernetes", _manifest(yard, scenario, 400, "/opt/app")),
        yard.submit(_manifest(yard, scenario, 400, str(EXAMPLES))),
    ]
    for job in jobs:
        assert yard.ended(job)["state"] == "SUCCEEDED"
    pods, processes = (_environments(yard.logs(job)) for job in jobs)
    assert pods.keys() == processes.keys()
    for place, found in pods.items():
        theirs = processes[place]
        names = {name for name in theirs if name.startswith(("YARD_", "AICHOR_", "JOB_", "REPLICATED_", "GLOBAL_"))}
        own = {name for name in names if name in theirs and theirs[name] == found.get(name)}
        assert (
            names - own
            == {
                *{"YARD_JOB_ID", "AICHOR_EXPERIMENT_ID"},  # another job
                *{
                    "YARD_NODE",
                    "YARD_OUTPUT_DIR",
                    "YARD_CHECKPOINT_DIR",
                    "YARD_ERROR_FILE",
                    "AICHOR_OUTPUT_PATH",
                },  # places
                *{"YARD_SPOOL", "YARD_STOP_FILE", "YARD_REPORT_ADDRESS"},  # of the agent; in pods of training alone
                "YARD_SLOT",  # pods have none
                *{"YARD_DIR", "YARD_IDLE_SECONDS", "YARD_START_SECONDS"},  # the submitting shell's
                *{"AICHOR_INPUT_PATH"},
            }
            & names
        )


def _special(**spec: Any) -> str:
    resources = {
        "cpus": 0.1,
        "cpuLimitRatio": 3,
        "memory": 0.2,
        "shmSizeGB": 0.064,
        "accelerators": {"gpu": {"count": 1, "type": "gpu", "product": PRODUCT}},
        "extraSelectors": {"kubernetes.io/os": "linux"},
        "extraTolerations": [
            {"key": "jobyard.test/taken", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
        ],
    }
    types = {"worker": {"count": 2, "resources": resources}}
    said = {"operator": "jobset", "image": IMAGE, "command": "df -k /dev/shm; echo $FLAVOUR", "types": types, **spec}
    manifest = {"kind": "AIchorManifest", "apiVersion": "0.2.3", "builder": {}, "spec": said}
    return yaml.safe_dump(manifest)


@pytest.fixture
def special_node(cluster: Cluster, yard: ClusterYard) -> Iterator[None]:
    """The real node has GPUs of a product, and only those may come who tolerate its taint."""
    path, label = f"/api/v1/nodes/{NODE}", "nvidia.com/gpu.product"
    cluster.set_gpus(2)
    taint = {"key": "jobyard.test/taken", "value": "yes", "effect": "NoSchedule"}
    cluster.api.patch(path, {"metadata": {"labels": {label: PRODUCT}}, "spec": {"taints": [taint]}})
    known = f"{label}={PRODUCT}"
    until(lambda: any(known in node["labels"] for node in yard.json("nodes")))
    yield
    cluster.api.patch(path, {"metadata": {"labels": {label: None}}, "spec": {"taints": None}})
    cluster.set_gpus(0)


def test_resources_shm_selectors_and_tolerations_reach_the_pods(yard: ClusterYard, special_node: None) -> None:
    file = yard.write("special.yaml", _special(timeout="6h", env={"FLAVOUR": "vanilla $(HOME)"}))
    job = yard.submit("--on", "kubernetes", file)
    ended = yard.ended(job)
    assert ended["state"] == "SUCCEEDED", ended
    text = yard.logs(job, "--task", "worker/1")
    assert "vanilla $(HOME)" in text
    shm = re.search(r"(\d+) .* /dev/shm$", text, re.MULTILINE)
    assert shm
    assert int(shm[1]) == 62 * 1024  # 64 MB, in whole MiB
    pods = yard.pods(job)
    assert len(pods) == 2
    for pod in pods:
        _assert_special(pod["spec"])
    (jobset,) = yard.objects(job, *JOBSETS)
    (group,) = jobset["spec"]["replicatedJobs"]
    assert group["template"]["spec"]["activeDeadlineSeconds"] == 6 * 3600


def _assert_special(pod: Object) -> None:
    (container,) = pod["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "100m", "memory": "191Mi", GPU: "1"},
        "limits": {"cpu": "300m", "memory": "191Mi", GPU: "1"},
    }
    assert pod["nodeSelector"]["nvidia.com/gpu.product"] == PRODUCT
    assert pod["nodeSelector"]["kubernetes.io/os"] == "linux"
    wanted = {"key": "jobyard.test/taken", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    assert wanted in pod["tolerations"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "62Mi"}} in pod["volumes"]


def test_an_experiment_that_takes_too_long_is_ended(yard: ClusterYard, special_node: None) -> None:
    file = yard.write("long.yaml", _special(timeout="4s", command="echo begun; sleep 1000"))
    job = yard.submit("--on", "kubernetes", file)
    ended = yard.ended(job)
    assert (ended["state"], ended["reason"]) == ("FAILED", "Timeout"), ended
