"""Builder subprocess: how does a builder's program run? Line by line, with its last lines kept."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence

from jobyard.errors import BuildFailed, UserError
from jobyard.images.names import ImageName
from jobyard.images.protocol import BuildPlan, Say

LAST_LINES = 20
_NO_TARGET = re.compile(
    r"failed to reach build target|target stage \S+ could not be found|target \S+ was not found in the provided", re.I
)
_REFUSED = re.compile(
    r"denied|unauthorized|forbidden|authentication required|no basic auth|\b40[13]\b|insufficient_scope", re.I
)
_UNREACHABLE = re.compile(
    r"dial tcp|connection refused|no such host|i/o timeout|no route to host|TLS handshake|HTTP response to HTTPS", re.I
)
# Last lines of programs that are not the reason.
_BALLAST = re.compile(
    r"^\s*$|^-+$|^\s*\d* ?\|?>>>|^DEPRECATED|Removing intermediate container|^time=|^exit status \d+$"
)


def run_logged(words: Sequence[str], say: Say, env: Mapping[str, str] | None = None) -> tuple[int, tuple[str, ...]]:
    """Its exit code and its last lines. Each line is said when it comes. The program ends with us."""
    last: deque[str] = deque(maxlen=LAST_LINES)
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(env or {})},
    ) as process:
        assert process.stdout is not None
        try:
            for raw in process.stdout:
                line = raw.decode(errors="replace").rstrip("\r\n").rsplit("\r", 1)[-1]
                last.append(line)
                say(line)
        except BaseException:
            process.terminate()
            raise
    return process.returncode, tuple(last)


def asked(words: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program that answers quickly."""
    return subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **(env or {})},
    )


def need(program: str, sentence: str) -> None:
    if shutil.which(program) is None:
        raise UserError(sentence)


def check_build(plan: BuildPlan, code: int, lines: tuple[str, ...]) -> None:
    """Raises unless the build went well."""
    if code == 0:
        return
    if any(map(_NO_TARGET.search, lines)):
        raise UserError(
            f"{plan.dockerfile} has no stage {plan.target!r}; name one that stands after AS, or leave it out"
        )
    raise BuildFailed(f"the image was not built: {reason_of(lines) or f'exit code {code}'}", lines)


def check_push(name: ImageName, code: int, lines: tuple[str, ...]) -> None:
    if code != 0:
        raise push_failure(name, lines)


def push_failure(name: ImageName, lines: tuple[str, ...]) -> BuildFailed:
    host, said = name.registry.host, reason_of(lines)
    if any(map(_UNREACHABLE.search, lines)):
        return BuildFailed(f"the image is built, and the registry {host} cannot be reached for the push: {said}", lines)
    if any(map(_REFUSED.search, lines)):
        return BuildFailed(
            f"the image is built, and the registry {host} refused {name.untagged}: {said}; log in, or name another",
            lines,
        )
    return BuildFailed(f"the image is built and was not pushed to {host}: {said}", lines)


def reason_of(lines: tuple[str, ...]) -> str:
    """The line that says why: the last one that names an error, or else the last one."""
    told = [line.strip() for line in lines if not _BALLAST.search(line)]
    named = [line for line in told if re.search(r"error|denied|failed|cannot|not found", line, re.I)]
    return (named or told or [""])[-1][:500]
