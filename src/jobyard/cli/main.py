"""Main function of `yard`: no traceback ever reaches a user, each error is one sentence and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from jobyard import __version__, settings
from jobyard.cli.group import yard
from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.pipe import nobody_reads, silence
from jobyard.errors import YardError

COMPLETION = "_YARD_COMPLETE"
CLICKS_CLOSED_PIPE = 1  # click exits so by itself, and lets us see no more of it
INTERRUPTED = 130  # 128 + SIGINT, as shells say it
CLOSED_PIPE = 0  # whoever leaves, as `head` does, has had enough: with `pipefail` too that is no error
DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def main(argv: Sequence[str] | None = None) -> None:
    """Run `yard` and exit. See DESIGN section 4 for the exit codes."""
    exit_with(run(sys.argv[1:] if argv is None else argv))


def exit_with(code: int) -> None:
    sys.exit(_flushed(code))


def run(argv: Sequence[str]) -> int:
    """The exit code of one call. Never raises."""
    if COMPLETION in os.environ:  # a shell asks what Tab shall offer
        import_module("jobyard.cli.completion").register()
    color = False if os.environ.get("NO_COLOR") else None
    return guarded(lambda: yard.main(list(argv), prog_name="yard", standalone_mode=False, color=color), "yard", argv)


def guarded(call: Callable[[], Any], program: str, argv: Sequence[str]) -> int:
    """The exit code of a call that answers with one or raises. Never raises."""
    try:
        result = call()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _say(_sentence(error), error.exit_code, error, program)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except YardError as error:
        return _say(str(error), error.exit_code, error, program)
    except SystemExit as error:
        if error.code == CLICKS_CLOSED_PIPE and nobody_reads(1, 2):
            return CLOSED_PIPE
        return error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except Exception as error:
        if isinstance(error, BrokenPipeError) and nobody_reads(1, 2):
            return CLOSED_PIPE
        return _say(_disk_sentence(error) or _crash_sentence(error, argv), 1, error, program)


def _sentence(error: click.ClickException) -> str:
    message = error.format_message().strip().rstrip(".").replace(". (", " (")
    message = message[:1].lower() + message[1:]
    ctx = getattr(error, "ctx", None)
    if ctx is None or "yard " in message:
        return message
    return f"{message}; see `{ctx.command_path} --help`"


def _disk_sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        return f"{error.filename or 'the output'} cannot be written: {error.strerror}"
    return ""


def _crash_sentence(error: Exception, argv: Sequence[str]) -> str:
    """Names the file with the traceback. Only the verb is kept of the command line: the rest may hold secrets."""
    what = f"this is a bug in jobyard ({type(error).__name__})"
    directory = settings.state_dir()
    path = directory / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(
                f"yard {__version__} ({settings.build_id()}), python {sys.version}\nverb: {' '.join(argv[:1])}\n\n"
            )
            file.write("".join(traceback.format_exception(error)))
    except OSError as unwritable:
        return f"{what}, and no report could be written to {directory}: {unwritable.strerror}; YARD_DEBUG=1 shows it"
    return f"{what}; please report it with {path}"


def _say(sentence: str, code: int, error: BaseException, program: str = "yard") -> int:
    with suppress(OSError):
        if os.environ.get("YARD_DEBUG", "0") not in ("", "0"):
            sys.stderr.write("".join(traceback.format_exception(error)))
        sys.stderr.write(f"{program}: {harmless(' '.join(sentence.split()))}\n")
    return code


def _flushed(code: int) -> int:
    """A pipe that closed early is not reported, neither now nor when the interpreter ends."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:
        silence(sys.stdout)
        return _say(f"the output cannot be written: {error.strerror}", code or 1, error)
    return code


if __name__ == "__main__":
    main()
