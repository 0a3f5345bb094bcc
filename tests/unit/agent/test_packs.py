"""The files of ended attempts lie in one pack, and nothing is lost whenever somebody is killed."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from jobyard.agent_protocol import faults, packing, packs, records
from jobyard.agent_protocol.pack_blocks import HEADER_BYTES, scan
from jobyard.agent_protocol.packs import DamagedPack, Packs

RECORD = b"claim b 1 2 - -\nstart 3 4 5.000000\nend 6.000000 0 - 7\n"


def write(state: Path, task: int, *, number: int = 1, **files: bytes) -> None:
    directory = state / "jobs" / "j" / str(task // 1000)
    directory.mkdir(parents=True, exist_ok=True)
    for kind, content in {"rec": RECORD, "out": b"", "err": b"", **files}.items():
        (directory / f"{task}.{number}.{kind}").write_bytes(content)


def job(state: Path) -> str:
    return str(state / "jobs" / "j")


def files_of(state: Path) -> set[str]:
    return {str(path.relative_to(state / "jobs" / "j")) for path in (state / "jobs" / "j").rglob("*")}


def out(state: Path, task: int, number: int = 1) -> bytes | None:
    return Packs().content(records.paths(str(state), f"j.{task}.{number}").out)


def test_attempts_that_are_packed_leave_no_file_of_their_own_and_no_directory(tmp_path: Path) -> None:
    for task in range(1500):
        write(tmp_path, task)
    packing.pack(job(tmp_path), [(task, 1) for task in range(1500)])
    assert files_of(tmp_path) == {"pack"}
    assert (tmp_path / "jobs/j/pack").stat().st_size < 1500 * 40


def test_a_packer_asks_for_no_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for task in range(20):
        write(tmp_path, task)
    missed: list[str] = []
    lstat = os.lstat

    def looked(path: str) -> os.stat_result:
        try:
            return lstat(path)
        except FileNotFoundError:
            missed.append(path)
            raise

    monkeypatch.setattr(os, "lstat", looked)
    packing.pack(job(tmp_path), [(task, 1) for task in range(20)])
    assert missed == []


def test_what_was_packed_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path, 7, out=b"hello\n", err=b"\xff\x00oh\n", error=b"why\n")
    write(tmp_path, 7, number=2, out=b"again\n")
    packing.pack(job(tmp_path), [(7, 1), (7, 2)])
    assert Packs().find(job(tmp_path), (7, 1)) == {
        "out": b"hello\n", "err": b"\xff\x00oh\n", "error": b"why\n", "rec": RECORD,
    }  # fmt: skip
    assert out(tmp_path, 7, 2) == b"again\n"
    assert out(tmp_path, 7, 3) is None
    assert out(tmp_path, 8) is None


def test_a_large_output_stays_a_file_and_a_pipe_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, 0, out=b"x" * (packing.SMALL_BYTES + 1))
    os.mkfifo(tmp_path / "jobs/j/0/0.1.error")
    packing.pack(job(tmp_path), [(0, 1)])
    assert files_of(tmp_path) == {"pack", "0", "0/0.1.out", "0/0.1.error"}


def test_a_pack_that_grows_is_read_on_by_who_read_it_before(tmp_path: Path) -> None:
    reader = Packs()
    for task in range(3):
        write(tmp_path, task, out=b"%d" % task)
        packing.pack(job(tmp_path), [(task, 1)])
        assert reader.find(job(tmp_path), (task, 1))["out"] == b"%d" % task
        assert reader.find(job(tmp_path), (0, 1))["out"] == b"0"
    assert packs.packed_tasks(job(tmp_path)) == {0, 1, 2}


def test_a_pack_that_was_forgotten_and_made_anew_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    reader = Packs()
    for word in (b"old", b"new"):
        write(tmp_path, 0, out=word)
        packing.pack(job(tmp_path), [(0, 1)])
        assert reader.find(job(tmp_path), (0, 1))["out"] == word
        (tmp_path / "jobs/j/pack").rename(tmp_path / f"trash-{word.decode()}")


def test_an_error_of_open_is_not_taken_for_nothing_was_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 7, out=b"hello\n")
    packing.pack(job(tmp_path), [(7, 1)])
    files = records.paths(str(tmp_path), "j.7.1")

    def none_left(*args: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as here:
        here.setattr(os, "open", none_left)
        with pytest.raises(OSError, match="Too many open files"):
            out(tmp_path, 7)
        with pytest.raises(OSError, match="Too many open files"):
            packs.restore(str(tmp_path), "j", (7, 1), files)
        with pytest.raises(OSError, match="Too many open files"):
            packs.packed_tasks(job(tmp_path))
        assert packs.is_there(files.out)
    assert packs.restore(str(tmp_path), "j", (7, 1), files)


def test_files_are_put_back_where_they_were(tmp_path: Path) -> None:
    write(tmp_path, 7, out=b"hello\n", error=b"why\n")
    packing.pack(job(tmp_path), [(7, 1)])
    files = records.paths(str(tmp_path), "j.7.1")
    assert packs.restore(str(tmp_path), "j", (7, 1), files)
    assert Path(files.out).read_bytes() == b"hello\n"
    assert Path(files.error).read_bytes() == b"why\n"
    assert Path(files.record).read_bytes() == RECORD
    assert not packs.restore(str(tmp_path), "j", (8, 1), records.paths(str(tmp_path), "j.8.1"))


def test_what_was_packed_twice_counts_as_it_was_packed_last(tmp_path: Path) -> None:
    """A packer that was killed while it removed files has left the record, and perhaps nothing else."""
    write(tmp_path, 7, out=b"hello\n")
    packing.pack(job(tmp_path), [(7, 1)])
    (tmp_path / "jobs/j/0").mkdir()
    (tmp_path / "jobs/j/0/7.1.rec").write_bytes(RECORD + b"over 1\n")
    packing.pack(job(tmp_path), [(7, 1)])
    assert Packs().find(job(tmp_path), (7, 1)) == {"out": b"hello\n", "err": b"", "rec": RECORD + b"over 1\n"}


def test_output_that_grew_while_it_was_packed_stays_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 0, out=b"early ")
    late = tmp_path / "jobs/j/0/0.1.out"
    monkeypatch.setattr(faults, "point", lambda name: late.write_bytes(b"early late"))
    packing.pack(job(tmp_path), [(0, 1)])
    assert late.read_bytes() == b"early late"


def test_an_end_of_a_pack_that_was_torn_at_any_byte_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # twice for each byte: a busy disk takes its time
    write(tmp_path, 0, out=b"first")
    packing.pack(job(tmp_path), [(0, 1)])
    pack = tmp_path / "jobs/j/pack"
    size = pack.stat().st_size
    write(tmp_path, 1, out=b"second")
    packing.pack(job(tmp_path), [(1, 1)])
    whole = pack.read_bytes()
    for cut in range(size, len(whole)):
        pack.write_bytes(whole[:cut])
        write(tmp_path, 1, out=b"second")  # it was not removed: the block was not finished
        assert out(tmp_path, 0) == b"first"
        packing.pack(job(tmp_path), [(1, 1)])
        assert pack.read_bytes() == whole, f"cut at byte {cut}"
        assert (out(tmp_path, 0), out(tmp_path, 1)) == (b"first", b"second")


def test_a_damaged_part_is_told_in_one_sentence_and_the_rest_is_read(tmp_path: Path) -> None:
    for task in (0, 1, 2):
        write(tmp_path, task, out=b"%d" % task)
        packing.pack(job(tmp_path), [(task, 1)])
    pack = tmp_path / "jobs/j/pack"
    with pack.open("rb") as file:
        blocks, end = scan(file.fileno(), 0)
    data = bytearray(pack.read_bytes())
    data[blocks[1].offset + 5] ^= 1
    pack.write_bytes(data)
    with pytest.raises(DamagedPack, match=r"^the packed output of tasks 1 to 1 is damaged \(.*/pack, at byte \d+\); "):
        out(tmp_path, 1)
    assert (out(tmp_path, 0), out(tmp_path, 2)) == (b"0", b"2")
    assert packs.packed_tasks(job(tmp_path)) == {0, 1, 2}, "whoever asks for all is told of the damaged one"
    assert [task for task, _ in Packs().attempts(job(tmp_path))] == [0, 2]
    data[blocks[1].offset - 20] ^= 1  # its header, too: where the next begins is found by looking
    pack.write_bytes(data)
    with pytest.raises(DamagedPack, match="the packed output of some tasks is damaged"):
        out(tmp_path, 1)
    assert (out(tmp_path, 0), out(tmp_path, 2)) == (b"0", b"2")
    write(tmp_path, 3, out=b"3")
    packing.pack(job(tmp_path), [(3, 1)])
    assert (out(tmp_path, 2), out(tmp_path, 3)) == (b"2", b"3")
    assert end < pack.stat().st_size


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_header_of_zeros_hides_nothing_behind_it_and_the_next_packer_cuts_nothing_off(
    tmp_path: Path, lost: int
) -> None:
    """A bad sector, or a write that was lost: the last block, too, is no unfinished one where its content is there."""
    for task in range(4):
        write(tmp_path, task, out=b"%d" % task)
        packing.pack(job(tmp_path), [(task, 1)])
    pack = tmp_path / "jobs/j/pack"
    with pack.open("rb") as file:
        blocks, end = scan(file.fileno(), 0)
    data = bytearray(pack.read_bytes())
    data[blocks[lost].offset - HEADER_BYTES : blocks[lost].offset] = bytes(HEADER_BYTES)
    pack.write_bytes(data)
    write(tmp_path, 4, out=b"4")
    packing.pack(job(tmp_path), [(4, 1)])
    assert pack.read_bytes()[:end] == data
    assert [out(tmp_path, task) for task in range(5) if task != lost] == [
        b"%d" % task for task in range(5) if task != lost
    ]
    with pytest.raises(DamagedPack, match="the packed output of some tasks is damaged"):
        out(tmp_path, lost)


def test_a_pack_that_was_cut_off_is_told_as_damage_unless_somebody_writes_it(tmp_path: Path) -> None:
    for task in (0, 1):
        write(tmp_path, task, out=b"%d" % task)
        packing.pack(job(tmp_path), [(task, 1)])
    pack = tmp_path / "jobs/j/pack"
    os.truncate(pack, pack.stat().st_size - 3)
    assert (out(tmp_path, 0), out(tmp_path, 2)) == (b"0", None)
    with pytest.raises(DamagedPack, match="the packed output of tasks 1 to 1 is damaged"):
        out(tmp_path, 1)
    with pack.open("rb") as packer:
        fcntl.flock(packer, fcntl.LOCK_EX)
        assert out(tmp_path, 1) is None


def test_zeros_up_to_the_end_were_never_finished_and_are_written_over(tmp_path: Path) -> None:
    write(tmp_path, 0, out=b"first")
    packing.pack(job(tmp_path), [(0, 1)])
    pack = tmp_path / "jobs/j/pack"
    size = pack.stat().st_size
    os.truncate(pack, size + 5000)
    assert out(tmp_path, 1) is None
    write(tmp_path, 1, out=b"second")
    packing.pack(job(tmp_path), [(1, 1)])
    assert pack.read_bytes()[size : size + 10] == b"yardpack1 "
    assert (out(tmp_path, 0), out(tmp_path, 1)) == (b"first", b"second")


def test_a_full_disk_leaves_every_file_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 0, out=b"hello")
    before = files_of(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        packing.pack(job(tmp_path), [(0, 1)])
    assert files_of(tmp_path) == {*before, "pack"}


def _killed_at_random(state: Path, keys: list[tuple[int, int]], chance: random.Random) -> bool:
    """Packs in a child that dies before one of its system calls, or after the last. Whether it did die."""
    pid = os.fork()
    if pid == 0:
        left = chance.randrange(len(keys) * 8 + 12)
        for name in ("pwrite", "fsync", "unlink", "rmdir", "lstat", "ftruncate"):
            real = getattr(os, name)

            def counted(*args: Any, real: Any = real, name: str = name) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    if name == "pwrite":
                        descriptor, data, offset = args
                        real(descriptor, data[: len(data) // 2], offset)
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args)

            setattr(os, name, counted)
        try:
            packing.pack(job(state), keys)
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1] != 0


@pytest.mark.parametrize("rounds", [30, pytest.param(3000, marks=pytest.mark.long)])
def test_a_packer_that_is_killed_anywhere_loses_nothing_and_doubles_nothing(tmp_path: Path, rounds: int) -> None:
    chance = random.Random(rounds)
    written: dict[int, bytes] = {}
    kills = 0
    for turn in range(rounds):
        fresh = range(turn * 3, turn * 3 + 3)
        for task in fresh:
            written[task] = b"%d" % task * chance.choice([0, 1, 1000])
            write(tmp_path, task, out=written[task])
        left = [int(path.name.split(".")[0]) for path in (tmp_path / "jobs/j").glob("*/*.rec")]
        kills += _killed_at_random(tmp_path, [(task, 1) for task in left], chance)
        reader = Packs()
        for task in list(written)[-30:] if turn % 50 else written:
            paths = records.paths(str(tmp_path), f"j.{task}.1")
            for path, content in ((paths.out, written[task]), (paths.err, b""), (paths.record, RECORD)):
                found = Path(path).read_bytes() if os.path.exists(path) else reader.content(path)
                assert found == content, (turn, path)
    assert kills > rounds // 4
