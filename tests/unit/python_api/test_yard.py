"""Is a yard found as the command line finds it, and is what cannot be done there refused before anything is sent?"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobyard import Yard
from jobyard.client.address import Address
from jobyard.errors import Unreachable, UserError
from jobyard.model.job import JobSpec, State
from jobyard.python_api import call_file
from jobyard.python_api import job as jobs
from jobyard.python_api.asynchronous import AsyncJob
from jobyard.python_api.call_folder import FOLDER
from jobyard.python_api.functions import calls_of
from jobyard.python_api.job import Job
from jobyard.wire.views import JobView
from tests.unit.python_api.test_display import a_view


class PlayedClient:
    """A yard that knows a cluster and a machine, and takes nothing."""

    def __init__(self, address: Address, view: JobView | None = None) -> None:
        self.address, self.view = address, view

    def job(self, selector: str) -> JobView:
        assert self.view is not None
        return self.view

    def clusters(self) -> list[Any]:
        return [SimpleNamespace(id="west")]

    def nodes(self) -> list[Any]:
        return [SimpleNamespace(id="vm", labels=())]

    def server(self) -> Any:
        return SimpleNamespace(last_event=3, yard_id="mine")

    def submit(self, spec: object) -> Any:
        raise UserError("there is no job 7", field="--after")


def a_yard(url: str, view: JobView | None = None) -> Yard:
    yard = Yard(url)
    assert yard._address is not None
    yard.__dict__["client"] = PlayedClient(yard._address, view)
    return yard


@pytest.mark.parametrize(
    ("url", "said", "sentence"),
    [
        ("http://far:80", {}, "functions go through files, and the yard at http://far:80 is reached over the network"),
        ("unix:/s", {"on": "west"}, "on: functions do not run on Kubernetes yet, and 'west' is a cluster"),
        (
            "unix:/s",
            {"on": "vm,west/node1"},
            "on: functions do not run on Kubernetes yet, and 'west/node1' is a cluster",
        ),
        ("unix:/s", {"on": "kubernetes"}, "on: functions do not run on Kubernetes yet"),
        ("unix:/s", {"kind": "rayjob"}, "kind: functions do not run on Kubernetes yet; leave it out"),
        ("unix:/s", {"array": "0-3"}, r"array: map\(\) makes an array of the arguments; leave it out"),
        ("unix:/s", {"chunk": 0}, "chunk: 0 is not a number of calls for each task; write 1 or more"),
        ("unix:/s", {"cpus": "many"}, "cpus: cannot read 'many'"),
        ("unix:/s", {"after": 7}, "after: there is no job 7"),
    ],
)
def test_what_a_function_cannot_be_asked_is_refused_and_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, said: dict[str, Any], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"^{sentence}"):
        a_yard(url).map(abs, [1], **said)
    assert not list((tmp_path / FOLDER).glob("*.call"))


def test_mapping_over_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="map: there are no arguments, so there is nothing to run"):
        a_yard("unix:/s").map(abs, [])
    assert not list((tmp_path / FOLDER).glob("*.call"))


@pytest.mark.parametrize(("url", "is_owners"), [("unix:/s", False), ("http://far:80", True)])
def test_results_of_a_job_that_somebody_else_submitted_are_not_unpickled(
    tmp_path: Path, url: str, is_owners: bool
) -> None:
    calls = calls_of(abs, [((-1,), {})], chunk=1, python="")
    command = f"sh {call_file.write(calls, tmp_path, 'train').path.name}"
    view = replace(a_view(command=command), workdir=str(tmp_path / FOLDER), is_owners=is_owners)
    with pytest.raises(UserError, match=r"job 1 \(train\) says that it calls .* look at it with `yard show 1`"):
        a_yard(url, view).job("train")


def test_arguments_belong_to_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="submit: only a function has arguments and a python; write those of a program"):
        a_yard("unix:/s").submit("echo", "hello")  # type: ignore[call-overload]


def test_an_address_is_read_as_yard_url_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("YARD_URL", "https://team")
    monkeypatch.setenv("YARD_TOKEN", "secret")
    assert repr(Yard()) == "<Yard https://team:443>"
    assert repr(Yard(directory=tmp_path)) == f"<Yard {tmp_path}>"  # as --yard, which wins over it
    with pytest.raises(UserError, match=r"^url: cannot read 'nonsense'; write http://HOST:PORT"):
        Yard("nonsense")
    with pytest.raises(UserError, match=r"^url and directory: they name two yards; leave one of them out"):
        Yard("unix:/s", directory=tmp_path)


def test_whoever_presses_ctrl_c_is_told_that_the_job_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    job = Job(PlayedClient(Address(socket="/s")), a_view())  # type: ignore[arg-type]
    job._end = Future()
    monkeypatch.setattr(jobs, "wait", pressed)
    with pytest.raises(KeyboardInterrupt) as raised:
        job.wait()
    assert raised.value.__notes__ == ["job 1 (train) goes on; to cancel it: job.cancel(), or `yard cancel 1`"]


def test_a_job_is_printed_with_its_state_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    client = PlayedClient(Address(socket="/s"))
    job = Job(client, a_view())  # type: ignore[arg-type]

    def gone(_id: str) -> None:
        raise Unreachable("no yard answers")

    monkeypatch.setattr(client, "job", gone, raising=False)
    assert str(job) == "job 1 (train) is running", "as it was last seen"
    monkeypatch.setattr(client, "job", lambda _id: a_view(State.FAILED))
    assert str(job) == "job 1 (train) failed"
    assert str(AsyncJob(job)) == "job 1 (train) failed"


def test_the_job_of_a_lambda_has_a_name_that_a_shell_takes_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    yard, names = a_yard("unix:/s"), []

    def submit(spec: JobSpec) -> None:
        names.append(spec.name)
        raise UserError("enough")

    monkeypatch.setattr(yard.client, "submit", submit)
    with pytest.raises(UserError, match="enough"):
        yard.map(lambda number: number, [1])
    assert names == ["lambda"]


def test_a_job_of_several_tasks_has_several_results() -> None:
    job = Job(PlayedClient(Address(socket="/s")), a_view(total=4))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"job 1 \(train\) has 4 tasks; ask for results\(\), or for logs\(task=...\)"):
        job.result()


def test_waiting_has_an_end_where_one_is_set() -> None:
    job = Job(PlayedClient(Address(socket="/s")), a_view(State.RUNNING))  # type: ignore[arg-type]
    job._end = Future()
    with pytest.raises(TimeoutError, match=r"job 1 \(train\) has not ended in 0 s; it goes on"):
        job.wait(0)
