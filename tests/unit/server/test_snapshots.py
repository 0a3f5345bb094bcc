"""The snapshot file is a private cache without code in it: any other file is ignored, and a pickle is never read."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.model.events import JobSubmitted
from jobyard.server.damages import Damage, Restored
from jobyard.server.database import open_database
from jobyard.server.journal import Journal
from jobyard.server.snapshots import Snapshots
from tests.unit.server.running import a_batch


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("ran",)


def a_state(*jobs: str) -> YardState:
    state = YardState()
    for number, job in enumerate(jobs, 1):
        handle(state, JobSubmitted(job, number, a_batch("true"), 1.0))
    return state


def an_empty_journal(path: Path) -> Journal:
    (path / "elsewhere").mkdir()
    journal = Journal(open_database(f"sqlite:///{path / 'elsewhere' / 'yard.db'}"))
    journal.append([], 0.0, ())
    return journal


def test_a_pickle_of_an_earlier_version_is_deleted_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("snapshot.pickle", "snapshot.json"):
        (tmp_path / name).write_bytes(pickle.dumps((("build", "yard"), 0, Harmful())))
    _, state, _ = Snapshots(tmp_path / "snapshot.json", "build", "yard").restore(an_empty_journal(tmp_path))
    assert not state.jobs
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "snapshot.pickle").exists()


def test_it_is_private_json_and_comes_back(tmp_path: Path) -> None:
    snapshots, path = Snapshots(tmp_path / "snapshot.json", "build", "yard"), tmp_path / "snapshot.json"
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "snapshot.new").symlink_to(tmp_path / "mine")
    snapshots.save(Restored(1, a_state("ab", "cd"), ()))
    assert path.stat().st_mode & 0o777 == 0o600
    assert [type(json.loads(line)) for line in path.read_text().splitlines()] == [list, dict]
    assert (tmp_path / "mine").read_text() == "mine"
    seq, state, _ = snapshots.restore(an_empty_journal(tmp_path))
    assert (seq, list(state.jobs), state.last_number) == (1, ["ab", "cd"], 2)


@pytest.mark.parametrize("harm", ["a bit", "its end", "the header", "another field"])
def test_one_that_is_not_as_it_was_written_is_ignored(tmp_path: Path, harm: str) -> None:
    snapshots, path = Snapshots(tmp_path / "snapshot.json", "build", "yard"), tmp_path / "snapshot.json"
    snapshots.save(Restored(1, a_state("ab"), ()))
    whole = path.read_bytes()
    first, _, body = whole.partition(b"\n")
    harmed = {
        "a bit": whole.replace(b'"ab"', b'"aB"'),
        "its end": whole[:-10],
        "the header": b"[1,2]\n" + body,
        "another field": first + b"\n{}",
    }
    path.write_bytes(harmed[harm])
    assert not snapshots.restore(an_empty_journal(tmp_path))[1].jobs


def test_damages_that_are_accepted_come_back_and_others_keep_it_from_being_written(tmp_path: Path) -> None:
    snapshots, journal = Snapshots(tmp_path / "snapshot.json", "build", "yard"), an_empty_journal(tmp_path)
    of_jobs, of_all = Damage(1, "row 1 is damaged", frozenset(("ab",))), Damage(1, "row 1 is missing", None)
    snapshots.save(Restored(1, a_state("ab"), (of_jobs, of_all._replace(is_accepted=True))))
    assert not (tmp_path / "snapshot.json").exists()
    accepted = tuple(each._replace(is_accepted=True) for each in (of_jobs, of_all))
    snapshots.save(Restored(1, a_state("ab"), accepted))
    assert not snapshots.restore(journal).state.jobs  # a database in which nobody has accepted it has the row
    journal.accept(1, "ada", 1.0)
    assert snapshots.restore(journal)[::2] == (1, accepted)


def test_it_is_made_anew_from_the_journal(tmp_path: Path) -> None:
    snapshots, journal = Snapshots(tmp_path / "snapshot.json", "build", "yard"), an_empty_journal(tmp_path)
    snapshots.save(Restored(1, a_state("ab"), ()))
    journal.append([JobSubmitted("cd", 2, a_batch("true"), 1.0)], 1.0, ["cd"])
    snapshots.renew(journal)
    assert json.loads((tmp_path / "snapshot.json").read_text().splitlines()[0])[3] == 2
    assert list(snapshots.restore(journal).state.jobs) == ["ab", "cd"]
