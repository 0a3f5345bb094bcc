"""`run-scheduler FLAGS NAME`: submit a training script."""

from __future__ import annotations

import os
from collections.abc import Sequence

from jobyard.compat.kubeprofiler import entry
from jobyard.compat.kubeprofiler.flags import parse_run
from jobyard.compat.kubeprofiler.job import spec_of
from jobyard.console import echo
from jobyard.errors import UserError


def main() -> None:
    entry.main("run-scheduler", run)


def run(words: Sequence[str]) -> int:
    """Prints the job's id, and on stderr what the submitter should know."""
    flags = parse_run(words)
    session = entry.session()
    if session.leaves_this_machine:
        raise UserError(
            "YARD_URL points at a yard elsewhere, where these directories are not; log in there, or unset it"
        )
    view = session.client.submit(spec_of(flags, _here(), dict(os.environ), entry.user()))
    echo(view.id)
    for note in view.notes:
        echo(f"run-scheduler: note: {note}", err=True)
    return 0


def _here() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise UserError(f"the current directory cannot be used ({error.strerror}); cd to another one") from None


if __name__ == "__main__":
    main()
