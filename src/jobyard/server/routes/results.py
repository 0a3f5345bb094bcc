"""GET /jobs/{selector}/results: the collected results of tasks on other machines, as one tar."""

from __future__ import annotations

import asyncio
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from jobyard.errors import NotFound
from jobyard.executors.mirror import STREAMS, Mirror
from jobyard.model.task import AttemptId
from jobyard.server.declarations import Media, answers
from jobyard.server.queries import ended_attempts, submitted_job
from jobyard.server.routes.answers import Label, Selector, yard_of
from jobyard.server.yard import Yard

router = APIRouter()


@router.get("/jobs/{selector}/results")
@answers(Media("application/x-tar"))
async def get_results(request: Request, selector: Selector, task: Label = "") -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        job = submitted_job(yard.loop, selector)
        mirror = yard.machines.mirror
        # Search the disk, not the tasks: a job may have a hundred million tasks that never ran.
        numbers = [job.spec.number_of(task)] if task else await asyncio.to_thread(mirror.tasks_of, job.id)
        ended = ended_attempts(yard.loop, job.id, numbers)
        path = await asyncio.to_thread(_gather, mirror, ended, Path(yard.directory))
        if path is None:
            raise NotFound(f"job {job.id} has no results here: its tasks ran on this machine, or none has ended yet")
    return FileResponse(
        path, media_type="application/x-tar", background=BackgroundTask(_sent, yard, path, "" if task else job.id)
    )


def _sent(yard: Yard, path: Path, job: str) -> None:
    """All of it has gone out; `job`, if these are all of its results."""
    path.unlink()
    if job:
        yard.housekeeping.files.was_fetched(job)


def _gather(mirror: Mirror, attempts: Iterable[tuple[str, AttemptId]], scratch: Path) -> Path | None:
    """A tar with `<label>/...`, `<label>.out` and `<label>.err` of each; None where the mirror has nothing of them."""
    found = False
    with (
        tempfile.NamedTemporaryFile(dir=scratch, suffix=".tar", delete=False) as file,
        tarfile.open(fileobj=file, mode="w") as whole,
    ):
        for label, attempt in attempts:
            name = label.replace("/", "_")
            if not any(mirror.path(attempt, stream).exists() for stream in STREAMS):
                continue  # it ran on this machine
            found = True
            for stream in ("out", "err"):
                if (path := mirror.path(attempt, stream)).exists():
                    whole.add(path, f"{name}.{stream}")
                else:
                    whole.addfile(tarfile.TarInfo(f"{name}.{stream}"))  # no output
            _add_results(whole, mirror.path(attempt, "results"), name)
    if found:
        return Path(file.name)
    Path(file.name).unlink()
    return None


def _add_results(whole: tarfile.TarFile, results: Path, name: str) -> None:
    if not results.exists() or not results.stat().st_size:
        return
    with tarfile.open(results) as own:
        for member in own:
            content = own.extractfile(member) if member.isreg() else None
            member.name = f"{name}/{member.name}"
            whole.addfile(member, content)
