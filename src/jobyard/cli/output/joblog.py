"""Job log: how did each task end, one line each? The columns are those of GNU parallel's --joblog."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from jobyard.cli.output.harmless import harmless
from jobyard.errors import UserError
from jobyard.model.job import State
from jobyard.wire.views import EndingView

COLUMNS = ("Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command")
HEADER = "\t".join(COLUMNS)
UNKNOWN = -1  # as parallel has it where no exit code tells of the failure


def joblog_line(ending: EndingView, seqs: Sequence[int] = ()) -> str:
    """`Seq` counts from 1; `Receive` is the size of stdout. The command stands on one line, with nothing that hides."""
    columns = (
        seq_of(ending, seqs),
        ending.node or "-",
        f"{ending.started_at:.3f}",
        f"{max(0.0, ending.finished_at - ending.started_at):10.3f}",
        0,
        ending.output_bytes,
        _exit_value(ending),
        ending.signal or 0,
        harmless(ending.command),
    )
    return "\t".join(map(str, columns))


def seq_of(ending: EndingView, seqs: Sequence[int] = ()) -> int:
    """From 1, as in the first run when `--resume` leaves out others; `seqs` are those of a list of commands."""
    return seqs[ending.number] if seqs else ending.seq or ending.number + 1


def _exit_value(ending: EndingView) -> int:
    if ending.signal:
        return ending.exit_code or 0
    if ending.exit_code == 0 and ending.state is not State.SUCCEEDED:  # ended in time, or out of memory
        return UNKNOWN
    return UNKNOWN if ending.exit_code is None else ending.exit_code


class JoblogFile:
    """Written as tasks end: each line is in the file at once. A file that is no job log is never overwritten."""

    def __init__(self, name: str, *, goes_on: bool = False, seqs: Sequence[int] = ()) -> None:
        """With `goes_on` its lines stay. Raises UserError where it cannot be written, or holds something else."""
        self._seqs = seqs
        path = Path(os.path.expanduser(name))
        try:
            with path.open("a+") as file:
                file.seek(0)
                if (begin := file.read(len(HEADER))) and begin != HEADER:
                    raise UserError(f"--joblog: {name!r} is there and is no job log; name another file")
                is_cut = goes_on and not file.read().endswith("\n")
            self._begin = "\n" if is_cut and begin else "" if goes_on and begin else f"{HEADER}\n"
            self._file = path.open("a" if goes_on else "w", encoding="utf-8", buffering=1)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UserError(f"--joblog: {name!r} cannot be written: {why}; name another file") from None

    def __enter__(self) -> JoblogFile:
        print(self._begin, end="", file=self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, ending: EndingView) -> None:
        print(joblog_line(ending, self._seqs), file=self._file)
