"""From a git tree to a pinned digest on the cluster: kaniko builds in a pod, and the job runs what it pushed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.build import CannotBuild
from tests.cluster.builds import PULLED, BuildPlace, build_place
from tests.cluster.cluster import Cluster
from tests.cluster.images import SMALL
from tests.cluster.node import Node
from tests.cluster.processes import Program
from tests.cluster.rays import IMAGE as RAY
from tests.cluster.rays import import_ray_stand_in
from tests.cluster.yards import ClusterYard, Object, cluster_yard
from tests.images.trees import DOCKERFILE, Tree
from tests.packages import why_lacking
from tests.waiting import until
from tests.yards import Done

BUILD = ("--build", "--builder", "kaniko")
SECONDS = 300.0
RAYJOBS = ("/apis/ray.io/v1", "rayjobs")


@pytest.fixture(scope="module")
def place(cluster: Cluster, worker: Node) -> Iterator[BuildPlace]:
    if lacking := why_lacking("images", ("docker-registry", "git")):
        pytest.skip(lacking)
    try:
        with build_place(cluster) as place:
            yield place
    except CannotBuild as error:
        pytest.skip(f"there is no kaniko: {error}")


@pytest.fixture(scope="module")
def shared(cluster: Cluster, place: BuildPlace) -> Iterator[ClusterYard]:
    with cluster.namespace() as namespace, cluster_yard(cluster, namespace, **place.env) as made:
        yield made


@pytest.fixture(scope="module")
def built(shared: ClusterYard, place: BuildPlace) -> tuple[Tree, Done]:
    """A clean tree, built once and run."""
    tree = place.tree("clean")
    words = ("--name-prefix", "exp", "--", "/bin/busybox", "cat", "/built.txt")
    return tree, shared.run("submit", *BUILD, *words, cwd=tree.path, seconds=SECONDS)


def build_pods(yard: ClusterYard) -> list[Object]:
    return yard.cluster.api.items(yard.path("/api/v1", "pods"), labelSelector="app.kubernetes.io/name=yard-build")


def digest_of(yard: ClusterYard, job: str = "last") -> str:
    image: str = yard.job(job)["image"]
    return image.partition("@")[2]


def test_a_dirty_tree_is_refused_before_anything_is_made(yard: ClusterYard, place: BuildPlace) -> None:
    tree = place.tree("dirty")
    tree.write("new.txt", "git does not know it")
    done = yard.run("submit", *BUILD, "--", "true", cwd=tree.path)
    assert done.code == 2
    assert "the tree has changes that no commit has" in done.err
    assert len(done.err.splitlines()) == 1
    assert build_pods(yard) == []


def test_a_commit_that_is_not_pushed_is_refused(yard: ClusterYard, place: BuildPlace) -> None:
    tree = place.tree("unpushed")
    tree.write("greeting.txt", "two\n")
    tree.commit()
    done = yard.run("submit", *BUILD, "--", "true", cwd=tree.path)
    assert done.code == 2
    assert "is not pushed to git://" in done.err


def test_what_no_node_could_hold_is_refused_before_anything_is_built(yard: ClusterYard, place: BuildPlace) -> None:
    tree = place.tree("too-large")
    done = yard.run("submit", *BUILD, "--gpus", "64", "--", "true", cwd=tree.path)
    assert done.code == 2
    assert "64 GPUs" in done.err
    assert "builds it in namespace" not in done.err
    assert build_pods(yard) == []


def test_a_clean_tree_is_built_in_a_pod_and_run_by_digest_as_a_job(yard: ClusterYard, built: tuple[Tree, Done]) -> None:
    tree, done = built
    assert done.code == 0, done.err
    assert done.out == f"hello from {tree.head}\n"
    assert "Pushing image to" in done.err  # kaniko's own log
    view = yard.job("exp-busybox")
    name, _, digest = view["image"].partition("@")
    assert name == f"{PULLED}/team/my_app"  # not the address that it was pushed to
    assert digest.startswith("sha256:")
    (job,) = yard.objects(view["id"])
    assert job["metadata"]["name"].startswith("exp-busybox-")
    (pod,) = yard.pods(view["id"])
    assert pod["spec"]["containers"][0]["image"] == view["image"]
    assert pod["status"]["containerStatuses"][0]["imageID"].endswith(digest)
    for made in (job, pod):
        told = made["metadata"]["annotations"]
        assert told["jobyard.dev/commit"] == tree.head
        assert told["jobyard.dev/image-digest"] == digest
        assert "@" in told["jobyard.dev/submitted-by"]
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "0"}}
    assert build_pods(yard) == []


def test_the_image_of_a_commit_is_built_once(yard: ClusterYard, built: tuple[Tree, Done]) -> None:
    tree, _ = built
    known = digest_of(yard, "exp-busybox")
    done = yard.run("submit", *BUILD, "--", "/bin/busybox", "sh", "-c", "exit 3", cwd=tree.path, seconds=SECONDS)
    assert "is used again" in done.err
    assert digest_of(yard) == known
    assert done.code == 1  # the job's result, and not the build's


def test_a_build_that_fails_shows_its_last_lines_and_leaves_nothing(yard: ClusterYard, place: BuildPlace) -> None:
    tree = place.tree("broken")
    tree.add_dockerfile(DOCKERFILE.replace("cat /built.txt", "cat /nowhere"))
    tree.commit()
    tree.push()
    done = yard.run("build", "-q", "--builder", "kaniko", cwd=tree.path, seconds=SECONDS)
    assert (done.code, done.out) == (1, "")
    assert "/nowhere" in done.err
    assert done.err.splitlines()[-1].startswith("yard: the image was not built")
    assert build_pods(yard) == []


@pytest.mark.long
def test_a_registry_that_does_not_answer_is_told_before_anything_is_built(
    yard: ClusterYard, built: tuple[Tree, Done]
) -> None:
    tree, _ = built
    host = yard.cluster.network.address
    words = ("build", "-q", "--builder", "kaniko", "--registry", f"http://{host}:1/team")
    done = yard.run(*words, cwd=tree.path, seconds=SECONDS)
    assert done.code == 1
    assert f"nothing was built, for the registry {host}:1 does not take" in done.err.splitlines()[-1]
    assert "connection refused" in done.err.splitlines()[-1]
    assert build_pods(yard) == []


@pytest.mark.long
def test_ctrl_c_during_a_build_removes_its_pod(yard: ClusterYard, place: BuildPlace) -> None:
    tree = place.tree("endless")
    tree.add_dockerfile(DOCKERFILE.replace("cat /built.txt", "sleep 1000"))
    tree.commit()
    tree.push()
    with yard.start("build", "--builder", "kaniko", cwd=tree.path) as building:
        until(lambda: [pod for pod in build_pods(yard) if pod["status"].get("containerStatuses")])
        building.send_signal(signal.SIGINT)
        try:
            assert building.wait(60) == 130
        finally:
            building.kill()
    assert build_pods(yard) == []


@pytest.mark.long
def test_a_commit_that_the_remote_does_not_have_is_told_in_gits_words(yard: ClusterYard, place: BuildPlace) -> None:
    tree = place.tree("allowed")
    tree.write("greeting.txt", "two\n")
    commit = tree.commit()
    done = yard.run("build", "--builder", "kaniko", "--allow-unpushed", cwd=tree.path, seconds=SECONDS)
    assert done.code == 1
    assert f"could not fetch commit {commit[:12]}" in done.err.splitlines()[-1]
    assert build_pods(yard) == []


@pytest.mark.long
def test_an_image_that_the_node_cannot_pull_ends_the_job_with_a_sentence(
    yard: ClusterYard, built: tuple[Tree, Done]
) -> None:
    tree, _ = built
    words = ("--pull-registry", "nowhere.yard.test/team", "--", "/bin/busybox", "true")
    done = yard.run("submit", *BUILD, *words, cwd=tree.path, seconds=SECONDS)
    assert done.code == 1
    assert "given up" in done.err
    assert "nowhere.yard.test" in done.err
    job = yard.job()["id"]
    until(lambda: not yard.objects(job) and not yard.pods(job))


# -- secrets


def test_a_secret_is_a_file_in_the_pod_and_is_seen_nowhere_else(
    yard: ClusterYard, built: tuple[Tree, Done], tmp_path: Path
) -> None:
    tree, _ = built
    content = "only-for-the-pod-4711"
    file = tmp_path / "token"
    file.write_text(content)
    script = 'x=$(/bin/busybox cat /etc/app/token); [ "$x" = only-for-the-pod"-"4711 ] && echo found it'
    words = ("--mount-secret", f"{file}=/etc/app/token", "--", "/bin/busybox", "sh", "-c", script)
    done = yard.run("submit", *BUILD, *words, cwd=tree.path, seconds=SECONDS)
    assert (done.code, done.out) == (0, "found it\n"), done.err
    job = yard.job()["id"]
    (made,) = yard.objects(job)
    (name,) = [each["secret"]["secretName"] for each in made["spec"]["template"]["spec"]["volumes"] if "secret" in each]
    secrets = yard.path("/api/v1", "secrets")
    until(lambda: yard.owners_of_secret(name) == [made["metadata"]["name"]])
    # 1. The cluster, but for the Secret itself.
    events = yard.cluster.api.items(yard.path("/api/v1", "events"))
    assert content not in json.dumps([made, yard.pods(job), events])
    # 2. The yard: what it shows, what it keeps, what it writes.
    assert content not in yard.ok("show", job, "-o", "json").out + done.err + yard.server_log()
    kept = [path for path in yard.directory.rglob("*") if path.is_file()]
    assert [path for path in kept if content.encode() in path.read_bytes()] == []
    assert any(is_database(path) for path in kept)
    # 3. It goes with the job's object.
    yard.cluster.kubectl("delete", "job", made["metadata"]["name"], f"--namespace={yard.namespace}")
    until(lambda: name not in {each["metadata"]["name"] for each in yard.cluster.api.items(secrets)})


def is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


@pytest.mark.long
def test_a_secret_that_no_job_was_made_for_is_removed_again(
    yard: ClusterYard, built: tuple[Tree, Done], tmp_path: Path
) -> None:
    tree, _ = built
    file = tmp_path / "token"
    file.write_text("x")
    before = yard.cluster.api.items(yard.path("/api/v1", "secrets"))
    words = ("--mount-secret", f"{file}=/etc/app/token", "--gpus", "64", "--", "/bin/busybox", "true")
    done = yard.run("submit", *BUILD, *words, cwd=tree.path, seconds=SECONDS)
    assert done.code == 2
    assert "64 GPUs" in done.err
    assert len(yard.cluster.api.items(yard.path("/api/v1", "secrets"))) == len(before)


@pytest.mark.long
def test_a_job_that_is_cancelled_while_it_waits_leaves_no_secret(
    yard: ClusterYard, built: tuple[Tree, Done], tmp_path: Path
) -> None:
    tree, _ = built
    file = tmp_path / "token"
    file.write_text("x")
    secrets = yard.path("/api/v1", "secrets")
    before = len(yard.cluster.api.items(secrets))
    yard.set_gpus(1)
    try:
        holder = yard.submit("--on", "kubernetes", "--image", SMALL, "-c", "0.1", "--gpus", "1", "--", "sleep", "1000")
        yard.wait_state(holder, "RUNNING")
        words = ("--gpus", "1", "--mount-secret", f"{file}=/etc/app/token", "--", "/bin/busybox", "true")
        with yard.start("submit", *BUILD, *words, cwd=tree.path) as following:
            try:
                until(lambda: yard.job()["id"] != holder and yard.job()["state"] == "PENDING")
                assert len(yard.cluster.api.items(secrets)) == before + 1
                following.send_signal(signal.SIGINT)
                assert following.wait(60) == 130
            finally:
                following.kill()
        assert len(yard.cluster.api.items(secrets)) == before
    finally:
        yard.settle()
        yard.set_gpus(0)


# -- GPUs and Ray


def test_gpus_with_too_little_memory_are_refused(yard: ClusterYard, built: tuple[Tree, Done]) -> None:
    tree, _ = built
    words = ("--gpus", "1", "--min-gpu-mem", "40", "--", "/bin/busybox", "true")
    done = yard.run("submit", *BUILD, *words, cwd=tree.path, seconds=SECONDS)
    assert done.code == 2
    assert "nvidia.com/gpu.memory>=40960" in done.err
    rendered = yard.run("submit", "--build", "--render", *words, cwd=tree.path)
    assert (rendered.code, rendered.out) == (2, "")
    assert "nvidia.com/gpu.memory>=40960" in rendered.err


@pytest.mark.long
def test_two_workers_are_a_rayjob_and_all_their_output_is_followed_with_prefixes(
    yard: ClusterYard, place: BuildPlace, ray_operator: Program
) -> None:
    assert yard.cluster.node is not None
    import_ray_stand_in(yard.cluster)
    yard.cluster.node.push_image(RAY, f"{place.registry}/base/ray:1")
    tree = place.tree("ray")
    tree.add_dockerfile(f"FROM {place.registry}/base/ray:1\nCOPY greeting.txt /greeting.txt\n")
    commit = tree.commit()
    tree.push()
    words = ("--workers", "2", "--", "sh", "-c", "cat /greeting.txt; echo from $YARD_JOB_NAME")
    done = yard.run("submit", *BUILD, *words, cwd=tree.path, seconds=600.0)
    assert done.code == 0, done.err
    assert "head/0| one\n" in done.out
    assert "head/0| from cat\n" in done.out, "a job is named after what its shell runs"
    assert "worker/1| " in done.out
    view = yard.job()
    (made,) = yard.objects(view["id"], *RAYJOBS)
    assert made["metadata"]["annotations"]["jobyard.dev/commit"] == commit
    rays = made["spec"]["rayClusterSpec"]
    for group in (rays["headGroupSpec"], *rays["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert container["image"] == view["image"]
        assert container["resources"]["requests"]["cpu"] == "0"
    assert rays["workerGroupSpecs"][0]["replicas"] == 2
    assert rays["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    pods = {pod["metadata"]["name"]: pod for pod in yard.pods(view["id"])}
    for task in yard.tasks(view["id"]):
        assert pods[task["unit"]]["spec"]["containers"][0]["image"].endswith(digest_of(yard))
