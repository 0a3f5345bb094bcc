"""Can another user who may write to the working directory change what tasks run, or where a function is written?"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jobyard.errors import UserError
from jobyard.python_api import call_file
from jobyard.python_api.call_file import CallFile, delete_forgotten, job_of, read_counts
from jobyard.python_api.call_folder import FOLDER
from jobyard.python_api.functions import calls_of


def written(work: Path) -> CallFile:
    return call_file.write(calls_of(abs, [((1,), {})], chunk=1, python=""), work, "train")


def test_a_folder_of_another_user_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FOLDER).mkdir(mode=0o755)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(UserError, match=r"\.jobyard: it belongs to user .*; remove it, or name another directory with"):
        written(tmp_path)
    assert os.listdir(tmp_path / FOLDER) == []


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused_and_nothing_is_written(tmp_path: Path, mode: int) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER).chmod(mode)
    with pytest.raises(UserError, match=r"\.jobyard: others may write to it, .* run `chmod go-w \.jobyard` there, or"):
        written(tmp_path)
    assert os.listdir(tmp_path / FOLDER) == []


def test_a_link_in_place_of_the_folder_is_refused_and_its_target_gets_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / FOLDER).symlink_to(tmp_path / "home")
    with pytest.raises(UserError, match=r"the function cannot be written there .*; name another directory with"):
        written(tmp_path)
    assert os.listdir(tmp_path / "home") == []


def test_nobody_else_may_write_to_a_folder_that_is_made_here(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = written(tmp_path)
    finally:
        os.umask(before)
    assert [oct(path.stat().st_mode & 0o022) for path in (file.path.parent, file.path)] == ["0o0", "0o0"]


def test_a_link_in_place_of_the_list_for_git_leaves_its_target_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "rc").write_text("precious")
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / ".gitignore").symlink_to(tmp_path / "rc")
    assert written(tmp_path).path.exists()
    assert (tmp_path / "rc").read_text() == "precious"


def test_a_list_for_git_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / ".gitignore").write_text("mine")
    written(tmp_path)
    assert (tmp_path / FOLDER / ".gitignore").read_text() == "mine"


def test_a_link_in_place_of_the_file_that_names_the_job_leaves_its_target_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "rc").write_text("precious")
    file = written(tmp_path)
    job_of(file.path).symlink_to(tmp_path / "rc")
    file.belongs_to("mine", "a")
    assert (tmp_path / "rc").read_text() == "precious"


def test_a_pipe_in_place_of_a_call_file_is_an_error_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.call")
    with pytest.raises(UserError, match=r"cannot be read .*no plain file"):
        read_counts(tmp_path / "train.call")


def test_a_pipe_in_place_of_the_file_that_names_the_job_is_not_waited_for(tmp_path: Path) -> None:
    file = written(tmp_path)
    os.mkfifo(job_of(file.path))
    os.utime(file.path, (time.time() - 7200,) * 2)
    delete_forgotten(tmp_path, "mine", lambda _: False)
    assert file.path.exists()


def test_files_that_seem_forgotten_stay_in_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path)
    os.utime(file.path, (time.time() - 7200,) * 2)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    delete_forgotten(tmp_path, "mine", lambda _: False)
    assert file.path.exists()
