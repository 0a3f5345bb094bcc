"""Three machines over real sshds: a batch fills them, each task has its own copy, and what is new comes home."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobyard.agent.build import agent_zipapp
from tests.hosts import Host, Hosts
from tests.waiting import until
from tests.yards import TemporaryYard

pytestmark = pytest.mark.slow
AGENTS = ".local/share/jobyard/agents"


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(3, environment={"JOBYARD_FAKE_GPUS": "1x16GiB"}) as made:
        yield made


@pytest.fixture(scope="module")
def module_lab(hosts: Hosts) -> Iterator[TemporaryYard]:
    with TemporaryYard(YARD_SSH_CONFIG=str(hosts.config_file), YARD_ALIVE_SECONDS="1") as yard:
        yard.ok("nodes", "add", "gpu1", "gpu2", "gpu3", "--label", "lab")
        yield yard


@pytest.fixture
def lab(module_lab: TemporaryYard, tmp_path: Path) -> Iterator[TemporaryYard]:
    """A yard with gpu1, gpu2 and gpu3, and an empty directory to submit from."""
    module_lab.work = tmp_path / "project"
    module_lab.work.mkdir()
    try:
        yield module_lab
    finally:
        module_lab.settle()


def tree(directory: Path) -> dict[str, str]:
    """Every file below, with its content; of links their targets."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(directory))] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[str(path.relative_to(directory))] = path.read_text()
    return found


# -- running


def test_a_batch_fills_all_nodes_at_once(lab: TemporaryYard) -> None:
    job = lab.submit("--on", "lab", "-a", "0-5", "--", "hostname; sleep 60")
    until(lambda: lab.job(job)["counts"]["running"] == 6)
    nodes = [task["node"] for task in lab.tasks(job)]
    assert sorted(nodes) == ["gpu1", "gpu1", "gpu2", "gpu2", "gpu3", "gpu3"]
    lab.ok("cancel", "--force", job)


def test_this_machine_and_the_others_share_a_batch(lab: TemporaryYard) -> None:
    job = lab.submit("-a", "0-7", "--", "sleep 60")
    until(lambda: lab.job(job)["counts"]["running"] == 8)
    assert len({task["node"] for task in lab.tasks(job)}) == 4
    lab.ok("cancel", "--force", job)


def test_a_task_goes_where_what_it_needs_is(lab: TemporaryYard) -> None:
    assert lab.ok("run", "--gpus", "1", "--", "echo $CUDA_VISIBLE_DEVICES; hostname").out.startswith("0\ngpu")
    assert lab.ok("run", "--on", "local", "--", "true").code == 0
    refused = lab.run("run", "--gpus", "2", "--", "true")
    assert refused.code == 2
    assert "gpu" in refused.err.lower()
    assert len(refused.err.splitlines()) == 1


def test_a_script_goes_along_with_its_text_and_its_lines(lab: TemporaryYard) -> None:
    script = lab.write("along.sh", '#!/bin/bash\nset -e\nhostname\necho "$1|$YARD_LINE"\n')
    lines = lab.write("along.txt", "$(touch bad)\n")
    done = lab.ok("run", "--on", "gpu1", "--no-copy", "--each-line", lines, script, "a b")
    assert done.out == "gpu1\na b|$(touch bad)\n"


def test_a_task_larger_than_the_largest_node_is_refused_in_one_sentence(lab: TemporaryYard) -> None:
    refused = lab.run("run", "--on", "gpu2", "--mem", "900TiB", "--", "true")
    assert refused.code == 2
    assert len(refused.err.splitlines()) == 1
    assert "gpu2" in refused.err


def test_two_tasks_share_a_machines_gpu_by_memory_and_the_third_waits(lab: TemporaryYard) -> None:
    words = ("--on", "gpu1", "--cpus", "0.1", "--gpu-mem", "8GiB", "--", "echo $CUDA_VISIBLE_DEVICES; sleep 60")
    first = [lab.submit(*words) for _ in range(2)]
    for job in first:
        lab.wait_state(job, "RUNNING")
    third = lab.submit(*words)
    until(lambda: "GPUs with 8 GiB free" in lab.ok("why", third).out)
    (device,) = next(node for node in lab.json("nodes") if node["id"] == "gpu1")["devices"]
    assert (device["reserved_mib"], device["fake"]) == (16384, True)
    lab.ok("cancel", "--force", *first, third)


def test_what_another_yard_reserved_on_a_machine_is_left_to_it(lab: TemporaryYard) -> None:
    with TemporaryYard(YARD_SSH_CONFIG=lab.env["YARD_SSH_CONFIG"]) as other:
        other.ok("nodes", "add", "gpu3")
        held = other.submit("--on", "gpu3", "--gpus", "1", "--cpus", "2", "--", "sleep 60")
        other.wait_state(held, "RUNNING")
        lab.ok("nodes", "probe", "gpu3")
        mine = lab.submit("--on", "gpu3", "--gpus", "1", "--", "echo mine")
        until(lambda: lab.job(mine)["state"] == "PENDING" and lab.ok("why", mine).out)
        assert lab.job(mine)["state"] == "PENDING"
        other.ok("cancel", "--force", held)
        lab.ok("wait", mine)


def test_output_is_seen_while_the_task_runs(lab: TemporaryYard) -> None:
    job = lab.submit("--on", "gpu2", "--", "echo first; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo last")
    with lab.start("logs", "-f", job) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"first\n"
        assert lab.job(job)["state"] == "RUNNING"
        lab.ok("run", "--on", "gpu2", "--", "touch /tmp/go")
        assert following.stdout.read() == b"last\n"
    assert following.returncode == 0


def test_a_followed_task_has_its_own_bytes_and_exit_code(lab: TemporaryYard) -> None:
    done = lab.run("run", "--exit-code", "--on", "gpu1", "--", "printf 'a\\0b'; echo oh >&2; exit 7")
    assert (done.code, done.stdout) == (7, b"a\0b")
    assert b"oh\n" in done.stderr


def test_a_long_output_arrives_whole(lab: TemporaryYard) -> None:
    done = lab.run("run", "--on", "gpu1", "--", "seq 1 400000")
    assert done.stdout == "".join(f"{number}\n" for number in range(1, 400001)).encode()


def test_each_task_has_its_two_files_also_when_the_server_is_killed_as_tasks_end(lab: TemporaryYard) -> None:
    line = "printf 'a\\0b %s\\n' $YARD_TASK; echo oh $YARD_TASK >&2; sleep 0.1"
    words = ("--output", "o/%t.out", "--error", "o/%t.err", "-c", "0.5", "-a", "0-39")
    job = lab.submit("--on", "lab", "--no-copy", *words, "--", line)
    for ended in (3, 15, 30):
        until(lambda ended=ended: lab.json("show", job)["counts"]["succeeded"] >= ended)  # type: ignore[misc]
        if pid := lab.server_pid():
            os.kill(pid, signal.SIGKILL)
    lab.ok("wait", job)
    assert {path.name: path.read_bytes() for path in (lab.work / "o").iterdir()} == {
        f"{task}.{stream}": f"{text} {task}\n".encode()
        for task in range(40)
        for stream, text in (("out", "a\0b"), ("err", "oh"))
    }


def test_the_file_of_a_task_that_runs_there_grows_here_also_over_the_death_of_a_server(
    lab: TemporaryYard, hosts: Hosts
) -> None:
    out, more, enough = lab.work / "o/0.out", hosts["gpu1"].home / "more", hosts["gpu1"].home / "enough"
    waits = "; ".join(f"until test -e ~/{file.name}; do sleep 0.1; done; echo two" for file in (more, enough))
    line = f"echo one; {waits}"
    job = lab.submit("--on", "gpu1", "--no-copy", "--output", "o/%t.out", "--", line)
    until(lambda: out.exists() and out.read_text() == "one\n")
    with out.open() as tail:
        if pid := lab.server_pid():
            os.kill(pid, signal.SIGKILL)
        more.touch()
        lab.ok("ls")
        until(lambda: out.read_text() == "one\ntwo\n")
        enough.touch()
        lab.ok("wait", job)
        assert tail.read() == "one\ntwo\ntwo\n", "it is the same file"


# -- the tree there, and results home


def test_each_task_has_a_copy_of_its_own_and_the_source_stays(lab: TemporaryYard) -> None:
    lab.write("data.txt", "same\n")
    lab.write("sub dir/with space", "x\n")
    os.symlink("data.txt", lab.work / "link")
    before = tree(lab.work)
    script = (
        "cat link 'sub dir/with space'; ls | sort | tr '\\n' ' '; echo $YARD_TASK >> data.txt; touch mine.$YARD_TASK"
    )
    lab.ok("run", "--on", "gpu1", "-a", "0-3", "--", script)
    for task in range(4):
        assert lab.logs("last", "--task", str(task), "--raw").endswith("data.txt link sub dir ")
    job = lab.job()["id"]
    after = tree(lab.work)
    results = {name: text for name, text in after.items() if name.startswith("job_results/")}
    assert {name: text for name, text in after.items() if name not in results} == before
    for task in range(4):
        assert results[f"job_results/{job}/{task}/data.txt"] == f"same\n{task}\n"
        assert results[f"job_results/{job}/{task}/mine.{task}"] == ""
        assert f"job_results/{job}/{task}/link" not in results
        assert f"job_results/{job}/{task}.out" in results


def test_only_what_is_new_or_changed_comes_home(lab: TemporaryYard) -> None:
    lab.write("kept", "k\n")
    lab.write("changed", "a\n")
    script = "mkdir -p 'a b'; echo n > 'a b/new file'; ln -s 'new file' 'a b/ln'; echo b > changed; cat kept"
    script += "; echo o > $YARD_OUTPUT_DIR/o"
    lab.ok("run", "--on", "gpu3", "--", script)
    job = lab.job()["id"]
    home = lab.work / "job_results"
    assert tree(home / job) == {
        "a b/ln": "-> new file",
        "a b/new file": "n\n",
        "changed": "b\n",
        "output/o": "o\n",
    }
    assert (home / f"{job}.out").read_text() == "k\n"
    assert (home / f"{job}.err").read_text() == ""


def test_results_have_a_directory_also_when_nothing_changed(lab: TemporaryYard) -> None:
    lab.write("kept", "k\n")
    lab.ok("run", "--on", "gpu1", "--", "true")
    directory = lab.work / "job_results" / lab.job()["id"]
    assert directory.is_dir()
    assert not list(directory.iterdir())


def test_a_failed_task_brings_its_results_home_too_and_a_retry_has_the_plain_names(lab: TemporaryYard) -> None:
    script = "echo attempt $YARD_ATTEMPT | tee result; echo same > same; [ $YARD_ATTEMPT = 2 ]"
    lab.ok("run", "--retries", "1", "--on", "gpu1", "--", script)
    job = lab.job()["id"]
    assert tree(lab.work / "job_results") == {
        f"{job}/result": "attempt 2\n",
        f"{job}/same": "same\n",
        f"{job}.out": "attempt 2\n",
        f"{job}.err": "",
        f"{job}.attempt1/result": "attempt 1\n",
        f"{job}.attempt1/same": "same\n",
        f"{job}.out.attempt1": "attempt 1\n",
        f"{job}.err.attempt1": "",
    }
    lab.ok("fetch", job, "--to", "elsewhere")
    assert tree(lab.work / "elsewhere")[f"{job}/result"] == "attempt 2\n"
    lab.ok("fetch", job)
    assert "fetched" not in str(tree(lab.work / "job_results")), "it is all here"


def test_what_is_to_be_ignored_stays_at_home(lab: TemporaryYard) -> None:
    lab.write(".gitignore", "*.big\n")
    lab.write(".yardignore", "secret/\n")
    for name in ("code.py", "data.big", "secret/key", "job_results/old/result", ".git/HEAD"):
        lab.write(name, "x\n")
    done = lab.ok("run", "--on", "gpu2", "--", "find . -type f | sort")
    assert done.out.split() == ["./.gitignore", "./.yardignore", "./code.py"]


def test_paths_may_be_chosen_both_ways(lab: TemporaryYard) -> None:
    for name in ("src/a.py", "data/d"):
        lab.write(name, "x\n")
    words = ("--copy-forward", "src", "--copy-backwards", "out")
    done = lab.ok("run", *words, "--on", "gpu2", "--", "find . -type f; mkdir out; echo 1 > out/r; echo 2 > else")
    assert done.out == "./src/a.py\n"
    assert tree(lab.work / "job_results" / lab.job()["id"]) == {"out/r": "1\n"}


def test_results_can_be_fetched_elsewhere_later(lab: TemporaryYard) -> None:
    lab.ok("run", "--on", "gpu1", "-a", "0-1", "--", "echo $YARD_TASK > r; echo out")
    job = lab.job()["id"]
    lab.ok("fetch", job, "--to", "elsewhere")
    assert tree(lab.work / "elsewhere") == tree(lab.work / "job_results")
    assert tree(lab.work / "elsewhere")[f"{job}/1/r"] == "1\n"


def test_a_tree_is_sent_once_for_many_tasks_and_jobs(lab: TemporaryYard, hosts: Hosts) -> None:
    lab.write("blob", os.urandom(1 << 16).hex())
    lab.ok("run", "--on", "gpu1", "-a", "0-9", "--", "true")
    known = snapshots(hosts["gpu1"])
    lab.ok("run", "--on", "gpu1", "-a", "0-9", "--", "true")
    assert snapshots(hosts["gpu1"]) == known
    lab.write("blob", "other")
    lab.ok("run", "--on", "gpu1", "--", "true")
    assert len(snapshots(hosts["gpu1"])) == len(known) + 1


def snapshots(host: Host) -> set[str]:
    return {path.name for path in (host.home / AGENTS).glob("*/snapshots/*")}


def test_nothing_of_a_task_is_left_there_but_its_record(lab: TemporaryYard, hosts: Hosts) -> None:
    lab.write("big", "x" * 100_000)
    lab.ok("run", "--on", "gpu3", "-a", "0-3", "--", "cp big copy")
    job = lab.job()["id"]
    (directory,) = (hosts["gpu3"].home / AGENTS).glob(f"*/jobs/{job}")
    until(lambda: not list(directory.rglob("*.work")))
    assert not list(directory.rglob("copy"))


# -- the connection


def test_a_machine_is_logged_in_to_once_and_gets_the_agent_once(hosts: Hosts) -> None:
    host = hosts["gpu1"]
    before = host.sshd_log.read_text().count("Accepted publickey")
    pushed = host.home / ".cache/jobyard" / f"agent-{agent_zipapp()[1]}.pyz"
    with TemporaryYard(YARD_SSH_CONFIG=str(hosts.config_file)) as yard:
        yard.write("tree", "x" * 1000)
        yard.ok("nodes", "add", "gpu1")
        when = pushed.stat().st_mtime_ns
        for _ in range(3):
            yard.ok("run", "--on", "gpu1", "--", "cat tree")
        yard.ok("nodes", "probe", "gpu1")
        assert host.sshd_log.read_text().count("Accepted publickey") == before + 1
        yard.ok("nodes", "rm", "gpu1")
        yard.ok("nodes", "add", "gpu1")
        assert pushed.stat().st_mtime_ns == when


def test_a_machines_name_may_be_user_host_and_port(hosts: Hosts) -> None:
    host = hosts["gpu2"]
    config = hosts.directory / "anyone"
    config.write_text(
        f"Host *\n  UserKnownHostsFile {host.known_hosts}\n  IdentityFile {host.key}\n  StrictHostKeyChecking yes\n"
    )
    with TemporaryYard(YARD_SSH_CONFIG=str(config)) as yard:
        target = f"{host.user}@{host.address}:{host.port}"
        yard.ok("nodes", "add", target, "--name", "box", "--label", "fast")
        assert yard.ok("run", "--on", "fast", "--", "hostname").out == "gpu2\n"
        machine = {"username": host.user, "ip": host.address, "port": host.port, "ssh_key_path": host.key}
        yard.write("m1.yaml", "".join(f"{key}: {value}\n" for key, value in machine.items()))
        yard.ok("nodes", "add", "m1.yaml")
        assert yard.ok("run", "--on", "m1", "--", "hostname").out == "gpu2\n"


def test_a_drained_node_finishes_and_gets_nothing_new(lab: TemporaryYard, hosts: Hosts) -> None:
    go = hosts["gpu1"].home / "finish"
    running = lab.submit("--on", "gpu1", "--", "until [ -e ~/finish ]; do sleep 0.1; done; rm ~/finish")
    lab.wait_state(running, "RUNNING")
    lab.ok("nodes", "drain", "gpu1")
    try:
        waiting = lab.submit("--on", "gpu1", "--", "true")
        go.touch()
        lab.ok("wait", running)
        assert lab.job(waiting)["state"] == "PENDING"
        assert "drain" in lab.ok("why", waiting).out
    finally:
        lab.ok("nodes", "resume", "gpu1")
    lab.ok("wait", waiting)


def test_a_node_in_use_is_let_go_only_by_force_and_its_tasks_move(lab: TemporaryYard, hosts: Hosts) -> None:
    job = lab.submit("--on", "lab", "-a", "0-5", "--", "until [ -e ~/go ]; do sleep 0.3; done")
    until(lambda: lab.job(job)["counts"]["running"] == 6)
    refused = lab.run("nodes", "rm", "gpu3")
    assert refused.code == 2
    assert "gpu3" in refused.err
    lab.ok("nodes", "rm", "--force", "gpu3")
    try:
        until(lambda: not [process for process in hosts["gpu3"].processes() if "~/go" in process.command])
        for name in ("gpu1", "gpu2"):
            (hosts[name].home / "go").touch()
        lab.ok("wait", job)
        moved = [task for task in lab.tasks(job) if task["attempt"] == 2]
        assert len(moved) == 2
        assert {task["node"] for task in moved} <= {"gpu1", "gpu2"}
    finally:
        for name in ("gpu1", "gpu2"):
            (hosts[name].home / "go").unlink(missing_ok=True)
        lab.ok("nodes", "add", "gpu3", "--label", "lab")


# -- bad machines: one sentence with the node's name, and the others go on


@pytest.fixture
def spare(hosts: Hosts) -> Iterator[Host]:
    """A host that this test may spoil."""
    with Hosts(1, names=["spare"]) as own:
        yield own[0]


@pytest.fixture
def beside(spare: Host, hosts: Hosts) -> Iterator[TemporaryYard]:
    """A yard that knows the spare host and gpu1."""
    config = spare.directory.parent / "both"
    config.write_text(f"{hosts.config_file.read_text()}\n{spare.config_file.read_text()}")
    with TemporaryYard(YARD_SSH_CONFIG=str(config), YARD_ALIVE_SECONDS="1") as yard:
        yield yard


def refusal(yard: TemporaryYard) -> str:
    """What adding the spare host says, while gpu1 is added."""
    done = yard.run("nodes", "add", "spare", "gpu1")
    assert done.code == 1, done
    assert done.out.startswith("gpu1 added")
    (sentence,) = done.err.splitlines()
    assert "node spare:" in sentence
    assert [node["id"] for node in yard.json("nodes")][1:] == ["gpu1"]
    return sentence


def test_a_changed_host_key(spare: Host, beside: TemporaryYard, hosts: Hosts) -> None:
    other = hosts["gpu1"].host_key.split()
    spare.known_hosts.write_text(f"{spare.address} {' '.join(other[:2])}\n")
    assert "its host key has changed" in refusal(beside)


def test_an_unknown_host_key(spare: Host, beside: TemporaryYard) -> None:
    spare.known_hosts.write_text("")
    assert "its host key is not known" in refusal(beside)


def test_a_wrong_key(spare: Host, beside: TemporaryYard) -> None:
    (spare.directory / "etc/authorized_keys").write_text("")
    assert "the login was refused" in refusal(beside)


def test_a_port_where_nobody_listens(spare: Host, beside: TemporaryYard) -> None:
    spare.stop_sshd()
    assert "connection refused" in refusal(beside)


def test_an_address_where_nobody_is(spare: Host, beside: TemporaryYard) -> None:
    spare.cut()
    assert "does not answer (timed out)" in refusal(beside)


def test_no_python(spare: Host, beside: TemporaryYard) -> None:
    spare.replace_command("python3", None)
    assert "there is no python3" in refusal(beside)


def test_an_old_python(spare: Host, beside: TemporaryYard) -> None:
    old = "import sys; sys.version_info = (3, 6, 9); sys.argv[0] = '-c'; exec(sys.argv.pop(1))"
    spare.replace_command("python3", f'#!/bin/sh\nshift\nexec /usr/bin/python3 -c "{old}" "$@"\n')
    assert "older than 3.8" in refusal(beside)


def test_a_home_that_cannot_be_written(spare: Host, beside: TemporaryYard) -> None:
    spare.protect_home()
    assert "its home cannot be written" in refusal(beside)


def test_a_login_that_talks_does_no_harm(spare: Host, beside: TemporaryYard) -> None:
    (spare.home / ".bashrc").write_text("echo Welcome to the lab\necho careful >&2\n")
    beside.ok("nodes", "add", "spare")
    assert beside.ok("run", "--on", "spare", "--", "hostname").out == "spare\n"


def test_a_yard_is_not_held_up_by_a_node_that_is_gone(spare: Host, beside: TemporaryYard) -> None:
    beside.ok("nodes", "add", "spare", "gpu1")
    spare.power_off()
    beside.ok("server", "stop")
    done = beside.ok("run", "--on", "gpu1", "--", "hostname")
    assert done.out == "gpu1\n"
    waiting = beside.submit("--on", "spare", "--", "true")
    until(lambda: "spare" in beside.ok("why", waiting).out)
    until(lambda: any(node["problem"] for node in beside.json("nodes")))
    spare.power_on()
    beside.ok("wait", waiting)


def test_the_shells_variables_do_not_travel(lab: TemporaryYard) -> None:
    done = lab.ok("run", "--on", "gpu1", "-e", "MINE=yes", "--", "env", env={"SECRET": "of-the-shell"})
    assert "MINE=yes" in done.out
    assert "of-the-shell" not in done.out
    assert "HOME=/root" in done.out or os.getuid() != 0


def test_many_yards_commands_at_once_are_all_answered(lab: TemporaryYard) -> None:
    results: list[int] = []
    calls = [
        threading.Thread(target=lambda: results.append(lab.run("run", "--on", "lab", "--", "true").code))
        for _ in range(6)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert results == [0] * 6


def test_no_process_is_left_when_a_node_was_let_go(hosts: Hosts) -> None:
    host = hosts["gpu2"]
    with TemporaryYard(YARD_SSH_CONFIG=str(hosts.config_file)) as yard:
        yard.ok("nodes", "add", "gpu2", "--name", "brief")
        yard.ok("run", "--on", "brief", "--", "true")
        mark = ".brief-"
        assert [process for process in host.processes() if mark in process.command]
        yard.ok("nodes", "rm", "brief")
        until(lambda: not [process for process in host.processes() if mark in process.command])
