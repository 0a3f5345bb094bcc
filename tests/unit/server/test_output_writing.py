"""What a task wrote gets into the file that was named, and links of other users lead nowhere else."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from jobyard.agent_protocol import packing, records
from jobyard.server import output_writing
from jobyard.server.output_writing import write_output

OTHER = 61234


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").write_text("out\n")
    return tmp_path / "log"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "directory").mkdir()
    return tmp_path / "directory"


def anothers(link: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link is now of another user than the server's."""
    if os.geteuid() == 0:
        os.lchown(link, OTHER, OTHER)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: OTHER)


def test_directories_are_made_and_a_file_is_written_anew(log: Path, out: Path) -> None:
    for _ in range(2):
        write_output([log, log, out / "none"], out / "a/b/file")
    assert (out / "a/b/file").read_text() == "out\nout\n"
    assert os.listdir(out / "a/b") == ["file"]


def test_packed_output_is_written_like_any_other(out: Path, tmp_path: Path) -> None:
    found = records.paths(str(tmp_path), "j.0.1")
    Path(found.out).parent.mkdir(parents=True)
    Path(found.out).write_bytes(b"a\0b\n")
    Path(found.err).write_bytes(b"oh\n")
    packing.pack(str(tmp_path / "jobs" / "j"), [(0, 1)])
    assert not Path(found.out).exists()
    write_output([Path(found.out), Path(found.err)], out / "both")
    assert (out / "both").read_bytes() == b"a\0b\noh\n"


def test_ones_own_links_are_followed_as_slurm_does(log: Path, out: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/kept").write_text("before")
    (out / "way").symlink_to("../real")
    (out / "file").symlink_to(tmp_path / "real/kept")
    (out / "dangling").symlink_to("../real/new")
    for name in ("way/below", "file", "dangling"):
        write_output([log], out / name)
    assert sorted((path.name, path.read_text()) for path in (tmp_path / "real").iterdir()) == [
        ("below", "out\n"),
        ("kept", "out\n"),
        ("new", "out\n"),
    ]
    assert (out / "file").is_symlink()


def test_a_circle_of_links_is_no_place(log: Path, out: Path) -> None:
    (out / "one").symlink_to("two")
    (out / "two").symlink_to("one")
    with pytest.raises(OSError, match="Too many levels"):
        write_output([log], out / "one")


@pytest.mark.parametrize("name", ["file", "way/below"])
def test_a_link_of_another_user_is_not_followed(
    name: str, log: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/kept").write_text("the servers own")
    (out / "way").symlink_to(tmp_path / "real")
    (out / "file").symlink_to(tmp_path / "real/kept")
    for link in ("way", "file"):
        anothers(out / link, monkeypatch)
    with pytest.raises(PermissionError, match=r"is a link of user \d+, and not followed; name the place"):
        write_output([log], out / name)
    assert [(path.name, path.read_text()) for path in (tmp_path / "real").iterdir()] == [("kept", "the servers own")]


@pytest.mark.parametrize("name", ["way/file", "link/file"])
def test_a_link_that_is_changed_between_the_look_and_the_write_leads_nowhere_else(
    name: str, log: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory becomes a link, and a link of ours leads elsewhere, just after they were looked at."""
    (tmp_path / "private").mkdir()
    (out / "way").mkdir()
    (out / "mine").mkdir()
    (out / "link").symlink_to("mine")
    look = output_writing._look

    def look_and_change(here: int, part: str, target: Path) -> object:
        found = look(here, part, target)
        changed = out / part
        if part in ("way", "link") and not (tmp_path / "before").exists():
            changed.rename(tmp_path / "before")
            changed.symlink_to(tmp_path / "private")
        return found

    monkeypatch.setattr(output_writing, "_look", look_and_change)
    if name == "way/file":
        with pytest.raises(NotADirectoryError):
            write_output([log], out / name)
    else:
        write_output([log], out / name)
        assert (out / "mine/file").read_text() == "out\n", "where the link led that was looked at"
    assert not os.listdir(tmp_path / "private")


def test_neither_a_link_nor_a_hard_link_in_the_place_of_a_draft_is_written_to(
    log: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").write_text("the servers own")
    drafts = []
    monkeypatch.setattr(os, "replace", lambda draft, *_, **__: drafts.append(draft))
    write_output([log], out / "file")
    monkeypatch.undo()
    for make in (os.symlink, os.link):
        make(tmp_path / "kept", out / drafts[0])
        write_output([log], out / "file")
    os.link(tmp_path / "kept", out / "linked")
    write_output([log], out / "linked")
    assert ((out / "file").read_text(), (out / "linked").read_text()) == ("out\n", "out\n")
    assert (tmp_path / "kept").read_text() == "the servers own"


def test_a_draft_that_cannot_be_removed_keeps_no_file_from_being_written(log: Path, out: Path) -> None:
    """As that of another user in a directory like /tmp."""
    draft = out / f".yard-{hashlib.sha256(b'file').hexdigest()[:16]}.part"
    (draft / "kept").mkdir(parents=True)
    write_output([log], out / "file")
    assert (out / "file").read_text() == "out\n"
    assert set(os.listdir(out)) == {"file", draft.name}
