"""A build in a pod: what the pod is, and every way in which it can end. A real one is built in tests/cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobyard.errors import BuildFailed, Unavailable, UserError
from jobyard.images.kaniko import (
    BUILD,
    FETCH,
    FETCH_SCRIPT,
    NO_NODE_SECONDS,
    POLL_SECONDS,
    SOURCE,
    KanikoBuilder,
    kaniko_words,
    pod_for,
)
from jobyard.images.names import ImageName, Registry
from jobyard.images.protocol import BuildPlan
from jobyard.model.source import GitState

DIGEST = f"sha256:{'0a' * 32}"
GIT = GitState("3f" * 20, "main", "https://git.lab/x.git", is_pushed=True)
PLAN = BuildPlan(
    Path("/src/app"),
    Path("/src/app/Dockerfile"),
    ImageName(Registry("registry:5000", "team"), "app", "tag"),
    ImageName(Registry("outside.lab", "team"), "app", "tag"),
    GIT,
)
RUNNING: dict[str, Any] = {"running": {}}


def ended(code: int, message: str = "", reason: str = "") -> dict[str, Any]:
    return {
        "terminated": {"exitCode": code, "message": message, "reason": reason or ("Error" if code else "Completed")}
    }


class PlayedCluster:
    """A cluster that says what it was told to, one status after the other; the last one stays."""

    namespace = "lab"

    def __init__(
        self, statuses: Sequence[dict[str, Any] | None], logs: dict[str, list[list[str]]] | None = None
    ) -> None:
        self._statuses = list(statuses)
        self._logs = logs or {}
        self.made: dict[str, Any] = {}
        self.removed: list[str] = []

    def create_pod(self, pod: dict[str, Any]) -> None:
        self.made = pod

    def pod(self, name: str) -> dict[str, Any] | None:
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        return None if status is None else {"status": status}

    def remove_pod(self, name: str) -> None:
        self.removed.append(name)

    def log(self, pod: str, container: str) -> Iterator[str]:
        yield from (self._logs.get(container) or [[]])[0]
        if len(self._logs.get(container) or ()) > 1:
            self._logs[container].pop(0)


def status(fetch: dict[str, Any], build: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    builds = {"containerStatuses": [{"name": BUILD, "state": build}]} if build else {}
    return {"initContainerStatuses": [{"name": FETCH, "state": fetch}], **builds, **more}


def build(cluster: PlayedCluster, said: list[str] | None = None, plan: BuildPlan = PLAN) -> str:
    builder = KanikoBuilder(cluster, sleep=lambda seconds: None)
    return builder.build(plan, (said if said is not None else []).append).pinned


def test_the_digest_is_the_last_message_and_the_name_is_for_who_pulls() -> None:
    cluster = PlayedCluster([status(ended(0), ended(0, DIGEST))], {BUILD: [["INFO one", "INFO two"]]})
    said: list[str] = []
    assert build(cluster, said) == f"outside.lab/team/app@{DIGEST}"
    assert said[1:] == ["INFO one", "INFO two"]
    assert cluster.removed == [cluster.made["metadata"]["name"]]


def test_a_log_that_is_cut_goes_on_where_it_was() -> None:
    statuses = [status(ended(0)), status(ended(0)), status(ended(0), RUNNING), status(ended(0), RUNNING)]
    cluster = PlayedCluster([*statuses, status(ended(0), ended(0, DIGEST))], {BUILD: [["a", "b"], ["a", "b", "c"]]})
    said: list[str] = []
    build(cluster, said)
    assert said[1:] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("statuses", "logs", "sentence"),
    [
        (
            [status(ended(128))],
            {FETCH: [["fatal: remote error: upload-pack: not our ref 3f3f"]]},
            "could not fetch commit 3f3f3f3f3f3f from https://git.lab/x.git: fatal: remote error",
        ),
        (
            [status(ended(0), ended(1))],
            {BUILD: [["INFO RUN make", "error building image: exit status 2"]]},
            "the image was not built: error building image: exit status 2",
        ),
        (
            [status(ended(0), ended(1))],
            {BUILD: [["error checking push permissions -- check credentials: UNAUTHORIZED: authentication required"]]},
            "nothing was built, for the registry registry:5000 does not take registry:5000/team/app: error checking",
        ),
        (
            [status(ended(0), ended(1))],
            {BUILD: [["INFO Pushing image", "error pushing image: failed to push: unexpected EOF"]]},
            "the image is built and was not pushed to registry:5000",
        ),
        ([status(ended(0), ended(0, ""))], {}, "does not say its digest"),
        (
            [status(ended(137, reason="OOMKilled"), phase="Failed")],
            {FETCH: [["Receiving objects: 12%"]]},
            "could not fetch commit 3f3f3f3f3f3f from https://git.lab/x.git: OOMKilled",
        ),
        (
            [status(ended(0), ended(137, reason="OOMKilled"), phase="Failed")],
            {BUILD: [["INFO error pushing: a line that is not the reason"]]},
            "the image was not built, for pod yard-build-",
        ),
        ([status(ended(0), ended(137, reason="OOMKilled"), phase="Failed")], {}, "was ended: OOMKilled"),
        (
            [status(ended(0), ended(128, "exec: /kaniko/executor: no such file", "StartError"), phase="Failed")],
            {},
            "was ended: StartError: exec: /kaniko/executor: no such file",
        ),
        (
            [
                *[status(ended(0), ended(137))] * 6,
                status(ended(0), ended(137), phase="Failed", reason="Evicted", message="the node was low on memory"),
            ],
            {BUILD: [["INFO Taking snapshot of full filesystem..."]]},
            "was ended: Evicted: the node was low on memory",
        ),
        (
            [status({"waiting": {"reason": "ImagePullBackOff", "message": "cannot pull kaniko"}})],
            {},
            "cannot begin: cannot pull kaniko",
        ),
        ([status(ended(0), ended(143))] * 5 + [None], {}, "was ended: somebody removed it"),
        ([status({}, phase="Failed", reason="Evicted", message="the node was low on disk")], {}, "low on disk"),
        ([status(RUNNING), status(RUNNING), None], {}, "is gone: somebody removed it"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_the_pod_is_removed(
    statuses: list[dict[str, Any] | None], logs: dict[str, list[list[str]]], sentence: str
) -> None:
    cluster = PlayedCluster(statuses, logs)
    with pytest.raises(BuildFailed) as raised:
        build(cluster)
    assert sentence in str(raised.value)
    assert len(cluster.removed) == 1


def test_a_pod_without_a_node_is_told_once_and_given_up_in_the_end() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    cluster = PlayedCluster([{"conditions": [condition]}])
    waited: list[float] = []
    said: list[str] = []
    with pytest.raises(BuildFailed, match="0/3 nodes are available"):
        KanikoBuilder(cluster, sleep=waited.append).build(PLAN, said.append)
    assert sum("waits for a node" in line for line in said) == 1
    assert len(waited) == NO_NODE_SECONDS / POLL_SECONDS
    assert cluster.removed


def test_ctrl_c_removes_the_pod() -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    cluster = PlayedCluster([{}])
    with pytest.raises(KeyboardInterrupt):
        KanikoBuilder(cluster, sleep=interrupt).build(PLAN, lambda line: None)
    assert cluster.removed


class SilentCluster(PlayedCluster):
    """Does not answer the first so many questions about a pod, nor as many wishes to remove it."""

    silences = 0
    silent_removals = 0

    def pod(self, name: str) -> dict[str, Any] | None:
        self.silences -= 1
        if self.silences >= 0:
            raise Unavailable("the API server does not answer")
        return super().pod(name)

    def remove_pod(self, name: str) -> None:
        self.silent_removals -= 1
        if self.silent_removals >= 0:
            raise Unavailable("the API server does not answer")
        super().remove_pod(name)


def test_a_cluster_that_is_silent_for_a_moment_is_asked_again() -> None:
    cluster = SilentCluster([status(ended(0), ended(0, DIGEST))])
    cluster.silences = cluster.silent_removals = 3
    now = [0.0]
    builder = KanikoBuilder(cluster, sleep=lambda seconds: now.append(now[-1] + seconds), clock=lambda: now[-1])
    builder.build(PLAN, lambda line: None)
    assert cluster.removed


def test_a_cluster_that_stays_silent_is_given_up_and_what_is_left_is_told() -> None:
    cluster = SilentCluster([{}])
    cluster.silences = cluster.silent_removals = 1000
    now, told = [0.0], list[str]()
    builder = KanikoBuilder(
        cluster, warn=told.append, sleep=lambda seconds: now.append(now[-1] + seconds), clock=lambda: now[-1]
    )
    with pytest.raises(Unavailable):
        builder.build(PLAN, lambda line: None)
    assert 60 <= now[-1] < 90
    assert f"kubectl -n lab delete pod {cluster.made['metadata']['name']}" in told[0]


def test_no_word_is_changed_by_kubernetes_and_a_password_is_for_the_remotes_host() -> None:
    plan = replace(PLAN, build_args={"A": "$$ $(B) $"})
    spec = pod_for(plan, "kaniko", "git", {})["spec"]
    assert "--build-arg=A=$$$$ $$(B) $$" in spec["containers"][0]["args"]
    script, *_, scope = spec["initContainers"][0]["command"][2:]
    assert script.replace("$$", "$") == FETCH_SCRIPT
    assert scope == "https://git.lab"
    over_ssh = replace(PLAN, git=replace(GIT, remote="git@git.lab:x.git"))
    assert pod_for(over_ssh, "kaniko", "git", {})["spec"]["initContainers"][0]["command"][-1] == ""


@pytest.mark.parametrize(("remote", "sentence"), [("", "has none"), ("/srv/x.git", "cannot fetch from /srv/x.git")])
def test_what_a_pod_cannot_fetch_is_refused_before_there_is_one(remote: str, sentence: str) -> None:
    cluster = PlayedCluster([{}])
    with pytest.raises(UserError, match=sentence):
        build(cluster, plan=replace(PLAN, git=replace(GIT, remote=remote)))
    assert not cluster.made


def test_kaniko_is_told_what_the_plan_says() -> None:
    plan = replace(
        PLAN,
        git=replace(GIT, subdir="app"),
        dockerfile=Path("/src/Other"),
        push=ImageName(Registry("registry:5000", is_plain=True), "app", "tag"),
        target="final",
        build_args={"A": "b"},
        labels={"x": "y"},
    )
    words = kaniko_words(plan)
    assert f"--context=dir://{SOURCE}/app" in words
    assert f"--dockerfile={SOURCE}/Other" in words
    assert "--destination=registry:5000/app:tag" in words
    assert "--insecure-registry=registry:5000" in words
    assert {"--target=final", "--build-arg=A=b", "--label=x=y"} <= set(words)
    assert not any("insecure" in word for word in kaniko_words(PLAN))


def test_a_dockerfile_for_kaniko_is_preferred(tmp_path: Path) -> None:
    builder = KanikoBuilder(PlayedCluster([{}]))
    assert builder.default_dockerfile(tmp_path) is None
    for name in ("Dockerfile", "Dockerfile.kaniko"):
        (tmp_path / name).touch()
        assert builder.default_dockerfile(tmp_path) == tmp_path / name


def test_the_pod_has_no_token_and_ends_by_itself() -> None:
    cluster = PlayedCluster([status(ended(0), ended(0, DIGEST))])
    build(cluster)
    spec = cluster.made["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["activeDeadlineSeconds"] > 0
    assert all(volume["secret"]["optional"] for volume in spec["volumes"] if "secret" in volume)
