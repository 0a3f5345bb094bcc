"""Results directory: where does `--results DIR` put what each task wrote? DIR/TASK/stdout, stderr and seq."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobyard.cli.output.joblog import seq_of
from jobyard.client.api import YardClient
from jobyard.errors import UserError
from jobyard.wire.views import EndingView

FILES = (("stdout", "out"), ("stderr", "err"))


@dataclass(frozen=True)
class Kept:
    """The output of one more task is there."""

    task: str


class ResultsDirectory:
    """As GNU parallel's --results. What an earlier run wrote there is written anew."""

    def __init__(self, name: str, seqs: Sequence[int] = ()) -> None:
        """Raises UserError where it cannot be made."""
        self._seqs = seqs
        self._directory = Path(os.path.expanduser(name)).absolute()
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--results: {name!r} cannot be made: {error.strerror}; name another directory") from None

    def keep(self, client: YardClient, job: str, since: int) -> Iterator[Kept]:
        """The output of each task that ends after this row of the journal, until the job has ended. Raises OSError."""
        for ending in client.endings(job, since=since):
            self._keep(client, job, ending)
            yield Kept(ending.task)

    def _keep(self, client: YardClient, job: str, ending: EndingView) -> None:
        place = self._directory / ending.task.replace("/", "_")
        place.mkdir(exist_ok=True)
        for name, stream in FILES:
            with (place / name).open("wb") as file:
                file.writelines(client.raw_log(job, task=ending.task, attempt=ending.attempt, stream=stream))
        (place / "seq").write_text(f"{seq_of(ending, self._seqs)}\n")
