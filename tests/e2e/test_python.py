"""A program that uses the yard: functions run as tasks, and their results, errors and deaths come back."""

from __future__ import annotations

import importlib
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from jobyard import Yard
from jobyard.errors import TaskFailed
from jobyard.model.job import State
from jobyard.python_api.call_folder import FOLDER
from tests.engines import Engine, engine  # noqa: F401 - a fixture
from tests.hosts import Hosts
from tests.yards import ROOT, TemporaryYard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab() -> Iterator[TemporaryYard]:
    with TemporaryYard() as yard:
        yard.ok("server", "start")
        yield yard


@pytest.fixture
def yard(lab: TemporaryYard) -> Yard:
    return Yard(f"unix:{lab.socket}")


def test_functions_run_as_tasks_and_their_results_errors_and_deaths_come_back(lab: TemporaryYard, yard: Yard) -> None:
    def call(number: int) -> int:
        print("called with", number)
        if number == 2:
            raise ValueError("two is wrong")
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number

    work = str(lab.work)
    job = yard.map(call, range(4), workdir=work, cpus=0.1)
    found = job.results(return_exceptions=True)
    assert found[:2] == [0, 1]
    assert isinstance(found[2], ValueError)
    assert "two is wrong" in str(found[2].__cause__)
    assert isinstance(found[3], TaskFailed)
    assert str(found[3]).startswith(f"task 3 of job {job.number} (call) failed: killed by signal 9")
    assert str(found[3]).endswith("its output ends with:\ncalled with 3")
    assert job.wait() is State.FAILED
    assert [task.state for task in job.tasks()] == [State.SUCCEEDED, State.SUCCEEDED, State.FAILED, State.FAILED]

    # Another program finds the same; and a retry brings new futures for what failed.
    again = yard.job(job.id)
    assert again.results(return_exceptions=True)[:2] == [0, 1]
    before = list(job.futures)
    job.retry()
    assert isinstance(job.futures[2].exception(), ValueError)
    assert [one is other for one, other in zip(before, job.futures, strict=True)] == [True, True, False, False]


def test_within_a_task_the_yard_is_there_too(lab: TemporaryYard, yard: Yard) -> None:
    """Though the SDK's own package stands before the installed one."""

    def name_there() -> str:
        import jobyard
        import jobyard.sdk

        return jobyard.Yard.__name__ + jobyard.sdk.__name__

    assert yard.submit(name_there, workdir=str(lab.work)).result() == "Yardjobyard.sdk"


def test_a_command_is_a_job_too(lab: TemporaryYard, yard: Yard) -> None:
    with yard:
        job = yard.submit("echo out; echo err >&2", workdir=str(lab.work), name="both")
        assert (job.result(), job.logs(stream="err"), job.name) == ("out\n", "err\n", "both")
        failed = yard.submit(["sh", "-c", "echo why; exit 3"], workdir=str(lab.work))
        with pytest.raises(TaskFailed, match=r"failed: exited with code 3; its output ends with:\nwhy"):
            failed.result()
        assert {view.id for view in yard.jobs(all=True)} >= {job.id, failed.id}


def test_the_guide_does_what_it_says(lab: TemporaryYard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block as it stands, one after another, in the yard of YARD_URL."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guide" / "python.md").read_text(), re.DOTALL)
    assert len(blocks) > 5
    monkeypatch.setenv("YARD_URL", f"unix:{lab.socket}")
    monkeypatch.chdir(lab.work)
    program = {"__name__": "__main__"}  # so that its functions are those of a program
    for number, block in enumerate(blocks):
        exec(compile(block, f"block {number} of python.md", "exec"), program)
    assert (lab.work / FOLDER / ".gitignore").exists()


# -- elsewhere: the same map, whose module and data travel with the working directory

MODULE = "def scaled(number):\n    return number * float(open('factor').read())\n"


def map_in(lab: TemporaryYard, monkeypatch: pytest.MonkeyPatch, name: str, **said: Any) -> tuple[list[Any], set[str]]:
    """The results of a map over a function of a module, and the nodes where it ran."""
    project = lab.work / name
    project.mkdir()
    (project / "factor").write_text("1.5")
    (project / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(project))
    function = importlib.import_module(name).scaled
    job = Yard(f"unix:{lab.socket}").map(function, range(4), chunk=2, workdir=str(project), cpus=0.1, **said)
    results = job.results()
    return results, {task.node for task in job.tasks()}


def test_the_same_map_runs_here(lab: TemporaryYard, monkeypatch: pytest.MonkeyPatch) -> None:
    assert map_in(lab, monkeypatch, "here_module", on="local")[0] == [0, 1.5, 3, 4.5]


def test_the_same_map_runs_over_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    with Hosts(1) as hosts, TemporaryYard(YARD_SSH_CONFIG=str(hosts.config_file)) as yard:
        yard.ok("nodes", "add", "gpu1")
        results, nodes = map_in(yard, monkeypatch, "ssh_module", on="gpu1")
        assert (results, nodes) == ([0, 1.5, 3, 4.5], {"gpu1"})
        job = Yard(f"unix:{yard.socket}").map(os._exit, [3], workdir=str(yard.work), on="gpu1")
        with pytest.raises(TaskFailed, match="exited with code 3"):
            job.results()


def test_the_same_map_runs_in_a_container(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    with TemporaryYard(JOBYARD_CONTAINER_RUNTIME=engine.command) as yard:
        yard.ok("server", "start")
        results, _ = map_in(yard, monkeypatch, "box_module", container=True, image=engine.load_python())
        assert results == [0, 1.5, 3, 4.5]
