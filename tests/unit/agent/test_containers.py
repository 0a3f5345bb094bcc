"""What is said to container runtimes, and what is made of their answers?"""

from __future__ import annotations

import json
import os
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from tests.unit.agent.agent_process import Client
from tests.unit.agent.conftest import MakeAgent

from jobyard.agent.execution import container_words, containers
from jobyard.agent.execution.container_words import Call, Container
from jobyard.agent.execution.runtimes import Runtime, Runtimes, candidates, runtime_from
from jobyard.agent.system import probe
from jobyard.agent_protocol import records

DOCKER = Runtime(("/usr/bin/docker",), "docker", limits=("memory", "swap", "cpus"))
PODMAN = Runtime(("/usr/bin/podman",), "podman", limits=("memory", "cpus"))


def call(container: Container, inside: dict[str, str] | None = None, *argv: str) -> Call:
    files = records.paths("/state", "j.0.1")
    words = list(argv) or ["bash", "-c", "true"]
    return container_words.call_of(
        container, "/state", "j.0.1", files, "/work", words, inside or {}, {"PATH": "/bin"}, ["/none"]
    )


def values(words: list[str], flag: str) -> list[str]:
    """What follows each of these flags."""
    return [word for before, word in pairwise(words) if before == flag]


@pytest.mark.parametrize("reads_stdin", [True, False])
def test_a_container_hands_standard_input_on_where_the_job_has_one(reads_stdin: bool) -> None:
    assert ("--interactive" in call(Container(DOCKER, "i:1", reads_stdin=reads_stdin)).argv) == reads_stdin


# -- GPUs; there are none here, so only what is said is looked at


def test_docker_is_told_the_devices_of_the_slot_by_their_ids() -> None:
    said = call(Container(DOCKER, "i:1", devices=((0, "GPU-a"), (3, "GPU-b"))), {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"})
    assert values(said.argv, "--gpus") == ['"device=GPU-a,GPU-b"']
    assert said.env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert "NVIDIA_VISIBLE_DEVICES" not in said.env


def test_devices_without_ids_are_counted_anew_in_the_container() -> None:
    said = call(Container(DOCKER, "i:1", devices=((2, ""), (3, ""))), {"CUDA_VISIBLE_DEVICES": "2,3"})
    assert values(said.argv, "--gpus") == ['"device=2,3"']
    assert said.env["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_podman_is_told_devices_one_by_one() -> None:
    said = call(Container(PODMAN, "i:1", devices=((0, "GPU-a"), (3, "GPU-b"))))
    assert values(said.argv, "--device") == ["nvidia.com/gpu=0", "nvidia.com/gpu=3"]
    assert "--gpus" not in said.argv


def test_without_devices_an_image_that_wants_all_gets_none() -> None:
    said = call(Container(DOCKER, "i:1"), {"CUDA_VISIBLE_DEVICES": ""})
    assert "--gpus" not in said.argv
    assert (said.env["NVIDIA_VISIBLE_DEVICES"], said.env["CUDA_VISIBLE_DEVICES"]) == ("void", "")


# -- everything else that is said


def test_values_of_variables_are_never_words_of_the_command() -> None:
    said = call(Container(DOCKER, "i:1"), {"TOKEN": "hidden", "HOME": "/hidden", "DOCKER_HOST": "hidden"})
    assert not any("hidden" in word for word in said.argv)
    assert (said.env["TOKEN"], said.env.get("DOCKER_HOST"), said.env["PATH"]) == ("hidden", None, "/bin")
    assert said.file == "DOCKER_HOST=hidden\nHOME=/hidden\n"


def test_a_value_of_several_lines_that_only_a_file_could_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="PATH"):
        call(Container(DOCKER, "i:1"), {"PATH": "a\nb"})
    assert call(Container(DOCKER, "i:1"), {"KEY": "a\nb"}).env["KEY"] == "a\nb"


def test_a_file_of_variables_has_the_bytes_that_the_environment_would_have() -> None:
    assert os.fsencode(call(Container(DOCKER, "i:1"), {"HOME": "/caf\udce9"}).file) == b"HOME=/caf\xe9\n"
    with pytest.raises(ValueError, match="HOME"):
        call(Container(DOCKER, "i:1"), {"HOME": "\u20ac" * 30_000})  # three bytes each


def test_memory_and_cores_are_limited_where_the_runtime_can() -> None:
    asked = Container(DOCKER, "i:1", cpu_millis=1500, memory_mib=64)
    words = call(asked).argv
    flags = ("--memory", "--memory-swap", "--cpus")
    assert [values(words, flag) for flag in flags] == [["64m"], ["64m"], ["1.5"]]
    words = call(asked._replace(runtime=DOCKER._replace(limits=()))).argv
    assert [values(words, flag) for flag in flags] == [[], [], []]


def test_a_container_has_the_network_of_its_machine_unless_ports_are_mapped() -> None:
    inside = {"YARD_REPORT_ADDRESS": "127.0.0.1:1"}
    alone = call(Container(DOCKER, "i:1"), inside)
    assert values(alone.argv, "--network") == ["host"]
    assert alone.env["YARD_REPORT_ADDRESS"] == "127.0.0.1:1"
    mapped = call(Container(DOCKER, "i:1", ports=((8080, 80), (9000, 9000))), inside)
    assert values(mapped.argv, "--publish") == ["8080:80", "9000:9000"]
    assert "--network" not in mapped.argv
    assert "YARD_REPORT_ADDRESS" not in mapped.env


def test_files_belong_to_the_user_and_rootless_runtimes_see_to_that_themselves() -> None:
    assert values(call(Container(DOCKER, "i:1")).argv, "--user") == [f"{os.getuid()}:{os.getgid()}"]
    assert values(call(Container(PODMAN._replace(is_rootless=True), "i:1")).argv, "--user") == []


def test_the_directories_of_the_job_and_what_was_asked_for_are_mounted() -> None:
    words = call(Container(DOCKER, "i:1", mounts=(("/home/a, b", "/custom", False), ("/d", "/data", True)))).argv
    assert values(words, "--mount") == [
        "type=bind,source=/state/jobs/j,target=/state/jobs/j",
        "type=bind,source=/work,target=/work",
        'type=bind,"source=/home/a, b",target=/custom',
        "type=bind,source=/d,target=/data,readonly",
    ]


def test_nodes_that_share_an_engine_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = container_words.name_of("/state", "j.0.1")
    monkeypatch.setattr(probe, "host", lambda: "elsewhere")
    assert container_words.name_of("/state", "j.0.1") != here


def test_names_of_different_yards_differ_and_hold_only_what_a_name_may() -> None:
    here, there = container_words.name_of("/state", "a:b@c.0.1"), container_words.name_of("/other", "a:b@c.0.1")
    assert here != there
    assert here.endswith("-a_b_c.0.1")


# -- what they answer


def test_a_record_tells_which_container_is_whose() -> None:
    command = ["/opt/my docker", "-H", "unix:///s"]
    record = records.parse(b"claim b 1 2 - -\n" + records.contain_line("yard-x-j.0.1", command))
    assert record.container == ("yard-x-j.0.1", command)
    assert records.parse(b"claim b 1 2 - -\ncontain x").container is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\ndocker: Error response from daemon: No such image: x.\nSee 'docker run --help'.\n", "No such image: x"),
        ("Error response from daemon: pull access denied\n", "pull access denied"),
        ("Error: initializing source docker://x: no such host\n", "initializing source docker://x: no such host"),
        (
            "Cannot connect to the Docker daemon at unix:///s. Is it?\n",
            "Cannot connect to the Docker daemon at unix:///s. Is it?",
        ),
        ("what a task writes\n", None),
    ],
)
def test_the_last_words_of_a_runtime_are_found(text: str, said: str | None) -> None:
    assert containers.said_by_runtime(text) == said


def test_docker_and_podman_tell_what_they_can_do_in_their_own_words() -> None:
    docker = {"ServerVersion": "20.10", "MemoryLimit": True, "CpuCfsQuota": True, "SecurityOptions": ["name=rootless"]}
    found = runtime_from(["/usr/bin/docker"], "WARNING: something\n" + json.dumps(docker))
    assert (found.kind, found.is_rootless, found.limits) == ("docker", True, ("memory", "cpus"))
    podman = {"host": {"cgroupControllers": ["cpu", "memory"], "security": {"rootless": False}}}
    found = runtime_from(["/usr/bin/docker"], json.dumps(podman, indent=1))
    assert (found.kind, found.is_rootless, found.limits) == ("podman", False, ("memory", "swap", "cpus"))


def test_an_engine_that_does_not_run_is_told_in_its_own_words() -> None:
    old = json.dumps({"ServerErrors": ["Cannot connect to the Docker daemon at x."], "ClientInfo": {}})
    new = json.dumps({"ServerVersion": "", "ID": ""}) + "\nCannot connect to the Docker daemon at x.\n"
    for text in (old, new):
        found = runtime_from(["/usr/bin/docker"], text)
        assert found.kind == ""
        assert found.problem == "has a docker that does not answer: Cannot connect to the Docker daemon at x"


def test_the_variable_names_the_runtime_and_may_have_options() -> None:
    assert candidates({"JOBYARD_CONTAINER_RUNTIME": "/x/podman --root '/a b'"}) == [["/x/podman", "--root", "/a b"]]
    assert candidates({"PATH": "/nowhere"}) == []
    broken = Runtimes({"JOBYARD_CONTAINER_RUNTIME": "'x"})
    assert "cannot be read" in broken.found_within(1.0).problem


# -- an agent with a runtime that is a script


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A runtime that runs the command where it is: it shows what it was asked, and keeps no containers."""
    path = tmp_path / "docker"
    path.write_text(
        f"""#!/bin/sh
echo "$*" >> {shlex.quote(str(tmp_path))}/asked
case $1 in
info) echo '{{"ServerVersion": "1"}}';;
image) echo PYTHONPATH=/of/the/image;;
run) while [ "$1" != --entrypoint ]; do shift; done; shift; program=$1; shift 2; exec "$program" "$@";;
esac
"""
    )
    path.chmod(0o755)
    return path


def test_an_agent_says_which_runtime_it_has_and_runs_images_with_it(make_agent: MakeAgent, script: Path) -> None:
    server = make_agent(JOBYARD_CONTAINER_RUNTIME=str(script)).start().connect()
    assert server.welcome["runtime"] is None  # nobody has asked yet
    server.send(op="job", job="c", env={"A": "1"}, workdir="/tmp", container={"image": "i:1"})
    server.launch("s", {"id": "c.0.1", "argv": ["sh", "-c", "echo $A $PYTHONPATH; exit 4"]}, job="c")
    assert server.finished("c.0.1")["exit_code"] == 4
    asked = (script.parent / "asked").read_text()
    assert "--label jobyard.attempt=c.0.1 --label jobyard.yard=test" in asked
    assert server.measured()["runtime"] == {"kind": "docker", "problem": ""}


def test_the_python_path_of_the_image_stays_before_ours(make_agent: MakeAgent, script: Path) -> None:
    agent = make_agent(JOBYARD_CONTAINER_RUNTIME=str(script)).start()
    server = agent.connect()
    server.send(op="job", job="c", env={}, workdir="/tmp", container={"image": "i:1"})
    server.send(op="job", job="d", env={"PYTHONPATH": "/own"}, workdir="/tmp", container={"image": "i:1"})
    for job in ("c", "d"):
        server.launch(job, {"id": f"{job}.0.1", "argv": ["printenv", "PYTHONPATH"]}, job=job)
        assert server.finished(f"{job}.0.1")["exit_code"] == 0
    said = {job: Path(records.paths(str(agent.state), f"{job}.0.1").out).read_text() for job in ("c", "d")}
    assert said["c"].startswith(f"/of/the/image:{agent.state}/sdk-")
    assert said["d"].startswith(f"/own:{agent.state}/sdk-")


def test_without_a_runtime_an_attempt_cannot_start(make_agent: MakeAgent) -> None:
    agent = make_agent(JOBYARD_CONTAINER_RUNTIME="/nowhere/podman").start()
    server: Client = agent.connect()
    server.send(op="probe", runtime=True)
    told = server.wait(lambda m: m["ev"] == "measured" and m["runtime"])
    assert told["runtime"]["problem"] == "has a podman that does not answer: No such file or directory"
    server.send(op="job", job="c", env={}, workdir="/tmp", container={"image": "i:1"})
    server.launch("s", {"id": "c.0.1", "argv": ["true"]}, job="c")
    assert server.finished("c.0.1")["exit_code"] == 126
    assert "no container can be run" in Path(records.paths(str(agent.state), "c.0.1").err).read_text()


@pytest.mark.parametrize(
    "container",
    [{"image": ""}, {"image": "-v"}, {"image": "i", "mounts": [["a", "/b", False]]}, {"image": "i", "shm_mib": -1}],
)
def test_a_container_that_makes_no_sense_is_an_error(server: Client, container: dict[str, object]) -> None:
    server.send(op="job", job="c", env={}, workdir="/tmp", container=container)
    assert "container" in server.wait(lambda m: m["ev"] == "error")["message"]
