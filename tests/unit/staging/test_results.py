"""Results that come home."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.errors import Rejected, Unwritable
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.staging.layout import results_paths
from jobyard.staging.results import copy_log, unpack_results
from tests.unit.staging.trees import plant, seen


def _member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def _link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return _member(name, type=kind, linkname=target)


def _archive(path: Path, *members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.GNU_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "around" / "job_results" / "7"


def _files(home: Path) -> dict[str, bytes]:
    return {os.fsdecode(path): content for path, (kind, _, content) in seen(home).items() if kind != "directory"}


def test_files_come_home_with_their_modes_and_times_but_without_setuid(tmp_path: Path, home: Path) -> None:
    tar = _archive(tmp_path / "tar", _member("out/model.pt", b"weights", mode=0o6750, mtime=1_000_000_000))
    done = unpack_results(tar, home)
    assert (done.directory, done.files, done.kept_apart, done.left_out) == (home, 1, (), ())
    assert seen(home)[b"out/model.pt"] == ("file", 0o750, b"weights")
    assert (home / "out/model.pt").stat().st_mtime == 1_000_000_000


def test_no_results_make_an_empty_directory(tmp_path: Path, home: Path) -> None:
    (tmp_path / "tar").touch()
    assert unpack_results(tmp_path / "tar", home).files == 0
    assert unpack_results(_archive(tmp_path / "tar"), home).files == 0
    assert seen(home) == {}


def test_what_is_there_is_never_overwritten(tmp_path: Path, home: Path) -> None:
    plant(home, {"log": b"first", "same": b"same", "link": "log", "file": b"", "d/x": b"mine", "to d": "d"})
    members = [
        *(_member("log", b"second"), _member("same", b"same"), _link("link", "same"), _member("file/in it", b"1")),
        *(_member("d", b"a file now"), _member("to d/y", b"2"), _member("new", b"3")),
    ]
    done = unpack_results(_archive(tmp_path / "tar", *members), home, attempt=2)
    assert _files(home) == {
        "log": b"first",
        "same": b"same",
        "link": b"log",
        "file": b"",
        "d/x": b"mine",
        "to d": b"d",
        "new": b"3",
        "log.attempt2": b"second",
        "link.attempt2": b"same",
        "file.attempt2/in it": b"1",
        "d.attempt2": b"a file now",
        "to d.attempt2/y": b"2",
    }
    assert done.kept_apart == ("log.attempt2", "link.attempt2", "d.attempt2")
    assert done.files == 7


def test_unpacking_twice_gives_the_same(tmp_path: Path, home: Path) -> None:
    plant(home, {"a": b"mine", "a.attempt1": b"mine too", "d": b"a file"})
    tar = _archive(tmp_path / "tar", _member("a", b"1"), _member("d/b", b"2"), _link("d/c", "b"))
    first = unpack_results(tar, home)
    after = seen(home)
    assert first.kept_apart == ("a.attempt1.2",)
    assert unpack_results(tar, home) == first
    assert seen(home) == after


def test_an_unpacking_that_was_cut_off_is_finished_by_the_next(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tar = _archive(tmp_path / "tar", *(_member(f"d/{number}", b"%d" % number) for number in range(5)))
    original, calls = os.link, iter(range(5))

    def killed(*arguments: object, **options: object) -> None:
        if next(calls) == 3:
            raise KeyboardInterrupt
        original(*arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", killed)
        with pytest.raises(KeyboardInterrupt):
            unpack_results(tar, home)
    plant(home, {"d/.yard-part.attempt1": b"of a kill that nobody could catch"})
    unpack_results(tar, home)
    assert _files(home) == {f"d/{number}": b"%d" % number for number in range(5)}


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    plant(home, {"a": b"mine"})
    unpack_results(_archive(tmp_path / "tar", _member("a", b"1"), _member("b", b"2")), home)
    assert _files(home) == {"a": b"mine", "a.attempt1": b"1", "b": b"2"}


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (_member("/etc/evil", b"x"), "leads out"),
        (_member("../evil", b"x"), "leads out"),
        (_member("a/../../evil", b"x"), "leads out"),
        (_link("link", "/etc/passwd"), "a link that leads out of the results, to '/etc/passwd'"),
        (_link("link", ".."), "a link that leads out"),
        (_link("link", ""), "a link that leads out"),
        (_link("a/link", "../../x"), "a link that leads out"),
        (_link("a/link", "../b/.."), "a link that leads out"),  # b may be a link by then
        (_link("hard", "../../../../etc/passwd", tarfile.LNKTYPE), "its target is not in the archive"),
        (_link("hard", "good link", tarfile.LNKTYPE), "its target is not in the archive"),
        (_member("device", type=tarfile.CHRTYPE, devmajor=1, devminor=3), "neither file, directory nor link"),
        (_member("pipe", type=tarfile.FIFOTYPE), "neither file, directory nor link"),
        (_member("x" * 300), "File name too long"),
    ],
)
def test_what_would_leave_the_directory_is_left_out_and_the_rest_comes(
    tmp_path: Path, home: Path, member: tuple[tarfile.TarInfo, bytes], why: str
) -> None:
    tar = _archive(tmp_path / "tar", _member("good", b"1"), _link("good link", "good"), member, _member("last", b"2"))
    done = unpack_results(tar, home)
    assert _files(home) == {"good": b"1", "good link": b"good", "last": b"2"}
    assert len(done.left_out) == 1
    assert why in done.left_out[0]
    assert os.listdir(tmp_path / "around") == ["job_results"]


def test_nothing_is_written_through_a_link(tmp_path: Path, home: Path) -> None:
    plant(home, {"escape": str(tmp_path / "around")})
    members = [_member("escape/x", b"1"), _member("d/f", b""), _link("inner", "d"), _member("inner/f", b"2")]
    unpack_results(_archive(tmp_path / "tar", *members), home)
    assert os.listdir(tmp_path / "around") == ["job_results"]
    assert _files(home)["escape.attempt1/x"] == b"1"
    assert _files(home)["d/f"] == b""


def test_a_hard_link_becomes_a_file_of_its_own(tmp_path: Path, home: Path) -> None:
    tar = _archive(tmp_path / "tar", _member("a", b"1"), _link("b", "a", tarfile.LNKTYPE))
    unpack_results(tar, home)
    assert _files(home) == {"a": b"1", "b": b"1"}
    assert (home / "a").stat().st_ino != (home / "b").stat().st_ino


def test_times_and_names_that_cannot_be_are_survived(tmp_path: Path, home: Path) -> None:
    members = [_member("a", b"1", pax_headers={"mtime": "nan"}), _member("b", b"2", pax_headers={"path": "b\0c"})]
    done = unpack_results(_archive(tmp_path / "tar", *members, form=tarfile.PAX_FORMAT), home)
    assert _files(home)["a"] == b"1"
    assert done.files == len(_files(home))


def test_a_damaged_archive_is_rejected(tmp_path: Path, home: Path) -> None:
    whole = _archive(tmp_path / "tar", _member("a", b"x" * 2000), _member("b", b"y" * 2000)).read_bytes()
    for size in (100, 512, 1000, 2560, 3000, 4000):
        (tmp_path / "tar").write_bytes(whole[:size])
        with pytest.raises(Rejected, match="is damaged"):
            unpack_results(tmp_path / "tar", home)
    (tmp_path / "tar").write_bytes(whole[:2560] + b"?" * 512 + whole[3072:])
    with pytest.raises(Rejected, match="is damaged"):
        unpack_results(tmp_path / "tar", home)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_hostile_archive_touches_nothing_outside(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    top = tmp_path_factory.mktemp("hostile")
    plant(top, {"around/secret": b"secret", "around/a/b/c": b"", "a/b": b"", "c/a/b/c": b""})
    before = seen(top)
    parts = st.sampled_from(["a", "b", "..", ".", "", "c", "secret"])
    path = st.lists(parts, min_size=1, max_size=4).map("/".join)
    kinds = st.sampled_from([tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, b"?"])
    members = data.draw(st.lists(st.tuples(path, path, kinds), max_size=8))
    made = [
        _member(name, b"evil" if kind == tarfile.REGTYPE else b"", type=kind, linkname=target)
        for name, target, kind in members
    ]
    home = top / "around" / "home"
    unpack_results(_archive(top / "tar", *made), home)
    outside = {path: what for path, what in seen(top).items() if not path.startswith((b"around/home", b"tar"))}
    assert outside == before
    for relative in seen(home):
        try:
            real = os.path.realpath(os.path.join(os.fsencode(home), relative), strict=True)
        except OSError:  # leads to nothing, or in circles
            continue
        assert real == os.fsencode(home) or real.startswith(os.fsencode(home) + b"/")


def test_a_full_disk_is_one_sentence(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    tar = _archive(tmp_path / "tar", _member("a", b"1"))
    with pytest.raises(Unwritable, match=r"results cannot be written to .*: No space left on device; make room"):
        unpack_results(tar, home)
    with pytest.raises(Unwritable, match="No space left on device"):
        copy_log(tar, home / "x.out")
    assert seen(home) == {}


def test_many_left_out_are_counted(tmp_path: Path, home: Path) -> None:
    tar = _archive(tmp_path / "tar", *(_member(f"../{number}") for number in range(50)))
    assert unpack_results(tar, home).left_out[-1] == "and 30 more"


def test_the_output_is_put_beside_the_results_once_per_attempt(tmp_path: Path, home: Path) -> None:
    plant(tmp_path, {"1.out": b"first\n", "2.out": b"second\n"})
    out = home.with_name("7.out")
    assert copy_log(tmp_path / "1.out", out) == out
    assert copy_log(tmp_path / "1.out", out) == out
    assert copy_log(tmp_path / "2.out", out, attempt=2) == out.with_name("7.out.attempt2")
    assert copy_log(tmp_path / "missing", home.with_name("7.err")).read_bytes() == b""
    assert (out.read_bytes(), out.with_name("7.out.attempt2").read_bytes()) == (b"first\n", b"second\n")


def _spec(count: int = 1, completions: int = 1) -> JobSpec:
    return JobSpec("j", (GroupSpec(Command(shell="true"), count=count, completions=completions),))


@pytest.mark.parametrize(
    ("spec", "label", "name", "expected"),
    [
        (_spec(), "0", "", "7"),
        (_spec(completions=3), "2", "", "7/2"),
        (_spec(count=2, completions=2), "worker/1.1", "", "7/worker_1.1"),
        (_spec(completions=3), "2", "dir/batch.sh.3", "dir_batch.sh.3"),
        (_spec(completions=3), "..", "", "7/__"),
    ],
)
def test_results_have_their_place(spec: JobSpec, label: str, name: str, expected: str) -> None:
    found = results_paths("/w/job_results", "7", spec, label, name=name)
    where = f"/w/job_results/{expected}"
    assert tuple(map(str, found)) == (where, f"{where}.out", f"{where}.err")
