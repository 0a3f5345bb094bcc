"""Settings: which knobs are there, and where does the yard keep its files? Each with default, unit and variable.

Cheap to import: the command line pays for this module on each call.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TypeVar

from jobyard import __version__
from jobyard.errors import UserError, YardError
from jobyard.quoting import quoted

APP = "jobyard"
SOCKET_PATH_BYTES = 107  # sun_path holds 108 with its closing NUL (unix(7))


@dataclass(frozen=True)
class ServerKnobs:
    """Of the server. A knob `idle_seconds` is set by the variable YARD_IDLE_SECONDS."""

    idle_seconds: float = 300.0
    """A background server without pending work and without requests ends after so many seconds."""
    heartbeat_seconds: float = 15.0
    """A silent event stream carries a comment line this often, so that a client can tell silence from a dead link."""
    lease_seconds: float = 60.0
    """A machine without a link for so long is lost: what ran there runs elsewhere as the next attempt."""
    alive_seconds: float = 5.0
    """A machine's link is tried this often; three times without an answer, and it counts as cut."""
    header_seconds: float = 10.0
    """A client that has not sent the whole header of a request after so many seconds is closed."""
    keep_alive_seconds: float = 5.0
    """A connection without a request is kept for so many seconds."""
    body_seconds: float = 60.0
    """The body of a request has so many seconds, and one more for each 64 KiB of it."""
    stall_seconds: float = 3600.0
    """A client that asked for an answer and reads nothing of it is closed after so many seconds: `yard logs | less`."""
    connections_per_peer: int = 256
    """Open connections of one address on TCP; behind a proxy, that of all its clients."""
    body_mib_most: int = 64
    """The largest request in MiB: a batch of a million lines of 60 characters."""
    db: str = ""
    """The database URL; empty: SQLite in the yard's directory. A variable, because it may carry a password."""
    token_dir: str = ""
    """A directory with a file for each token, named as its holder: a mounted Secret. They are valid from the start."""
    refusal_seconds: float = 5.0
    """Who sends wrong tokens again and again waits longer for each refusal, up to so many seconds."""
    run_as: str = ""
    """As whom tasks run on the server's own machine, if root serves; empty: as the server, and only its owner's."""
    environment_seconds: float = 30 * 86400.0
    """The variables of the shell that a job was submitted from are kept so long after its end, for `yard retry`."""
    own_machine: bool = True
    """Whether tasks may run on the server's own machine. Not in a pod: they would end with it."""


@dataclass(frozen=True)
class KeepKnobs:
    """How long a server keeps what has ended. A knob `keep_seconds` is set by the variable YARD_KEEP_SECONDS."""

    keep_seconds: float = 30 * 86400.0
    """A job goes so long after its end, with all that the yard keeps of it."""
    keep_unfetched_seconds: float = 90 * 86400.0
    """A job with results that are only in the yard, and that nobody has fetched, goes so long after its end."""
    keep_jobs: int = 10_000
    """At most so many jobs that have ended; the oldest go first."""
    keep_mib: int = 10 * 1024
    """At most so many MiB of jobs that have ended, on the server's disk; the oldest go first."""
    keep_least_seconds: float = 86400.0
    """A job that ended less than so many seconds ago goes neither for their number nor for their size."""


@dataclass(frozen=True)
class ClientKnobs:
    """Of the client and the command line. A knob `request_seconds` is set by the variable YARD_REQUEST_SECONDS."""

    request_seconds: float = 60.0
    """One request that is not a stream may take so many seconds."""
    silence_seconds: float = 45.0
    """A stream that says nothing for so many seconds (three heartbeats) is dead, and is opened again."""
    start_seconds: float = 30.0
    """A server started in the background must answer within so many seconds."""
    reconnect_seconds: float = 60.0
    """Who follows a job gives up after so many seconds without any server."""
    progress_seconds: float = 5.0
    """Without a terminal, progress is said at most this often (or at each tenth of the tasks)."""
    registry: str = ""
    """Where built images are pushed to: HOST[:PORT][/PATH]."""
    pull_registry: str = ""
    """The same registry as those reach it who run the images; empty: under the same address."""
    kaniko_image: str = ""
    """The image of `--builder kaniko`, as the cluster pulls it; empty: kaniko's own last release."""
    git_image: str = ""
    """The image that fetches the commit there, with sh and git; empty: alpine/git."""
    debug: bool = False
    """Show tracebacks."""


Group = TypeVar("Group", ServerKnobs, KeepKnobs, ClientKnobs)


def knobs(group: type[Group], environ: Mapping[str, str] | None = None) -> Group:
    """The group's knobs as the environment sets them. Raises UserError that names a variable with a bad value."""
    environ = os.environ if environ is None else environ
    given: dict[str, str | float | int | bool] = {}
    for field in fields(group):
        variable = f"YARD_{field.name.upper()}"
        text = environ.get(variable, "")
        if text:
            given[field.name] = _read(variable, text, type(field.default))
    return group(**given)  # type: ignore[arg-type]


def _read(variable: str, text: str, kind: type) -> str | float | int | bool:
    if kind is str:
        return text
    if kind is bool:
        return text.lower() not in ("0", "no", "false", "off")
    if kind is int:
        if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 31:
            raise UserError(f"{variable}: {text[:40]!r} is not a whole number; unset it or write 1 or more")
        return int(text)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UserError(f"{variable}: {text!r} is not a number of seconds; unset it or write 0 or more")
    return seconds


def yard_dir(given: str | os.PathLike[str] | None = None) -> Path:
    """The yard's directory: `--yard`, YARD_DIR, or the user's own. Absolute; it may not exist yet."""
    named = given or os.environ.get("YARD_DIR")
    return Path(os.path.abspath(os.path.expanduser(named))) if named else data_home() / APP


def data_home() -> Path:
    return _xdg("XDG_DATA_HOME", ".local/share")


def machines_dir() -> Path:
    """The user's machine files."""
    return _xdg("XDG_CONFIG_HOME", ".config") / APP / "machines"


def state_dir() -> Path:
    """Crash reports and the like: worth keeping, not worth moving to another machine."""
    return _xdg("XDG_STATE_HOME", ".local/state") / APP


def _xdg(variable: str, below_home: str) -> Path:
    named = os.environ.get(variable, "")
    # The XDG specification: a path that is not absolute is to be ignored.
    return Path(named) if os.path.isabs(named) else Path(os.path.expanduser("~")) / below_home


def make_yard_dir(yard: Path) -> None:
    """Create it if missing. Raises UserError where other users could write into it."""
    try:
        yard.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.stat(yard)
    except OSError as error:
        raise UserError(f"the yard {yard} cannot be used: {error.strerror}; choose another with --yard") from error
    if found.st_uid != os.getuid():
        owner = _name_of(found.st_uid)
        raise UserError(f"the yard {yard} belongs to {owner}; use it as {owner}, or choose another with --yard")
    if found.st_mode & 0o022:
        raise UserError(
            f"others can write to the yard {yard}, and you would run what they put there;"
            f" look through it, then: chmod go-w {quoted(str(yard))}"
        )


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def server_log_path(yard: Path) -> Path:
    return yard / "server.log"


def server_lock_path(yard: Path) -> Path:
    """Locked by the one active server of the yard, from before it listens until after it has put everything away."""
    return yard / "server.lock"


def socket_path(yard: Path) -> Path:
    """The Unix socket of the yard's server, in a directory that is ours alone: one for each real directory.

    A socket that exists wins over the order of directories: cron and a login shell see different environments, and
    must not start a second server beside the first.
    """
    name = f"{yard_key(yard)}.sock"
    usable = [path for path in _runtime_candidates() if len(os.fsencode(path / name)) <= SOCKET_PATH_BYTES]
    for directory in usable:
        if (directory / name).is_socket() and _is_ours(directory):
            return directory / name
    for directory in usable:
        if _make_ours(directory):
            return directory / name
    tried = ", ".join(map(str, usable))
    raise YardError(f"no private directory for the socket in {tried}; set XDG_RUNTIME_DIR to a directory of yours")


def start_lock_path(yard: Path) -> Path:
    """Held by a client while it starts a server, so that ten clients start one."""
    return socket_path(yard).with_suffix(".start")


def runtime_dir() -> Path:
    """Where sockets and locks live: 0700 and owned by us, made if missing."""
    for directory in _runtime_candidates():
        if _make_ours(directory):
            return directory
    raise YardError("no private directory for sockets; set XDG_RUNTIME_DIR to a directory of yours")


def yard_key(yard: Path) -> str:
    """A short name for a yard: sockets have 108 bytes."""
    return hashlib.sha256(os.fsencode(os.path.realpath(yard))).hexdigest()[:12]


def _runtime_candidates() -> Iterator[Path]:
    """XDG_RUNTIME_DIR only where it outlives the login: a server must not lose its socket at a logout."""
    named, login = os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.getuid()}"
    if os.path.isabs(named) and os.path.isdir(named) and os.path.realpath(named) != login:
        yield Path(named) / APP
    if _is_lingering() and os.access(login, os.W_OK):
        yield Path(login) / APP
    yield Path(f"/tmp/{APP}-{os.getuid()}")


def _is_lingering() -> bool:
    """Does systemd keep this user's runtime directory after the logout (lingering)?"""
    try:
        return os.path.exists(f"/var/lib/systemd/linger/{pwd.getpwuid(os.getuid()).pw_name}")
    except KeyError:
        return False


def _make_ours(directory: Path) -> bool:
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return False
    return _is_ours(directory)


def _is_ours(directory: Path) -> bool:
    """In /tmp anyone may create the directory first: a link, another owner or open permissions are refused."""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not found.st_mode & 0o077
        and os.access(directory, os.W_OK)
    )


@cache
def build_id() -> str:
    """Names the code that runs: the version and a hash over the names, sizes and times of the package's files.

    Remembered from the first call: a server calls it when it starts, before its files can change under it.
    """
    root = os.path.dirname(os.path.abspath(__file__))
    digest = hashlib.sha256()
    for line in sorted(_file_stamps(root, "")):
        digest.update(line.encode("utf-8", "surrogateescape"))
    return f"{__version__}+{digest.hexdigest()[:12]}"


def _file_stamps(directory: str, prefix: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name == "__pycache__" or entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _file_stamps(entry.path, f"{prefix}{entry.name}/")
            else:
                found = entry.stat()
                yield f"{prefix}{entry.name} {found.st_size} {found.st_mtime_ns}\n"
