"""What an earlier attempt brought home makes room for the next one's, and nothing else does."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from jobyard.staging.results import copy_log, set_aside, set_log_aside, unpack_results
from tests.unit.staging.trees import plant


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "job_results" / "7"


def an_archive(tmp_path: Path, files: dict[str, str]) -> Path:
    source, archive = tmp_path / "source", tmp_path / "results.tar"
    for name, content in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(content)
    with tarfile.open(archive, "w") as tar:
        for path in sorted(source.rglob("*")):
            tar.add(path, path.relative_to(source), recursive=False)
    return archive


def found(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def test_what_is_untouched_moves_and_what_was_edited_or_is_not_ours_stays(tmp_path: Path, home: Path) -> None:
    archive = an_archive(tmp_path, {"model": "1", "sub/deep/log": "1", "edited": "theirs"})
    unpack_results(archive, home)
    (home / "edited").write_text("mine!!")
    (home / "own").write_text("own")
    for _ in range(2):  # again, as after a crash
        set_aside(archive, home, attempt=1)
        assert found(home.parent) == {
            "7/edited": "mine!!",
            "7/own": "own",
            "7.attempt1/model": "1",
            "7.attempt1/sub/deep/log": "1",
        }
    assert not (home / "sub").exists(), "it was empty"


def test_a_move_that_was_cut_off_is_finished(tmp_path: Path, home: Path) -> None:
    archive = an_archive(tmp_path, {"a": "1", "b": "2"})
    unpack_results(archive, home)
    aside = home.with_name("7.attempt1")
    aside.mkdir()
    os.link(home / "a", aside / "a")  # it has its new name, and still the old one
    set_aside(archive, home, attempt=1)
    assert found(home.parent) == {"7.attempt1/a": "1", "7.attempt1/b": "2"}


def test_what_has_the_other_name_already_stays(tmp_path: Path, home: Path) -> None:
    archive = an_archive(tmp_path, {"a": "1"})
    unpack_results(archive, home)
    plant(home.parent, {"7.attempt1/a": b"mine"})
    set_aside(archive, home, attempt=1)
    assert found(home.parent) == {"7.attempt1/a": "mine", "7.attempt1/a.attempt1": "1"}


def test_a_file_that_has_the_name_of_the_directory_stays(tmp_path: Path, home: Path) -> None:
    archive = an_archive(tmp_path, {"a": "1"})
    unpack_results(archive, home)
    plant(home.parent, {"7.attempt1": b"mine"})
    set_aside(archive, home, attempt=1)
    assert found(home.parent) == {"7.attempt1": "mine", "7.attempt1.attempt1/a": "1"}


def test_a_log_moves_if_it_is_ours(tmp_path: Path, home: Path) -> None:
    source, out = tmp_path / "said", home.with_name("7.out")
    source.write_text("said\n")
    copy_log(source, out)
    set_log_aside(source, out, attempt=1)
    set_log_aside(source, out, attempt=1)
    assert found(home.parent) == {"7.out.attempt1": "said\n"}
    out.write_text("edited\n")
    set_log_aside(source, out, attempt=1)
    assert out.read_text() == "edited\n"


def test_an_attempt_that_said_nothing_leaves_an_empty_log_behind(tmp_path: Path, home: Path) -> None:
    out = home.with_name("7.out")
    copy_log(tmp_path / "none", out)
    set_log_aside(tmp_path / "none", out, attempt=1)
    assert found(home.parent) == {"7.out.attempt1": ""}
