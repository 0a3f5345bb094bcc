"""Is a copy like its source, is every difference seen, and does nothing odd break an archive?"""

from __future__ import annotations

import errno
import os
import tarfile
from pathlib import Path

import pytest

from jobyard.agent.files import results, trees
from jobyard.agent.files.trees import Difference
from jobyard.agent_protocol import records


def changed(before: Path, after: Path) -> list[str]:
    return [difference.name for difference in trees.differences(str(before), str(after)) if difference.is_changed]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "d" / "e").mkdir(parents=True)
    (source / "d" / "f").write_text("f")
    (source / "d" / "link").symlink_to("f")
    (source / "large").write_bytes(os.urandom(3_000_000))
    (source / "d" / "e").chmod(0o750)
    return source


def test_a_copy_has_no_difference_and_no_second_names(source: Path, tmp_path: Path) -> None:
    trees.copy_tree(str(source), str(tmp_path / "copy"))
    assert list(trees.differences(str(source), str(tmp_path / "copy"))) == []
    assert (tmp_path / "copy" / "large").read_bytes() == (source / "large").read_bytes()
    assert (tmp_path / "copy" / "large").stat().st_nlink == 1
    assert (tmp_path / "copy" / "d" / "e").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("echo F > d/f", ["d/f"]),
        ("printf g > d/f", ["d/f"]),
        ("chmod 600 d/f", ["d/f"]),
        ("touch -d @1000 d/f", ["d/f"]),
        ("ln -sfn large d/link", ["d/link"]),
        ("rm d/link; cp d/f d/link", ["d/link"]),
        ("rm -r d", ["d"]),
        ("mkdir -p new/dir; touch new/dir/x", ["new", "new/dir", "new/dir/x"]),
        ("rm -r d; touch d", ["d"]),
        ("rm large; mkdir large; touch large/x", ["large", "large/x"]),
        ("touch d/x; rm d/x", []),
    ],
)
def test_every_change_is_seen(change: str, names: list[str], source: Path, tmp_path: Path) -> None:
    trees.copy_tree(str(source), str(tmp_path / "copy"))
    assert os.system(f"cd {tmp_path}/copy && umask 022 && {change}") == 0
    assert changed(source, tmp_path / "copy") == names


def test_a_change_that_hides_behind_the_old_time_was_touched(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    trees.copy_tree(str(source), str(copy))
    made_ns = max(path.lstat().st_ctime_ns for path in [copy, *copy.rglob("*")])
    while True:  # until the clock that the kernel writes into files has moved on
        (tmp_path / "clock").write_text("")
        if (tmp_path / "clock").stat().st_ctime_ns > made_ns:
            break
    seen = (copy / "d" / "f").stat()
    (copy / "d" / "f").write_text("F")
    os.utime(copy / "d" / "f", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert changed(source, copy) == []
    assert [d.name for d in trees.differences(str(source), str(copy), made_ns)] == ["d/f"]


def archived(files: records.Paths) -> list[str]:
    with tarfile.open(files.results, mode="r:") as archive:
        return archive.getnames()


def test_a_file_that_vanishes_or_cannot_be_read_does_not_break_the_archive(tmp_path: Path) -> None:
    files = records.paths(str(tmp_path), "j.0.1")
    work = Path(files.work)
    work.mkdir(parents=True)
    for name in ("a", "becomes a pipe", "becomes a link", "gone", "z"):
        (work / name).write_text(name)
    seen = list(trees.differences("", files.work))
    for name in ("gone", "becomes a pipe", "becomes a link"):
        (work / name).unlink()
    (work / "becomes a link").symlink_to("/etc/passwd")
    os.mkfifo(work / "becomes a pipe")
    assert results.gather(files, seen, [""], has_tree=True)
    assert archived(files) == ["a", "z"]
    assert "gone did not come home: No such file" in Path(files.err).read_text()
    assert "root:" not in Path(files.results).read_text()


def test_a_file_that_shrinks_meanwhile_does_not_shift_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = records.paths(str(tmp_path), "j.0.1")
    work = Path(files.work)
    work.mkdir(parents=True)
    (work / "a").write_bytes(b"a" * 100_000)
    (work / "z").write_text("z")
    seen = list(trees.differences("", files.work))
    exactly = results._Exactly

    def shrinking(file: object) -> object:
        os.truncate(work / "a", 10)
        return exactly(file)  # type: ignore[arg-type]

    monkeypatch.setattr(results, "_Exactly", shrinking)
    results.gather(files, seen, [""], has_tree=True)
    with tarfile.open(files.results, mode="r:") as archive:
        z = archive.extractfile("z")
        assert z is not None
        assert z.read() == b"z"


def test_results_that_find_no_room_stay_where_they_are_and_the_task_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = records.paths(str(tmp_path), "j.0.1")
    Path(files.work).mkdir(parents=True)
    (Path(files.work) / "a").write_text("a")
    tries = []

    def full(path: str, found: object) -> None:
        tries.append(path)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(results, "_write_archive", full)
    monkeypatch.setattr(results, "_WAITS_SECONDS", (0.0, 0.0))
    assert not results.gather(files, list(trees.differences("", files.work)), [""], has_tree=True)
    assert len(tries) == 3
    assert f"(No space left on device); they are left in {files.work}\n" in Path(files.err).read_text()
    assert (Path(files.work) / "a").exists()
    assert os.path.getsize(files.results) == 0


def test_results_that_are_there_are_not_replaced(tmp_path: Path) -> None:
    files = records.paths(str(tmp_path), "j.0.1")
    Path(files.work).mkdir(parents=True)
    (Path(files.work) / "a").write_text("a")
    results.gather(files, list(trees.differences("", files.work)), [""], has_tree=True)
    before = Path(files.results).read_bytes()
    nothing: list[Difference] = []
    results.gather(files, nothing, [""], has_tree=True)
    assert Path(files.results).read_bytes() == before
    assert sorted(os.listdir(files.directory)) == ["0.1.results", "0.1.work"]


def test_a_record_tells_what_to_gather() -> None:
    line = records.collect_line("abc", ["a b", "line\nbreak", ""])
    record = records.parse(line)
    assert record.collection == ("abc", ["a b", "line\nbreak", ""])
    assert records.parse(records.collect_line("", [])).collection == ("", [])
    assert records.parse(b"collect abc nonsense\n").collection is None
