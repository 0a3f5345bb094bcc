"""Results of several attempts at one task, on their way home through crashes."""

from __future__ import annotations

import io
import os
import signal
import sys
import tarfile
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.job import Command, GroupSpec
from jobyard.model.task import AttemptId
from jobyard.server import result_collection
from jobyard.server.result_collection import collect_results, tidy_up
from tests.builders import a_job, with_words


@pytest.fixture
def job(tmp_path: Path) -> SubmittedJob:
    groups = (GroupSpec(command=Command(argv=("true",))),)
    return SubmittedJob("7", 7, a_job(groups=groups, name="j", results_dir=str(tmp_path / "home")))


def an_attempt(mirror: Mirror, number: int, files: dict[str, str], out: str = "") -> AttemptId:
    """Its streams are here."""
    attempt = AttemptId("7", 0, number)
    path = mirror.path(attempt, "results")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content.encode()))
    mirror.path(attempt, "out").write_text(out)
    return attempt


def counts(mirror: Mirror, attempt: AttemptId) -> None:
    mirror.told([attempt])
    mirror.unmark([attempt])


def found(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    return {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()}


def test_the_plain_names_are_those_of_the_latest_attempt(tmp_path: Path, job: SubmittedJob) -> None:
    mirror = Mirror(tmp_path / "mirror")
    for number in (1, 2, 3):
        attempt = an_attempt(mirror, number, {"r": f"{number}", "same": "s"}, out=f"said {number}")
        collect_results(mirror, job, attempt)
        counts(mirror, attempt)
    expected = {"7/r": "3", "7/same": "s", "7.out": "said 3", "7.err": ""}
    for number in (1, 2):
        expected |= {f"7.attempt{number}/r": f"{number}", f"7.attempt{number}/same": "s"}
        expected |= {f"7.out.attempt{number}": f"said {number}", f"7.err.attempt{number}": ""}
    assert found(tmp_path) == expected


def test_output_that_was_packed_makes_room_for_a_later_attempt_too(tmp_path: Path, job: SubmittedJob) -> None:
    mirror = Mirror(tmp_path / "mirror")
    for number in (1, 2):
        attempt = an_attempt(mirror, number, {}, out=f"said {number}")
        collect_results(mirror, job, attempt)
        counts(mirror, attempt)
        mirror.pack(["7"], lambda job: True)
    expected = {"7.out": "said 2", "7.err": "", "7.out.attempt1": "said 1", "7.err.attempt1": ""}
    assert found(tmp_path) == expected


@pytest.mark.parametrize("crash", ["set_aside", "set_log_aside", "unpack_results", "copy_log"])
@pytest.mark.parametrize("is_done", [False, True])
def test_a_server_that_dies_on_the_way_is_made_up_for(
    tmp_path: Path, job: SubmittedJob, monkeypatch: pytest.MonkeyPatch, crash: str, is_done: bool
) -> None:
    mirror = Mirror(tmp_path / "mirror")
    first = an_attempt(mirror, 1, {"r": "1", "same": "s"}, out="said 1")
    collect_results(mirror, job, first)
    counts(mirror, first)
    second = an_attempt(mirror, 2, {"r": "2", "same": "s"}, out="said 2")

    work = getattr(result_collection, crash)

    def die(*arguments: object, **more: object) -> None:
        if is_done:
            work(*arguments, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(result_collection, crash, die)
        with pytest.raises(KeyboardInterrupt):
            collect_results(mirror, job, second)
    collect_results(Mirror(tmp_path / "mirror"), job, second)
    aside = {"7.attempt1/r": "1", "7.attempt1/same": "s", "7.out.attempt1": "said 1", "7.err.attempt1": ""}
    assert found(tmp_path) == {"7/r": "2", "7/same": "s", "7.out": "said 2", "7.err": "", **aside}


def test_what_was_given_up_leaves_nothing(tmp_path: Path, job: SubmittedJob) -> None:
    mirror = Mirror(tmp_path / "mirror")
    collect_results(mirror, job, an_attempt(mirror, 1, {"r": "1"}, out="said 1"))
    collect_results(mirror, job, an_attempt(mirror, 2, {"r": "2"}, out="said 2"))
    assert found(tmp_path) == {"7/r": "2", "7.out": "said 2", "7.err": ""}


STEPS = {"open", "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.utime"}


def ends_before(step: int, work: Callable[[], None]) -> bool:
    """Do it in a child that is killed before it touches files for the `step`th time; whether it was done before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: the child needs none of them
        child = os.fork()
    if child == 0:
        left = iter(range(step))

        def hook(event: str, _: object) -> None:
            if event in STEPS and next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("next_one", [0, 1, 2], ids=["nobody", "the same attempt again", "its successor"])
def test_a_kill_at_any_step_leaves_nothing_half_written_whoever_comes_next(
    tmp_path: Path, job: SubmittedJob, next_one: int
) -> None:
    for step in count():
        place = tmp_path / str(step)
        mirror = Mirror(place / "mirror")
        home = job._replace(spec=with_words(job.spec, results_dir=str(place / "home")))
        for number in (1, 2):
            an_attempt(mirror, number, {"r": f"{number}", "d/same": "s", "d/e/f": "f" * number}, out=f"said {number}")
        is_done = ends_before(step, lambda: collect_results(mirror, home, AttemptId("7", 0, 1)))  # noqa: B023

        mirror = Mirror(place / "mirror")
        tidy_up(mirror, lambda _: home)  # noqa: B023
        if next_one:
            collect_results(mirror, home, AttemptId("7", 0, next_one))
            expected = {"7/r": f"{next_one}", "7/d/same": "s", "7/d/e/f": "f" * next_one}
            assert found(place) == expected | {"7.out": f"said {next_one}", "7.err": ""}
        assert not [path for path in place.rglob("*") if "yard-part" in path.name]
        if is_done:
            assert step > 30
            return
