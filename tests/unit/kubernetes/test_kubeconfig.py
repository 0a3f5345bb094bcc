from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.kubernetes.kubeconfigs import a_kubeconfig

from jobyard.errors import UserError
from jobyard.kubernetes import kubeconfig
from jobyard.kubernetes.kubeconfig import ClusterWords, config_elsewhere, config_here, config_of_known
from jobyard.model.node import ClusterConfig


def test_the_environment_means_what_kubectl_would_take(home: Path) -> None:
    path = a_kubeconfig(home / ".kube/config", "lab", "other", current="lab")
    found = config_here(ClusterWords(), {})
    assert (found.id, found.kubeconfig, found.context, found.namespace) == ("kubernetes", path, "lab", "team")
    named = a_kubeconfig(home / "own", "far", current="far", namespace=None)
    found = config_here(ClusterWords(), {"KUBECONFIG": named})
    assert (found.kubeconfig, found.context, found.namespace) == (named, "far", "default")


def test_of_several_files_the_first_that_says_something_counts(home: Path) -> None:
    one = a_kubeconfig(home / "one", "lab")
    two = a_kubeconfig(home / "two", "lab", "far", current="far", namespace="second")
    three = a_kubeconfig(home / "three", "far", current="lab")
    listed = os.pathsep.join((one, str(home / "none"), two, three))
    found = config_here(ClusterWords(context="lab"), {"KUBECONFIG": listed})
    assert (found.kubeconfig, found.namespace) == (os.pathsep.join((one, two, three)), "team")
    assert config_here(ClusterWords(), {"KUBECONFIG": listed}).context == "far"


def test_flags_win_and_paths_become_absolute(home: Path) -> None:
    a_kubeconfig(Path("here.yaml"), "lab", "far", current="lab")
    words = ClusterWords("gpu", "here.yaml", "far", "mine", "claim", "queue")
    found = config_here(words, {"KUBECONFIG": "/no/such"})
    assert found.kubeconfig == str(Path("here.yaml").absolute())
    assert (found.id, found.context, found.namespace) == ("gpu", "far", "mine")
    assert (found.storage, found.queue) == ("claim", "queue")


@pytest.mark.parametrize(
    ("content", "words", "sentence"),
    [
        (None, ClusterWords(), "no kubeconfig: neither KUBECONFIG nor ~/.kube/config"),
        (None, ClusterWords(kubeconfig="nothing"), "--kubeconfig: 'nothing' is not a file"),
        ("a: [", ClusterWords(), "not valid YAML"),
        ("- a", ClusterWords(), "it is not a kubeconfig"),
        ("contexts: []", ClusterWords(), "it has no current context; choose one of it with --context"),
        ("contexts: [{name: lab}]", ClusterWords(context="far"), "context 'far' is not in .*; known: lab"),
    ],
)
def test_what_is_wrong_is_told_with_the_way_out(
    home: Path, content: str | None, words: ClusterWords, sentence: str
) -> None:
    if content is not None:
        (home / ".kube").mkdir()
        (home / ".kube/config").write_text(content)
    with pytest.raises(UserError, match=sentence):
        config_here(words, {})


def test_a_kubeconfig_variable_that_leads_nowhere_is_told(home: Path) -> None:
    with pytest.raises(UserError, match="KUBECONFIG: '/no/such' names no file that is there"):
        config_here(ClusterWords(), {"KUBECONFIG": "/no/such"})


def test_in_a_pod_the_service_account_is_meant(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = home / "token"
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", token)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    with pytest.raises(UserError, match="this is no pod"):
        config_here(ClusterWords(), environ)
    token.write_text("secret")
    found = config_here(ClusterWords(storage="claim"), environ)
    assert (found.kubeconfig, found.context, found.storage) == ("", "", "claim")


def test_for_a_server_elsewhere_only_what_is_said_counts(home: Path) -> None:
    a_kubeconfig(home / ".kube/config", "lab", current="lab")
    found = config_elsewhere(ClusterWords(kubeconfig="/etc/yard/kubeconfig"))
    assert (found.kubeconfig, found.context) == ("/etc/yard/kubeconfig", "")


def test_of_a_known_cluster_only_what_is_said_is_sent(home: Path) -> None:
    known = a_kubeconfig(home / "own", "lab", "far", current="far")
    assert config_of_known(ClusterWords("x"), known, {}) == ClusterConfig("x")
    assert config_of_known(ClusterWords("x", known, queue="q"), known, {}) == ClusterConfig("x", queue="q")
    assert config_of_known(ClusterWords("x", context="lab"), known, {}) == ClusterConfig("x", context="lab")
    with pytest.raises(UserError, match="context 'labb' is not in kubeconfig"):
        config_of_known(ClusterWords("x", context="labb"), known, {})
    other = a_kubeconfig(home / "other", "new", current="new", namespace="theirs")
    assert config_of_known(ClusterWords("x", other), known, {}) == ClusterConfig("x", other, "new", "theirs")
