"""Is a record read for what it says, however it was cut off?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.agent.execution.lane_notes import note_path, open_note, read_note, write_slot
from jobyard.agent_protocol import records

WHOLE = (
    records.claim_line("boot", 10, 20, 5.5, None)
    + records.start_line(30, 40, 100.25)
    + b"end "
    + records.end_words(records.Ending(101.5, 3, None, "Timeout", 2048))
    + b"\n"
)


def test_a_whole_record_says_everything() -> None:
    record = records.parse(WHOLE)
    assert record.claim == records.Claim("boot", 10, 20, timeout=5.5, grace=None)
    assert record.start == records.Start(30, 40, 100.25)
    assert record.ending == records.Ending(101.5, 3, None, "Timeout", peak_kib=2048)


@given(st.integers(0, len(WHOLE)))
def test_a_line_counts_only_when_its_newline_is_there(length: int) -> None:
    lines = WHOLE[:length].count(b"\n")
    record = records.parse(WHOLE[:length])
    assert (record.claim is not None, record.start is not None, record.ending is not None) == (
        lines >= 1,
        lines >= 2,
        lines >= 3,
    )


@given(st.integers(0, len(WHOLE)))
def test_a_torn_line_does_not_swallow_the_end_that_another_writes(length: int) -> None:
    record = records.parse(WHOLE[:length] + b"\nend 7.0 - - 0 Unknown\n")
    assert record.ending is not None


@given(
    st.lists(st.one_of(st.binary(), st.sampled_from([b"claim ", b"start 1 ", b"end ", b"withdrawn ", b"\n", b" - "])))
)
def test_no_bytes_whatever_make_reading_fail(pieces: list[bytes]) -> None:
    records.parse(b"".join(pieces))


@given(st.binary().filter(lambda data: b"\n" not in data))
def test_what_follows_the_last_newline_is_not_there_yet(rest: bytes) -> None:
    assert vars(records.parse(WHOLE + rest)) == vars(records.parse(WHOLE))


def test_the_first_line_of_a_kind_counts() -> None:
    assert records.parse(WHOLE + b"end 900.0 0 - 0\n").ending == records.parse(WHOLE).ending


def test_only_one_claims(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "down" / "1.1.rec")
    assert records.withdraw(path, 1.0)
    assert not records.withdraw(path, 2.0)
    with pytest.raises(FileExistsError):
        records.create(path)
    record = records.read(path)
    assert record is not None
    assert record.withdrawn_at == 1.0


def test_a_record_that_nobody_made_is_none(tmp_path: Path) -> None:
    assert records.read(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    "name", ["", "j", "j.1", "../x.1.1", "a/b.1.1", ".1.1", "j.-1.1", "j.1.1\n", "j.1.x", "j\0.1.1", "..1.1"]
)
def test_an_id_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="attempt"):
        records.paths("/state", name)


def test_paths_are_in_buckets_of_a_thousand() -> None:
    files = records.paths("/state", "my.job.12345.2")
    assert files.record == "/state/jobs/my.job/12/12345.2.rec"
    assert files.checkpoint == "/state/jobs/my.job/checkpoint/12345"


def test_the_reason_that_a_task_writes_is_read_without_falling_into_traps(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "text").write_bytes(b"\nbroken \xff disk\nmore\n")
    assert records.first_line(str(tmp_path / "pipe")) == ""
    assert records.first_line(str(tmp_path / "link")) == ""
    assert records.first_line(str(tmp_path / "none")) == ""
    assert records.first_line(str(tmp_path / "text")) == "broken � disk"


def test_a_shorter_note_of_a_lane_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    note = open_note(str(tmp_path), 7, 8)
    for slot in ({"slot": "s", "reserve": {"devices": {"0": 12345}}}, {"slot": "t"}, {"slot": "u", "more": 1}):
        write_slot(note, slot)
        assert read_note(note_path(str(tmp_path), 7, 8)) == ("", slot)
    os.close(note)
