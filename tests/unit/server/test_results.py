"""The tar of results that the server makes, without HTTP."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from jobyard.agent_protocol import records
from jobyard.model.task import AttemptId
from jobyard.server.routes.results import _add_results, _gather
from jobyard.staging.members import new_archive


def _archive(*names: str, form: int = tarfile.PAX_FORMAT) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=form) as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    return content.getvalue()


def _passed_on(tmp_path: Path, content: bytes) -> list[str]:
    (tmp_path / "results").write_bytes(content)
    with (tmp_path / "whole").open("wb") as file, new_archive(file) as whole:
        _add_results(whole, tmp_path / "results", "0")
    with tarfile.open(tmp_path / "whole", "r:") as tar:
        return tar.getnames()


def test_results_of_any_name_stay_below_their_task(tmp_path: Path) -> None:
    """A name in a pax header wins over a name that was changed."""
    assert _passed_on(tmp_path, _archive("j2/ünï", "n" * 120)) == ["0/j2/ünï", "0/" + "n" * 120]


def test_what_leads_out_of_a_tasks_results_is_left_out(tmp_path: Path) -> None:
    assert _passed_on(tmp_path, _archive("../j2/a", "/etc/a", "b")) == ["0/b"]


def test_compressed_results_are_not_unpacked_by_the_server(tmp_path: Path) -> None:
    assert _passed_on(tmp_path, gzip.compress(_archive("a"))) == ["0.damaged"]


def _of_size_below_zero() -> bytes:
    member = tarfile.TarInfo("a")
    member.size = -512
    return member.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


@pytest.mark.parametrize("content", [b"garbage" * 200, _of_size_below_zero(), _archive("a", "b")[:700]])
def test_damaged_results_are_named_and_leave_no_file_behind(tmp_path: Path, content: bytes) -> None:
    attempt, scratch = AttemptId("j1", 0, 1), tmp_path / "scratch"
    scratch.mkdir()
    files = records.paths(str(tmp_path), str(attempt))
    Path(files.results).parent.mkdir(parents=True, exist_ok=True)
    Path(files.results).write_bytes(content)
    whole = _gather([tmp_path], [("0", attempt)], scratch)
    assert whole is not None
    assert not list(scratch.iterdir())
    with whole, tarfile.open(fileobj=whole, mode="r:") as tar:
        damage = tar.extractfile("0.damaged")
        assert damage is not None
        assert damage.read().startswith(b"the results of task 0 are damaged: ")
