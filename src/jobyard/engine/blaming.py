"""Error attribution: which job does an error of ours belong to? The one that was being worked on, if known."""

from __future__ import annotations


class Poisoned(Exception):
    """An error of ours with one job; its cause is the error itself."""

    def __init__(self, job: str) -> None:
        super().__init__(f"job {job}")
        self.job = job


class blaming:
    """`with blaming(job):` an error inside is attributed to this job. A class: it is entered often, and is quick."""

    __slots__ = ("_job",)

    def __init__(self, job: str) -> None:
        self._job = job

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, Poisoned):
            raise Poisoned(self._job) from error
