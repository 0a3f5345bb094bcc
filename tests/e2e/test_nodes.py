"""`yard nodes` and `yard fetch` with real machines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from jobyard.client.events import events
from jobyard.model.events import AttemptsFinished, NodeWentAway
from tests.hosts import Hosts
from tests.yards import TemporaryYard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def machines() -> Iterator[Hosts]:
    with Hosts(2) as hosts:
        yield hosts


@pytest.fixture
def lab(machines: Hosts) -> Iterator[TemporaryYard]:
    """A yard whose ssh knows gpu1 and gpu2 by name, and both hosts' keys by address."""
    config = machines.directory / "with_addresses"
    config.write_text(
        f"{machines.config_file.read_text()}\nHost *\n  UserKnownHostsFile {machines.directory / 'known_hosts'}\n"
        "  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
    )
    try:
        with TemporaryYard(YARD_SSH_CONFIG=str(config)) as yard:
            yield yard
    finally:
        machines.renew()


def write_machine_file(yard: TemporaryYard, hosts: Hosts, name: str, **changes: str) -> None:
    host = hosts[0]
    known = {"username": host.user, "ip": host.address, "port": str(host.port), "ssh_key_path": str(host.key)}
    yard.write(name, "".join(f"{key}: {value}\n" for key, value in {**known, **changes}.items()))


def test_machines_are_added_used_drained_and_let_go(lab: TemporaryYard) -> None:
    added = lab.json("nodes", "add", "gpu1", "gpu2", "--label", "lab")
    assert [(node["id"], node["state"], node["labels"]) for node in added] == [
        ("gpu1", "UP", ["lab"]),
        ("gpu2", "UP", ["lab"]),
    ]
    assert lab.ok("run", "--on", "gpu2", "--", "echo $YARD_NODE").out == "gpu2\n"
    lab.ok("nodes", "drain", "gpu2")
    assert lab.ok("run", "--on", "lab", "--", "echo $YARD_NODE").out == "gpu1\n"
    lab.ok("nodes", "resume", "gpu2")
    lab.ok("nodes", "drain", "gpu1")
    assert lab.ok("run", "--on", "lab", "--", "echo $YARD_NODE").out == "gpu2\n"
    lab.ok("nodes", "rm", "gpu1", "gpu2")
    assert [node["executor"] for node in lab.json("nodes")] == ["local"]
    assert lab.logs("last") == "gpu2\n", "what a machine wrote is still here when it is gone"


def test_bad_machines_get_a_sentence_each_and_the_good_one_is_added(lab: TemporaryYard, machines: Hosts) -> None:
    (lab.work / "wrong_key").write_text("no key\n")
    (lab.work / "wrong_key").chmod(0o600)
    write_machine_file(lab, machines, "key.yaml", ssh_key_path="wrong_key")
    write_machine_file(lab, machines, "port.yaml", port="1")
    write_machine_file(lab, machines, "field.yaml", hostname="x")
    done = lab.run("nodes", "add", "key.yaml", "port.yaml", "field.yaml", "nowhere.invalid", "gpu1")
    assert done.code == 1
    assert done.out.startswith("gpu1 added: ")
    said = done.err.splitlines()
    assert len(said) == 4
    for piece in ("node key: the login was refused", "node port: nothing listens there", "unknown key 'hostname'"):
        assert any(piece in line for line in said), done.err
    assert any("nowhere.invalid cannot be resolved" in line for line in said), done.err


def test_an_unknown_host_key_is_refused_with_the_way_out(lab: TemporaryYard, machines: Hosts) -> None:
    config = machines.directory / "no_keys"
    config.write_text("Host *\n  UserKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n")
    write_machine_file(lab, machines, "box.yaml")
    lab.env["YARD_SSH_CONFIG"] = str(config)
    done = lab.run("nodes", "add", "box.yaml")
    assert done.code == 2
    assert "node box: its host key is not known; log in once with `ssh" in done.err


def test_one_machine_under_two_names_keeps_what_runs_under_each(lab: TemporaryYard, machines: Hosts) -> None:
    lab.ok("nodes", "add", "gpu1")
    job = lab.submit("--on", "gpu1", "-c", "0.5", "--", "until [ -e ~/go ]; do sleep 0.05; done; echo through")
    lab.wait_state(job, "RUNNING")
    write_machine_file(lab, machines, "again.yaml")
    lab.ok("nodes", "add", "again.yaml")
    assert lab.ok("run", "--on", "again", "-c", "0.5", "--", "echo $YARD_NODE; touch ~/go").out == "again\n"
    lab.ok("nodes", "rm", "again")
    lab.ok("wait", job)
    assert lab.logs(job) == "through\n"


HELD = ("-c", "0.5", "--", "until [ -e ~/go ]; do sleep 0.05; done; echo through")


def test_a_machine_that_is_added_again_keeps_its_link_and_what_runs_there(lab: TemporaryYard, machines: Hosts) -> None:
    lab.ok("nodes", "add", "gpu1")
    job = lab.submit("--on", "gpu1", *HELD)
    lab.wait_state(job, "RUNNING")
    since = lab.client.server().last_event
    for labels in ((), ("--label", "lab")):
        lab.ok("nodes", "add", "gpu1", *labels)
        (node,) = lab.json("nodes", "probe", "gpu1")
        assert (node["state"], node["tasks"], node["labels"]) == ("UP", 1, list(labels[1:]))
    machines[0].ssh("touch go")
    lab.ok("wait", job)
    assert lab.logs(job) == "through\n"
    until_end = takewhile(lambda event: not isinstance(event, AttemptsFinished), events(lab.client, since))
    assert not [event for event in until_end if isinstance(event, NodeWentAway)]


def test_the_name_of_a_machine_where_tasks_run_is_not_given_to_another(lab: TemporaryYard, machines: Hosts) -> None:
    lab.ok("nodes", "add", "gpu1")
    job = lab.submit("--on", "gpu1", *HELD)
    lab.wait_state(job, "RUNNING")
    refused = lab.run("nodes", "add", "gpu2", "--name", "gpu1")
    assert refused.code == 2
    assert "node gpu1 is gpu1, and tasks run there; choose another name" in refused.err
    machines[0].ssh("touch go")
    lab.ok("wait", job)
    assert lab.logs(job) == "through\n"
    lab.ok("nodes", "add", "gpu2", "--name", "gpu1")
    assert lab.ok("run", "--on", "gpu1", "--", "echo $YARD_NODE").out == "gpu1\n"


def test_results_can_be_fetched_again_to_another_place(lab: TemporaryYard) -> None:
    lab.ok("nodes", "add", "gpu1")
    lab.write("in.txt", "sent along\n")
    lab.ok("run", "--on", "gpu1", "-a", "1-2", "--", "cp in.txt out-$SLURM_ARRAY_TASK_ID.txt; echo $YARD_NODE")
    job = lab.job()["id"]
    lab.ok("fetch", job, "--to", "elsewhere")

    def found(directory: str) -> dict[str, str]:
        root = lab.work / directory
        return {str(path.relative_to(root)): path.read_text() for path in Path(root).rglob("*") if path.is_file()}

    assert found("elsewhere") == found("job_results")
    assert found("elsewhere")[f"{job}/2/out-2.txt"] == "sent along\n"
    assert found("elsewhere")[f"{job}/1.out"] == "gpu1\n"
    again = lab.json("fetch", job, "--to", "elsewhere")
    assert (again["kept_apart"], again["left_out"]) == ([], [])
    assert found("elsewhere") == found("job_results")
