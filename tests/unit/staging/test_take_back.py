"""What was put at home for an attempt that does not count goes again, if nobody has touched it."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from jobyard.staging.results import copy_log, take_back, take_back_log, unpack_results


def an_archive(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "same").write_text("same\n")
    (source / "sub/edited").write_text("theirs\n")
    os.symlink("same", source / "link")
    archive = tmp_path / "results.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("same", "sub", "sub/edited", "link"):
            tar.add(source / name, name, recursive=False)
    return archive


def test_what_is_untouched_goes_and_what_was_edited_stays(tmp_path: Path) -> None:
    archive, home = an_archive(tmp_path), tmp_path / "home"
    unpack_results(archive, home)
    (home / "sub/edited").write_text("mine!!\n")
    (home / "own").write_text("own\n")
    take_back(archive, home)
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*")) == ["own", "sub", "sub/edited"]
    take_back(archive, home)


def test_nothing_outside_is_touched(tmp_path: Path) -> None:
    archive, home, outside = an_archive(tmp_path), tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (outside / "edited").write_text("theirs\n")
    os.symlink(outside, home / "sub")
    take_back(archive, home)
    assert (outside / "edited").exists()


def test_no_archive_and_an_empty_one_take_nothing_back(tmp_path: Path) -> None:
    take_back(tmp_path / "none", tmp_path)
    (tmp_path / "empty").touch()
    take_back(tmp_path / "empty", tmp_path)


def test_a_log_goes_if_it_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("said\n")
    copy_log(tmp_path / "source", tmp_path / "out")
    (tmp_path / "other").write_text("else\n")
    take_back_log(tmp_path / "source", tmp_path / "other")
    take_back_log(tmp_path / "source", tmp_path / "out")
    assert (tmp_path / "other").exists()
    assert not (tmp_path / "out").exists()
