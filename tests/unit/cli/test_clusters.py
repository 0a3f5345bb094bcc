from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Asked, Said, StandIn, problem
from tests.unit.client.views import NODE, a_job_view
from tests.unit.kubernetes.kubeconfigs import a_kubeconfig

from jobyard.cli import reaching
from jobyard.cli.reaching import target_of
from jobyard.cli.session import Session
from jobyard.kubernetes.kubeconfig import ClusterWords
from jobyard.model.job import Reason, State
from jobyard.wire.views import ClusterView, DeviceView, PlanView, TaskView, UnitView

LAB = ClusterView(
    "lab",
    "https://lab:6443",
    "/k",
    "ctx",
    "team",
    "claim",
    "queue",
    is_connected=True,
    nodes=3,
    nodes_up=2,
    gpus=8,
    gpus_free=5,
    jobs=4,
)
UNIT = UnitView("j1", "0", State.RUNNING, "lab/a", cluster="lab", pod="pod-0", namespace="team")


def added(asked: Asked) -> Said:
    config = asked.body["config"]
    view = replace(LAB, id=config["id"], context=config.get("context", ""), namespace=config.get("namespace", ""))
    return Said(201, view)


def test_clusters_are_listed_with_what_they_have_and_their_problem(yard: Yard, stand_in: StandIn) -> None:
    down = replace(LAB, id="far", is_connected=False, problem="the token has run out; log in again")
    stand_in.on("GET /clusters", Said(data=(LAB, down)))
    lines = yard("clusters").out.splitlines()
    assert " ".join(lines[1].split()) == "lab connected 2/3 5/8 4 team queue claim https://lab:6443 (ctx)"
    assert lines[2].split()[:2] == ["far", "problem"]
    assert lines[3] == "far: the token has run out; log in again"
    assert json.loads(yard("clusters", "ls", "-o", "json").out)[0]["gpus_free"] == 5


def test_of_the_labels_of_a_clusters_node_those_of_people_are_listed(yard: Yard, stand_in: StandIn) -> None:
    own = ("nvidia.com/gpu.product=A100", "team=vision")
    given = (
        "beta.kubernetes.io/os=linux",
        "feature.node.kubernetes.io/pci=true",
        "kubernetes.io/hostname=a",
        "node.kubernetes.io/instance-type=x",
        "nvidia.com/cuda.driver.major=550",
    )
    stand_in.on("GET /nodes", Said(data=(replace(NODE, id="lab/a", labels=(*given, *own)),)))
    listed = yard("nodes").out
    assert ",".join(own) in listed
    assert [label for label in given if label in listed] == []
    assert json.loads(yard("nodes", "ls", "-o", "json").out)[0]["labels"] == [*given, *own]


def test_no_clusters_is_said_with_the_way_to_the_first(yard: Yard, stand_in: StandIn) -> None:
    assert "no clusters; `yard clusters add` adds the one that kubectl uses" in yard("clusters", "ls").err


def test_add_sends_what_the_callers_environment_means(yard: Yard, stand_in: StandIn, home: Path) -> None:
    path = a_kubeconfig(home / ".kube/config", "ctx", current="ctx")
    stand_in.on("POST /clusters", added)
    result = yard("clusters", "add", "--storage", "claim", "--queue", "q")
    assert result.out == "kubernetes added: 2 nodes, 5 of 8 GPUs free, namespace team\n"
    assert stand_in.calls("POST /clusters")[0].body["config"] == {
        "id": "kubernetes",
        "kubeconfig": path,
        "context": "ctx",
        "namespace": "team",
        "storage": "claim",
        "queue": "q",
    }
    stand_in.on("POST /clusters", problem(400, "bad_request", "cluster lab was not added: it does not answer"))
    refused = yard("clusters", "add", "lab")
    assert (refused.code, refused.err) == (2, "yard: cluster lab was not added: it does not answer\n")


def test_add_without_a_kubeconfig_names_the_way_out(yard: Yard, stand_in: StandIn) -> None:
    result = yard("clusters", "add")
    assert result.code == 2
    assert "yard clusters add --kubeconfig FILE" in result.err


def test_rm_is_refused_in_the_servers_words_and_forced_it_is_done(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("DELETE /clusters/lab", problem(409, "bad_request", "1 job is not finished on lab"), Said(data={}))
    assert yard("clusters", "rm", "lab").err == "yard: 1 job is not finished on lab\n"
    assert yard("clusters", "rm", "lab", "--force").out == "lab removed\n"
    assert stand_in.calls("DELETE /clusters/lab")[1].query == {"force": "true"}


def test_the_first_job_for_kubernetes_adds_the_callers_cluster(yard: Yard, stand_in: StandIn, home: Path) -> None:
    a_kubeconfig(home / ".kube/config", "ctx", current="ctx")
    stand_in.on("GET /nodes", Said(data=(NODE,)))
    stand_in.on("POST /clusters", added)
    stand_in.on("POST /jobs", Said(201, a_job_view()))
    result = yard("submit", "--on", "kubernetes", "--image", "demo", "--volume", "data:/data:ro", "--", "true")
    assert result.out == "1\n"
    assert "note: cluster kubernetes added: https://lab:6443 (ctx), namespace team" in result.err
    spec = stand_in.calls("POST /jobs")[0].body["spec"]
    assert spec["container"] == {"image": "demo"}
    assert spec["kubernetes"]["volumes"] == [{"claim": "data", "path": "/data", "read_only": True}]
    stand_in.on("GET /clusters", Said(data=(LAB,)))
    yard("submit", "--on", "kubernetes", "--", "true")
    yard("submit", "--", "true")
    assert len(stand_in.calls("POST /clusters")) == 1


def test_without_a_kubeconfig_a_job_for_kubernetes_is_not_submitted_but_rendered(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=(NODE,)))
    stand_in.on("POST /jobs", Said(data=PlanView(a_job_view(), (), "kind: Job\n")))
    result = yard("submit", "--on", "kubernetes", "--", "true")
    assert (result.code, "no kubeconfig" in result.err) == (2, True)
    assert stand_in.calls("POST /jobs") == []
    assert yard("submit", "--on", "kubernetes", "--render", "--", "true").out == "kind: Job\n"


def test_a_machine_that_is_called_kubernetes_is_meant_first(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=(replace(NODE, labels=("kubernetes",)),)))
    stand_in.on("POST /jobs", Said(201, a_job_view()))
    assert yard("submit", "-q", "--on", "kubernetes", "--", "true").out == "1\n"


@pytest.mark.parametrize("text", ["data", "data:relative", "data:/x:rx", "Data:/x", ":/x"])
def test_a_volume_that_cannot_be_read_is_told(yard: Yard, stand_in: StandIn, text: str) -> None:
    result = yard("submit", "--on", "kubernetes", "--volume", text, "--", "true")
    assert (result.code, "write CLAIM:PATH or CLAIM:PATH:ro" in result.err) == (2, True)


def test_many_nodes_of_a_cluster_are_one_line_unless_all_are_wanted(yard: Yard, stand_in: StandIn) -> None:
    gpus = tuple(DeviceView(index, "H100", 1024, 0, 0, False, is_taken=index == 0) for index in (0, 1))
    nodes = [replace(NODE, id=f"lab/n{n}", executor="kubernetes", devices=gpus, tasks=1, holders=()) for n in range(30)]
    stand_in.on("GET /nodes", Said(data=(NODE, *nodes)))
    shown = yard("nodes").out
    assert "lab: 30 of 30 nodes are up, 30 of 60 GPUs are taken, 30 tasks of this yard" in shown
    assert "lab/n7" not in shown
    everything = yard("nodes", "ls", "--all").out.splitlines()
    assert sum(line.startswith("lab/n") for line in everything) == 60
    assert any(line.split()[:4] == ["lab/n7", "2x", "1", "GiB"] and "1 of 2" in line for line in everything)
    assert len(json.loads(yard("nodes", "-o", "json").out)) == 31


def test_show_has_the_pods_of_a_cluster_job_and_ls_what_holds_it(yard: Yard, stand_in: StandIn) -> None:
    why = "image demo cannot be pulled"
    job = a_job_view(State.STARTING, cluster="lab", image="demo", message=why, reason=Reason.HELD)
    stand_in.on("GET /jobs/j1", Said(data=job))
    task = TaskView(0, "0", State.STARTING, 2, Reason.HELD, why, "lab/worker", unit="pod-0-x")
    stand_in.on("GET /jobs/j1/tasks", Said(data=(task,)))
    shown = yard("show", "j1", "--tasks").out
    assert shown.splitlines()[-1].split()[:5] == ["0", "STARTING", "2", "worker", "pod-0-x"]
    assert "lab" in shown
    assert "/work" not in shown, "the directory here means nothing there"
    stand_in.on("GET /jobs", Said(data=(job,)))
    assert why in yard("ls").out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["exec", "j1"], "nothing to run; write: yard exec j1 -- CMD"),
        (["port-forward", "j1", "http"], "port 'http': write REMOTE or LOCAL:REMOTE"),
        (["port-forward", "j1", "1:70000"], "port '1:70000': write REMOTE or LOCAL:REMOTE"),
    ],
)
def test_what_cannot_be_reached_is_told_before_anything_is_asked(
    yard: Yard, stand_in: StandIn, words: list[str], sentence: str
) -> None:
    result = yard(*words)
    assert (result.code, sentence in result.err) == (2, True)
    assert stand_in.calls("GET /jobs/j1/unit") == []


def test_without_the_library_the_extra_is_named(yard: Yard, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise ModuleNotFoundError("No module named 'kubernetes'", name="kubernetes")

    stand_in.on("GET /jobs/j1/unit", Said(data=UNIT))
    monkeypatch.setattr(reaching, "import_module", no_library)
    result = yard("exec", "j1", "--", "true")
    assert (result.code, "pip install 'jobyard[kubernetes]'" in result.err) == (2, True)


def test_into_a_pod_goes_the_yards_identity_here_and_the_callers_own_elsewhere(
    stand_in: StandIn, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = a_kubeconfig(home / ".kube/config", "mine", "other", current="mine")
    stand_in.on("GET /jobs/j1/unit", Said(data=replace(UNIT, kubeconfig="/yards", context="its")))
    session = Session(None, "table")
    assert target_of(session, "j1")[1:] == ("/yards", "its")
    assert target_of(session, "j1", ClusterWords(context="other"))[1:] == (own, "other")
    monkeypatch.setattr(Session, "leaves_this_machine", True)
    assert target_of(session, "j1")[1:] == (own, "mine")


def test_doctor_tells_of_clusters_in_a_line_each(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=(NODE, replace(NODE, id="lab/a"))))
    stand_in.on("GET /clusters", Said(data=(LAB, replace(LAB, id="far", is_connected=False, problem="it is gone"))))
    result = yard("doctor")
    assert result.code == 0
    assert "lab: 2 of 3 nodes are up, 5 of 8 GPUs free" in result.out
    assert "far: it is gone; `yard clusters add far` changes how it is reached" in result.out
    assert "lab/a" not in result.out
