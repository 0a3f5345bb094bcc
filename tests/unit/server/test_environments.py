from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.errors import Rejected, Unwritable, UserError
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.job import JobSpec
from jobyard.server.environments import Environments
from jobyard.staging.tree_snapshot import publish
from tests.builders import a_job, submitted

SHELL = {"PATH": "/bin", "SECRET": "s3cret", "OLDPWD": "/caf\udce9", "YARD_TOKEN": "t0ken", "YARD_URL": "http://x"}
KEPT = {"PATH": "/bin", "SECRET": "s3cret", "OLDPWD": "/caf\udce9"}
DAY = 86400.0


def environments(directory: Path) -> Environments:
    return Environments(directory / "environments", kept_seconds=30 * DAY)


def files(directory: Path) -> list[Path]:
    return sorted((directory / "environments").iterdir())


def no_job(name: str) -> bool:
    return False


async def kept(known: Environments, env: dict[str, str]) -> JobSpec:
    """The spec of a job that was made."""
    async with known.kept(a_job(inherited_env=env), lambda name: True) as spec:
        return spec


def a_yard(*specs: JobSpec) -> YardState:
    state = YardState()
    for number, spec in enumerate(specs, 1):
        handle(state, submitted(f"job{number}", number, spec))
    return state


async def test_the_spec_has_a_name_in_place_of_the_variables_and_the_file_is_private(tmp_path: Path) -> None:
    spec = await kept(environments(tmp_path), SHELL)
    (file,) = files(tmp_path)
    assert (spec.submitter.inherited_env, spec.submitter.environment) == ({}, file.name)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "t0ken" not in file.read_text()
    assert environments(tmp_path).read(spec.submitter.environment) == KEPT


async def test_jobs_of_one_shell_share_a_file_and_no_variables_need_none(tmp_path: Path) -> None:
    known = environments(tmp_path)
    assert await kept(known, SHELL) == await kept(known, SHELL)
    other = await kept(known, {**SHELL, "A": "1"})
    assert other.submitter.environment != (await kept(known, SHELL)).submitter.environment
    assert (await kept(known, {"YARD_TOKEN": "t0ken"})).submitter.environment == ""
    assert len(files(tmp_path)) == 2


async def test_what_cannot_be_written_refuses_the_job(tmp_path: Path) -> None:
    (tmp_path / "environments").write_text("in the way")
    with pytest.raises(Unwritable, match="environment"):
        await kept(environments(tmp_path), SHELL)


async def test_a_start_deletes_what_no_job_names_unless_jobs_may_be_missing(tmp_path: Path) -> None:
    known = environments(tmp_path)
    spec, left = await kept(known, SHELL), await kept(known, {"LEFT": "by a crash"})
    (tmp_path / "environments" / "torn.part").write_text("{")
    environments(tmp_path).delete_unneeded(a_yard(spec), 0.0, orphans=False)
    assert len(files(tmp_path)) == 3
    environments(tmp_path).delete_unneeded(a_yard(spec), 0.0, orphans=True)
    assert [file.name for file in files(tmp_path)] == [spec.submitter.environment]
    with pytest.raises(Rejected, match="submit it again"):
        environments(tmp_path).read(left.submitter.environment)


async def test_it_goes_with_the_last_job_that_needs_it_some_time_after_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = environments(tmp_path)
    spec = await kept(known, SHELL)
    state = a_yard(spec, spec)
    for job, at in (("job1", 0.0), ("job2", 10 * DAY)):
        state.jobs[job].times.finished_at = at
    monkeypatch.setattr("jobyard.engine.job_record.JobRecord.is_final", True)
    known.delete_unneeded(state, 31 * DAY, orphans=False)
    first = SubmittedJob("job1", 1, spec)
    known.check_kept(first)
    known.delete_unneeded(state, 41 * DAY, orphans=False)
    assert files(tmp_path) == []
    with pytest.raises(UserError, match=r"kept until 30d00h after its end; submit it again"):
        known.check_kept(first)
    again = await kept(known, SHELL)
    assert known.read(again.submitter.environment) == KEPT


async def test_a_submit_that_makes_no_job_leaves_no_file(tmp_path: Path) -> None:
    known = environments(tmp_path)
    with pytest.raises(UserError, match="refused"):
        async with known.kept(a_job(inherited_env=SHELL), no_job):
            raise UserError("refused")
    async with known.kept(a_job(inherited_env=SHELL), no_job):
        pass  # a repeated submit, which finds its job
    assert files(tmp_path) == []
    spec = await kept(known, SHELL)
    with pytest.raises(UserError, match="refused"):
        async with known.kept(a_job(inherited_env=SHELL), lambda name: True):
            raise UserError("refused")
    assert known.read(spec.submitter.environment) == KEPT


async def test_a_file_that_another_submit_needs_stays_until_that_one_is_over(tmp_path: Path) -> None:
    known, asked = environments(tmp_path), a_job(inherited_env=SHELL)
    async with known.kept(asked, no_job) as other:
        with pytest.raises(UserError, match="refused"):
            async with known.kept(asked, no_job):
                raise UserError("refused")
        assert known.read(other.submitter.environment) == KEPT
    assert files(tmp_path) == []


async def test_a_submit_whose_caller_left_keeps_its_file_because_its_job_may_still_be_made(tmp_path: Path) -> None:
    with pytest.raises(asyncio.CancelledError):
        async with environments(tmp_path).kept(a_job(inherited_env=SHELL), no_job):
            raise asyncio.CancelledError
    assert len(files(tmp_path)) == 1


async def test_a_file_that_a_submit_is_about_to_use_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = environments(tmp_path)
    state = a_yard(await kept(known, SHELL))
    state.jobs["job1"].times.finished_at = 0.0
    monkeypatch.setattr("jobyard.engine.job_record.JobRecord.is_final", True)
    async with known.kept(a_job(inherited_env=SHELL), lambda name: True) as spec:
        known.delete_unneeded(state, 99 * DAY, orphans=True)
        assert known.read(spec.submitter.environment) == KEPT


async def test_the_half_of_a_file_that_a_submit_is_writing_stays_and_goes_at_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = environments(tmp_path)

    def swept_meanwhile(path: Path, chunks: Iterable[bytes]) -> None:
        def written() -> Iterator[bytes]:
            yield from chunks
            known.delete_unneeded(a_yard(), 0.0, orphans=True)

        publish(path, written())

    monkeypatch.setattr("jobyard.server.environments.publish", swept_meanwhile)
    spec = await kept(known, SHELL)
    assert known.read(spec.submitter.environment) == KEPT
    half = tmp_path / "environments" / f"{spec.submitter.environment}.x.part"
    half.touch()
    environments(tmp_path).delete_unneeded(a_yard(spec), 0.0, orphans=True)
    assert not half.exists()


async def test_it_is_on_disk_before_the_job_may_be_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
    async with environments(tmp_path).kept(a_job(inherited_env=SHELL), no_job) as spec:
        assert json.loads((tmp_path / "environments" / spec.submitter.environment).read_bytes())["PATH"] == "/bin"
        assert [Path(path).name.split(".")[0] for path in synced] == [spec.submitter.environment, "environments"]
