"""Environment files: which variables of the submitting shell does a job have? Stored beside the journal, never in it.

A shell's environment is full of secrets, and a journal is copied, mailed and kept for years. Each file has the
variables of one shell, mode 0600, under a random name that the job's spec carries; jobs of one shell share it. It is on
disk before its job is acknowledged. It is deleted some time after the last job that needs it has ended, because
`yard retry` needs it again. The file of a submit that makes no job is deleted at once; what a crash left and no job
names, at the next start.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from jobyard.engine.job_record import JobRecord
from jobyard.engine.yard_state import YardState
from jobyard.errors import Rejected, Unwritable, UserError
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.environment import NEVER_KEPT
from jobyard.model.job import JobSpec
from jobyard.model.units import show_seconds
from jobyard.staging.tree_snapshot import publish

log = logging.getLogger(__name__)

DIRECTORY = "environments"
_NAME = re.compile(r"[0-9a-f]{32}")
_REMEMBERED = 16  # environments that were last used; a submitter has one or two shells


class Environments:
    """The files of one yard. Only `kept` waits; all other methods are quick, and run on the loop's thread."""

    def __init__(self, directory: Path, kept_seconds: float) -> None:
        self._directory = directory
        self._kept_seconds = kept_seconds  # after the end of the job
        self._names: dict[str, str] = {}  # by the hash of their content, as far as this server knows
        self._submitting: Counter[str] = Counter()
        self._without_job: set[str] = set()  # written here, and no job has been made with it so far
        self._read: dict[str, Mapping[str, str]] = {}

    @asynccontextmanager
    async def kept(self, spec: JobSpec, has_job: Callable[[str], bool]) -> AsyncIterator[JobSpec]:
        """The spec as it may be journalled, while its environment is on disk and stays there. Raises Unwritable.

        Afterwards it stays where a job has it, which `has_job` is asked then.
        """
        variables = {name: value for name, value in spec.submitter.inherited_env.items() if name not in NEVER_KEPT}
        if not variables:
            yield spec.with_shell({})
            return
        content = json.dumps(variables, sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()
        name = self._names.get(digest) or secrets.token_hex(16)
        self._submitting[name] += 1
        is_decided = True
        try:
            if not self._path(name).exists():
                self._without_job.add(name)
                await asyncio.to_thread(self._write, name, content)
            self._names[digest] = name
            yield spec.with_shell({}, stored_as=name)
        except asyncio.CancelledError:
            is_decided = False  # the loop may still make the job: the file stays until the next start
            raise
        finally:
            if is_decided:
                self._release(name, has_job)

    def _release(self, name: str, has_job: Callable[[str], bool]) -> None:
        """After a submit: its file has a job now, or goes with the last submit that could still make one."""
        self._submitting[name] -= 1
        if name in self._without_job:
            if has_job(name):
                self._without_job.discard(name)
            elif not self._submitting[name]:
                self._without_job.discard(name)
                self._delete(self._path(name))
        if not self._submitting[name]:
            del self._submitting[name]

    def _write(self, name: str, content: bytes) -> None:
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            publish(self._path(name), [content])
        except OSError as error:
            sentence = f"the yard cannot write the job's environment ({error.strerror}); free some disk space"
            raise Unwritable(f"{sentence} and try again") from error

    def read(self, name: str) -> Mapping[str, str]:
        """The variables in a file. Raises Rejected where it is gone or damaged."""
        if name not in self._read:
            try:
                found = json.loads(self._path(name).read_bytes())
            except (OSError, ValueError) as error:
                raise Rejected(
                    f"the environment that it was submitted with is gone ({error}); submit it again"
                ) from error
            while len(self._read) >= _REMEMBERED:
                del self._read[next(iter(self._read))]
            self._read[name] = found
        return self._read[name]

    def check_kept(self, job: SubmittedJob) -> None:
        """Raises UserError where a job that has ended could not be run again as it was."""
        if job.spec.submitter.environment and not self._path(job.spec.submitter.environment).exists():
            age = f"{show_seconds(self._kept_seconds)} after its end"
            raise UserError(
                f"job {job.number}: the environment that it was submitted with is kept until {age}; submit it again"
            )

    def delete_unneeded(self, state: YardState, now: float, *, orphans: bool) -> None:
        """Delete what no job needs any more, and with `orphans` what no job names, unless jobs may be missing.

        While a submit is under way, its half of a file is left alone: only at a start nobody is writing one.
        """
        named = {job.spec.submitter.environment for job in state.jobs.values()}
        needed = {job.spec.submitter.environment for job in state.jobs.values() if self._is_needed(job, now)}
        for path in self._files():
            is_written = self._submitting and not _NAME.fullmatch(path.name)
            is_orphan = orphans and path.name not in named and not is_written
            is_unwanted = path.name in named - needed or is_orphan
            if is_unwanted and path.name not in self._submitting:
                self._delete(path)

    def _is_needed(self, job: JobRecord, now: float) -> bool:
        return not job.is_final or job.times.finished_at is None or now - job.times.finished_at < self._kept_seconds

    def _delete(self, path: Path) -> None:
        self._read.pop(path.name, None)
        self._names = {digest: name for digest, name in self._names.items() if name != path.name}
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("environment file %s stays: %s", path.name, error)

    def _files(self) -> Collection[Path]:
        try:
            return list(self._directory.iterdir())
        except FileNotFoundError:
            return []

    def _path(self, name: str) -> Path:
        assert _NAME.fullmatch(name), name
        return self._directory / name
