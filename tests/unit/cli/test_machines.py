from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Asked, Said, StandIn, problem
from tests.unit.client.views import NODE, a_job_view

from jobyard.model.job import State
from jobyard.model.node import NodeState
from jobyard.wire.views import Counts, DeviceView

GPU = DeviceView(0, "H100", 81920, 1024, 512, fake=True, used_mib=1536, percent=37)
REMOTE = replace(
    NODE, id="gpu1", executor="ssh", host="gpu1.lab", labels=("a100", "lab"), load=1.5, devices=(GPU,), holders=()
)


def added(asked: Asked) -> Said:
    config = asked.body["config"]
    if config["host"] == "refused":
        return problem(400, "bad_request", f"node {config['id']}: nothing listens there; check that sshd runs")
    return Said(201, replace(REMOTE, id=config["id"], host=config["host"]))


def test_nodes_without_a_verb_are_listed_with_gpus_load_labels_and_host(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=(NODE, REMOTE)))
    shown = yard("nodes").out
    assert shown == yard("nodes", "ls").out
    for piece in ("gpu1", "UP", "ssh", "1.50", "a100,lab", "gpu1.lab", "H100 (fake)", "1.5 GiB", "37 %", "512 MiB"):
        assert piece in shown
    assert json.loads(yard("nodes", "-o", "json").out)[1]["host"] == "gpu1.lab"
    assert json.loads(yard("nodes", "ls", "-o", "json").out)[1]["labels"] == ["a100", "lab"]


def test_a_node_without_a_link_is_listed_with_its_problem(yard: Yard, stand_in: StandIn) -> None:
    away = replace(REMOTE, state=NodeState.AWAY, problem="node gpu1: it does not answer (timed out)")
    stand_in.on("GET /nodes", Said(data=(away,)))
    shown = yard("nodes").out
    assert "AWAY" in shown
    assert "node gpu1: it does not answer (timed out)\n" in shown


def test_add_sends_how_each_machine_is_reached(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /nodes", added)
    result = yard("nodes", "add", "gpu1", "ben@gpu3.lab:2222", "--label", "a100", "--label", "lab")
    assert result.code == 0
    assert result.out.splitlines() == [
        "gpu1 added: 4 cpus, 16 GiB memory, 1 GPU",
        "gpu3 added: 4 cpus, 16 GiB memory, 1 GPU",
    ]
    configs = {asked.body["config"]["id"]: asked.body["config"] for asked in stand_in.calls("POST /nodes")}
    assert configs["gpu1"] == {"id": "gpu1", "host": "gpu1", "labels": ["a100", "lab"]}
    assert configs["gpu3"]["user"] == "ben"
    assert configs["gpu3"]["port"] == 2222


@pytest.mark.parametrize(
    ("targets", "code", "added_count"),
    [
        (["gpu1"], 0, 1),
        (["gpu1", "refused"], 1, 1),
        (["refused", "bad.yaml"], 2, 0),
        (["gpu1", "bad.yaml"], 1, 1),
    ],
)
def test_those_that_fail_get_a_sentence_while_the_others_are_added(
    yard: Yard, stand_in: StandIn, targets: list[str], code: int, added_count: int
) -> None:
    Path("bad.yaml").write_text("username: ben\nhost: x\n")
    stand_in.on("POST /nodes", added)
    result = yard("nodes", "add", *targets, "-o", "json")
    assert result.code == code
    if added_count:
        assert len(json.loads(result.out)) == added_count
    if "refused" in targets and added_count:
        assert "yard: node refused: nothing listens there; check that sshd runs\n" in result.err
    if "bad.yaml" in targets:
        assert "bad.yaml: line 2: unknown key 'host'" in result.err


def test_two_machines_cannot_have_one_name(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /nodes", added)
    result = yard("nodes", "add", "ben@gpu1.a", "ben@gpu1.b")
    assert result.code == 1
    assert "ben@gpu1.b: it would be called gpu1, as ben@gpu1.a is" in result.err
    assert yard("nodes", "add", "a", "b", "--name", "c").code == 2
    assert yard("nodes", "add", "gpu1", "--label", "a,b").code == 2


def test_force_adds_a_machine_that_does_not_answer(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /nodes", Said(201, replace(REMOTE, state=NodeState.DOWN)))
    assert "gpu1 added: it does not answer yet" in yard("nodes", "add", "gpu1", "--force").out
    assert stand_in.calls("POST /nodes")[0].body["force"] is True


def test_drain_resume_probe_and_rm_name_their_nodes(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /nodes/gpu1/drain", Said(data=replace(REMOTE, state=NodeState.DRAINING)))
    stand_in.on("POST /nodes/gpu1/resume", Said(data=REMOTE))
    stand_in.on("POST /nodes/gpu1/probe", Said(data=REMOTE))
    stand_in.on("DELETE /nodes/gpu1", Said(data={"removed": "gpu1"}))
    assert yard("nodes", "drain", "gpu1").out == "gpu1 is draining: 1 task still runs there\n"
    assert yard("nodes", "resume", "gpu1").out == "gpu1 is UP\n"
    assert "gpu1.lab" in yard("nodes", "probe", "gpu1").out
    assert yard("nodes", "rm", "gpu1", "--force").out == "gpu1 removed\n"
    assert stand_in.calls("DELETE /nodes/gpu1")[0].query == {"force": "true"}
    assert json.loads(yard("nodes", "rm", "gpu1", "-o", "json").out) == {"removed": ["gpu1"]}


def test_probe_without_a_name_asks_every_node(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=(NODE, REMOTE)))
    stand_in.on("POST /nodes/here/probe", Said(data=NODE))
    stand_in.on("POST /nodes/gpu1/probe", Said(data=REMOTE))
    assert len(json.loads(yard("nodes", "probe", "-o", "json").out)) == 2


def test_rm_is_refused_in_the_servers_words(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("DELETE /nodes/gpu1", problem(409, "bad_request", "node gpu1 runs tasks; remove it with --force"))
    result = yard("nodes", "rm", "gpu1")
    assert (result.code, result.err) == (2, "yard: node gpu1 runs tasks; remove it with --force\n")


def test_a_refusal_has_the_name_of_the_machine_even_if_it_is_a_word_of_the_sentence(
    yard: Yard, stand_in: StandIn
) -> None:
    for name in ("a", "all", "gpu1"):
        stand_in.on(f"DELETE /nodes/{name}", problem(409, "bad_request", "all of it needs a token of an admin"))
    assert yard("nodes", "rm", "a", "all", "gpu1").err.splitlines() == [
        f"yard: {name}: all of it needs a token of an admin" for name in ("a", "all", "gpu1")
    ]


def a_tar(**files: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def found_in(directory: Path) -> dict[str, str]:
    return {str(p.relative_to(directory)): p.read_text() for p in directory.rglob("*") if p.is_file()}


def test_fetch_puts_results_where_they_come_home_to(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/last", Said(data=a_job_view(State.SUCCEEDED)))
    stand_in.on("GET /jobs/j1/results", Said(data=a_tar(**{"0__model.pt": "weights", "0.out": "hello", "0.err": ""})))
    result = yard("fetch", "last")
    assert (result.code, result.out) == (0, "")
    assert "3 files in" in result.err
    assert found_in(Path("job_results")) == {"j1/model.pt": "weights", "j1.out": "hello", "j1.err": ""}


def test_fetch_puts_files_of_any_name_into_their_jobs_directory(yard: Yard, stand_in: StandIn) -> None:
    """Such names are in a pax header, which wins over a name that was changed."""
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.SUCCEEDED)))
    stand_in.on("GET /jobs/j1/results", Said(data=a_tar(**{"0__ünï": "a", f"0__{'n' * 120}": "b"})))
    assert yard("fetch", "j1").code == 0
    assert found_in(Path("job_results")) == {"j1/ünï": "a", f"j1/{'n' * 120}": "b"}


def test_fetch_of_many_tasks_has_a_directory_for_each(yard: Yard, stand_in: StandIn) -> None:
    many = a_job_view(State.SUCCEEDED, counts=Counts(total=2, succeeded=2))
    stand_in.on("GET /jobs/j1", Said(data=many))
    stand_in.on("GET /jobs/j1/results", Said(data=a_tar(**{"0__a.txt": "a", "0.out": "x", "worker_1__b": "b"})))
    shown = json.loads(yard("fetch", "j1", "--to", "here/there", "--task", "0", "-o", "json").out)
    assert shown["files"] == 3
    assert found_in(Path("here/there")) == {"j1/0/a.txt": "a", "j1/0.out": "x", "j1/worker_1/b": "b"}
    assert stand_in.calls("GET /jobs/j1/results")[0].query == {"task": "0"}


def test_fetch_takes_tasks_behind_their_job(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.SUCCEEDED, counts=Counts(total=9, succeeded=9))))
    stand_in.on("GET /jobs/j1/results", Said(data=a_tar(**{"3.out": "x"})))
    assert yard("fetch", "j1/3-7", "--task", "8").code == 0
    assert stand_in.calls("GET /jobs/j1/results")[0].query == {"task": "3-7,8"}
    assert "no task after the slash" in yard("fetch", "j1/").err


def test_fetch_gives_a_batch_of_execute_batch_its_own_names(yard: Yard, stand_in: StandIn) -> None:
    batch = a_job_view(State.SUCCEEDED, name="jobs.sh", source="ml-scheduler")
    stand_in.on("GET /jobs/j1", Said(data=batch))
    stand_in.on("GET /jobs/j1/results", Said(data=a_tar(**{"3__a": "a", "3.err": "e"})))
    assert yard("fetch", "j1").code == 0
    assert found_in(Path("job_results")) == {"jobs.sh.3/a": "a", "jobs.sh.3.err": "e"}


def test_fetch_never_overwrites_and_never_leaves_its_directory(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.SUCCEEDED)))
    stand_in.on("GET /jobs/j1/results", Said(data=a_tar(**{"0__a": "theirs", "0__..__..__..__evil": "x"})))
    Path("job_results/j1").mkdir(parents=True)
    Path("job_results/j1/a").write_text("mine")
    result = yard("fetch", "j1")
    assert Path("job_results/j1/a").read_text() == "mine"
    assert "theirs" in found_in(Path("job_results")).values()
    assert "left out" in result.err
    assert not list(Path("..").rglob("evil"))


def test_fetch_of_half_an_archive_says_so(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.SUCCEEDED)))
    stand_in.on("GET /jobs/j1/results", Said(data=a_tar(**{"0__a": "a" * 5000})[:3000]))
    result = yard("fetch", "j1")
    assert result.code == 1
    assert "did not arrive whole" in result.err
