"""Does a snapshot come to lie where it belongs, whole, and nowhere else?"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.unit.agent.agent_process import SOURCE
from tests.unit.agent.trees_of_files import archive_of, receive

from jobyard.agent.system import probe


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def stored(home: Path) -> Path:
    return home / ".local/share/jobyard/agents" / f"y-{probe.machine_id()}" / "snapshots"


def member(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def archive(*members: tarfile.TarInfo) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        for info in members:
            made.addfile(info, io.BytesIO(b"x" * info.size))
    return stream.getvalue()


def test_a_tree_is_unpacked_as_it_was(home: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a b" / "empty").mkdir(parents=True)
    (tree / "a b" / "line\nbreak").write_text("x")
    (tree / "a b" / "link").symlink_to("/where/ever")
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o750)
    os.utime(tree / "run", (1e9, 1e9))
    Path(os.fsdecode(os.fsencode(tree) + b"/\xff")).write_text("not text")
    done = receive(home, "abc", archive_of(tree))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", b"")
    found = stored(home) / "abc" / "tree"
    assert sorted(p.relative_to(found) for p in found.rglob("*")) == sorted(
        p.relative_to(tree) for p in tree.rglob("*")
    )
    assert os.readlink(found / "a b" / "link") == "/where/ever"
    assert (found / "run").stat().st_mode & 0o7777 == 0o750
    assert (found / "run").stat().st_mtime == 1e9
    assert os.listdir(stored(home)) == ["abc"]


@pytest.mark.parametrize(
    "members",
    [
        [member("../x", size=1)],
        [member("a/../../x", size=1)],
        [member("/tmp/jobyard-test-x", size=1)],
        [member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
        [member("pipe", type=tarfile.FIFOTYPE)],
        [member("out", type=tarfile.SYMTYPE, linkname=".."), member("out/x", size=1)],
        [member("out", type=tarfile.SYMTYPE, linkname="/tmp"), member("out", type=tarfile.DIRTYPE)],
        [member("second", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
        [member("second", type=tarfile.LNKTYPE, linkname="../../../x")],
        [
            member("out", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
            member("second", type=tarfile.LNKTYPE, linkname="out"),
        ],
    ],
    ids=lambda members: members[-1].name + " " + members[-1].linkname,
)
def test_what_leads_out_of_the_directory_is_refused(members: list[tarfile.TarInfo], home: Path) -> None:
    done = receive(home, "abc", archive(member("before", size=1), *members))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert b"the archive" in done.stderr
    assert os.listdir(stored(home)) == []
    assert not os.path.exists("/tmp/jobyard-test-x")


def test_special_bits_of_a_mode_are_dropped(home: Path) -> None:
    receive(home, "abc", archive(member("program", size=1, mode=0o6755)))
    assert (stored(home) / "abc" / "tree" / "program").stat().st_mode & 0o7777 == 0o755


def test_a_second_name_becomes_a_second_file(home: Path) -> None:
    receive(home, "abc", archive(member("a", size=3), member("b", type=tarfile.LNKTYPE, linkname="a")))
    tree = stored(home) / "abc" / "tree"
    assert (tree / "b").read_bytes() == b"xxx"
    assert (tree / "a").stat().st_nlink == 1


@pytest.mark.parametrize("kept", [0, 512, 1024, 1500, -10000])
def test_an_archive_that_was_cut_off_is_refused(kept: int, home: Path) -> None:
    whole = archive(member("a", size=512), member("b", size=512))
    done = receive(home, "abc", whole[:kept])
    assert done.returncode == 1
    assert not (stored(home) / "abc").exists()


def test_what_is_no_archive_is_refused(home: Path) -> None:
    done = receive(home, "abc", b"hello " * 1000)
    assert done.returncode == 1
    assert b"not a whole tar archive" in done.stderr


def test_an_empty_tree_is_a_tree(home: Path) -> None:
    assert receive(home, "abc", archive()).stdout == b"ok\n"
    assert os.listdir(stored(home) / "abc" / "tree") == []


def test_a_snapshot_that_is_here_is_left_as_it_is(home: Path) -> None:
    receive(home, "abc", archive(member("a", size=1)))
    assert receive(home, "abc", archive(member("b", size=1))).stdout == b"ok\n"
    assert os.listdir(stored(home) / "abc" / "tree") == ["a"]


def test_two_that_send_the_same_at_once_do_not_disturb_each_other(home: Path) -> None:
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "jobyard.agent.main", "--receive", "abc", "--yard", "y"]
    both = [
        subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    whole = archive(*(member(f"f{n}", size=9000) for n in range(100)))
    for process in both:
        assert process.stdin is not None
        process.stdin.write(whole[:500_000])
        process.stdin.flush()
    for process in both:
        assert process.communicate(whole[500_000:]) == (b"ok\n", b"")
    assert os.listdir(stored(home)) == ["abc"]
    assert len(os.listdir(stored(home) / "abc" / "tree")) == 100


def test_what_a_killed_receiver_left_is_cleared_away(home: Path) -> None:
    left = stored(home) / ".999999999-1.old"
    (left / "tree").mkdir(parents=True)
    receive(home, "abc", archive())
    assert os.listdir(stored(home)) == ["abc"]


@pytest.mark.parametrize(("snapshot", "yard"), [("../x", "y"), ("abc", "../y"), ("abc", ""), ("a/b", "y")])
def test_names_that_are_none_are_refused(snapshot: str, yard: str, home: Path) -> None:
    done = receive(home, snapshot, archive(), yard)
    assert done.returncode == 1
    assert b"not a" in done.stderr


def test_a_home_that_cannot_be_written_has_its_own_exit_code(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    done = receive(tmp_path / "home", "abc", archive())
    assert done.returncode == 68
    assert b"cannot be written" in done.stderr
