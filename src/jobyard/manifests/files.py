"""Text files: how is a user's file read, and what is said when it cannot be?"""

from __future__ import annotations

import base64
import os
import re
import stat

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.model.limits import STDIN_BYTES_MOST
from jobyard.model.selectors import other_meaning
from jobyard.quoting import quoted

_OPENED_ALREADY = re.compile(r"/dev/(?:stdin|fd/\d+)|/proc/\w+/fd/\d+")  # a pipe of the shell that called us


def read_text(
    path: str | os.PathLike[str], context: SubmitContext, field: str = "file", *, may_have_nul: bool = False
) -> str:
    """The text without a byte order mark; a relative path starts at the submit directory. Raises UserError."""
    shown = os.fspath(path)
    content = _content(shown, context, field)
    if b"\0" in content and not may_have_nul:
        raise UserError(
            f"{shown!r} is a binary file (it holds a NUL byte); to run it write: yard run -- {_program(shown)}",
            field=field,
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{shown!r} is not UTF-8 text (line {line}); convert it, for example with iconv", field=field
        ) from None


def read_stdin(path: str, context: SubmitContext, field: str) -> str:
    """The bytes of a file, as base64, for each task to read. Raises UserError."""
    content = _content(path, context, field, most=STDIN_BYTES_MOST)
    if len(content) > STDIN_BYTES_MOST:
        raise UserError(
            f"{path!r} has more than {STDIN_BYTES_MOST >> 20} MiB, too much to be kept with the job; "
            "let the command read the file: yard run -- 'CMD < FILE'",
            field=field,
        )
    return base64.b64encode(content).decode()


def _content(shown: str, context: SubmitContext, field: str, most: int = -1) -> bytes:
    """Up to one byte more than `most`; `-` is the standard input of this command. Raises UserError."""
    if not shown:
        raise UserError("the path is empty; name a file", field=field)
    place = os.path.join(context.workdir, os.path.expanduser("/dev/stdin" if shown == "-" else shown))
    try:
        _refuse_endless(place, shown, field)
        with open(place, "rb") as file:
            return file.read(most + 1 if most >= 0 else -1)
    except FileNotFoundError:
        raise UserError(f"{shown!r} does not exist; looked in {context.workdir}", field=field) from None
    except IsADirectoryError:
        raise UserError(f"{shown!r} is a directory; name a file in it", field=field) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{shown!r} cannot be read: {why}", field=field) from None


def _refuse_endless(place: str, shown: str, field: str) -> None:
    """What is no regular file may never open, or never end."""
    mode = os.stat(place).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or _OPENED_ALREADY.fullmatch(place)):
        raise UserError(
            f"{shown!r} is no regular file; name one, or give a pipe as standard input (/dev/stdin)", field=field
        )


def _program(path: str) -> str:
    return quoted(path if "/" in path else f"./{path}")


def lines_of(text: str) -> list[str]:
    """Lines as bash and editors count them: at newlines only, without the newline or a carriage return before it."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line[:-1] if line.endswith("\r") else line for line in lines]


def name_from_file(file: str) -> str:
    """A job's default name: the file's, without directory and suffix."""
    stem = os.path.splitext(os.path.basename(file))[0]
    name = "".join(character if character.isprintable() else "_" for character in stem)[:200].strip() or "job"
    return f"{name[:190]}-job" if other_meaning(name) else name
