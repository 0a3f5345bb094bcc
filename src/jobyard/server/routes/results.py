"""GET /jobs/{selector}/results: the output and the collected results of a job's tasks, as one tar."""

from __future__ import annotations

import asyncio
import os
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import ExitStack
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from jobyard.agent_protocol import packs, records
from jobyard.agent_protocol.records import Paths
from jobyard.errors import NotFound
from jobyard.executors.mirror import tasks_in
from jobyard.model.task import AttemptId
from jobyard.model.task_ranges import task_ranges
from jobyard.server.declarations import Media, answers
from jobyard.server.logs import DamagedLog, open_log
from jobyard.server.queries import ended_attempts, submitted_job
from jobyard.server.routes.answers import Selector, Tasks, yard_of
from jobyard.server.yard import Yard
from jobyard.staging.members import DAMAGE, members, new_archive, open_archive, parts_of, pass_on, refusal

_FEW_TASKS = 100  # are looked for one by one
_PIECE_BYTES = 1 << 18
_SENTENCE = 300  # characters; the error may have a name from the archive

router = APIRouter()


@router.get("/jobs/{selector}/results")
@answers(Media("application/x-tar"))
async def get_results(request: Request, selector: Selector, task: Tasks = "") -> Response:
    """`task` may name several, as in `3,7-9`."""
    yard = yard_of(request)
    with yard.lifetime.request():
        job = submitted_job(yard.loop, selector)
        places = yard.machines.file_places
        asked = [range(first, last + 1) for first, last in task_ranges(job.spec, task)] if task else None
        if asked is not None and sum(map(len, asked)) <= _FEW_TASKS:
            numbers = sorted(set(chain(*asked)))
        else:  # search the disk, not the tasks: a job may have a hundred million tasks that never ran
            there = await asyncio.to_thread(_tasks_in_all, places, job.id)
            numbers = [number for number in there if asked is None or any(number in span for span in asked)]
        ended = ended_attempts(yard.loop, job.id, numbers)
        file = await asyncio.to_thread(_gather, places, ended, Path(yard.directory))
        if file is None:
            which = "these" if task else "its"
            raise NotFound(f"job {job.number} has no results here: none of {which} tasks has begun and ended yet")
    return StreamingResponse(_pieces(yard, file, "" if task else job.id), media_type="application/x-tar")


async def _pieces(yard: Yard, file: BinaryIO, job: str) -> AsyncIterator[bytes]:
    """Who has read all of it has fetched `job`, if these are all of its results."""
    with file:
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield piece
    if job:
        yard.housekeeping.files.was_fetched(job)


def _tasks_in_all(places: Sequence[Path], job: str) -> list[int]:
    return sorted({number for place in places for number in tasks_in(place, job)})


def _gather(places: Sequence[Path], attempts: Iterable[tuple[str, AttemptId]], scratch: Path) -> BinaryIO | None:
    """A tar with `<label>/...`, `<label>.out` and `<label>.err` of each; None where nothing of them is anywhere.

    The file has no name, so nothing of it stays, whatever happens.
    """
    with ExitStack() as on_failure:
        file = cast(BinaryIO, on_failure.enter_context(tempfile.TemporaryFile(dir=scratch)))
        with new_archive(file) as whole:
            found = _add_all(whole, places, attempts)
        if not found:
            return None
        file.seek(0)
        on_failure.pop_all()
        return file


def _add_all(whole: tarfile.TarFile, places: Sequence[Path], attempts: Iterable[tuple[str, AttemptId]]) -> bool:
    """Whether anything of them is anywhere."""
    found = False
    for label, attempt in attempts:
        name = label.replace("/", "_")
        everywhere = (records.paths(str(place), str(attempt)) for place in places)
        files = next((files for files in everywhere if _has_any(files)), None)
        if files is None:
            continue
        found = True
        _add_logs(whole, files, name)
        _add_results(whole, Path(files.results), name)
        if os.path.isdir(files.output):  # on this machine; from others it comes among the results
            whole.add(files.output, f"{name}/output")
    return found


def _has_any(files: Paths) -> bool:
    return any(packs.is_there(path) for path in (files.out, files.err, files.results, files.record))


def _add_logs(whole: tarfile.TarFile, files: Paths, name: str) -> None:
    damages = set()
    for path, stream in ((files.out, "out"), (files.err, "err")):
        try:
            _add_log(whole, Path(path), f"{name}.{stream}")
        except DamagedLog as error:  # of both streams the same
            damages.add(str(error))
    for sentence in damages:
        _add_damage(whole, f"{name}.damaged", f"{sentence}\n")


def _add_log(whole: tarfile.TarFile, path: Path, name: str) -> None:
    try:
        with open_log(path) as file:
            whole.addfile(_member(whole, name, file), file)
    except FileNotFoundError:
        whole.addfile(tarfile.TarInfo(name))  # no output


def _member(whole: tarfile.TarFile, name: str, file: BinaryIO) -> tarfile.TarInfo:
    if not isinstance(file, BytesIO):
        return whole.gettarinfo(arcname=name, fileobj=file)
    member = tarfile.TarInfo(name)  # it was packed
    member.size = len(file.getbuffer())
    return member


def _add_results(whole: tarfile.TarFile, results: Path, name: str) -> None:
    if not results.exists() or not results.stat().st_size:
        return
    with results.open("rb") as file:
        try:
            with open_archive(file) as own:
                for member in members(own):
                    if refusal(member) is None and parts_of(member.name):
                        pass_on(own, member, whole, lambda inner: f"{name}/{inner}")
        except DAMAGE as error:
            _add_damage(whole, f"{name}.damaged", f"the results of task {name} are damaged: {str(error)[:_SENTENCE]}\n")


def _add_damage(whole: tarfile.TarFile, name: str, sentence: str) -> None:
    """The results of other tasks come all the same."""
    content = sentence.encode(errors="backslashreplace")
    member = tarfile.TarInfo(name)
    member.size = len(content)
    whole.addfile(member, BytesIO(content))
