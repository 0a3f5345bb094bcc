"""Server process: how does it start and end? Open the yard, listen, serve until it is over, close in order."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import uvicorn

from jobyard import settings
from jobyard.errors import Unavailable, UserError
from jobyard.model.units import whole_number
from jobyard.server.accepting import BoundedServer
from jobyard.server.access import NeedsToken
from jobyard.server.app import make_app
from jobyard.server.bounds import Bounded
from jobyard.server.database import opened
from jobyard.server.environments import DIRECTORY, Environments
from jobyard.server.history import History
from jobyard.server.housekeeping import Housekeeping, rules_of
from jobyard.server.journal import Journal
from jobyard.server.lifetime import Lifetime
from jobyard.server.limits import HEADER_BYTES_MOST, LISTEN_MOST, limits_of, raise_descriptor_limit
from jobyard.server.loop import YardLoop
from jobyard.server.machines import Machines, this_host
from jobyard.server.output_files import OutputFiles
from jobyard.server.snapshots import Snapshots
from jobyard.server.token_files import adopt_tokens
from jobyard.server.yard import Yard
from jobyard.settings import KeepKnobs, ServerKnobs

log = logging.getLogger(__name__)

LOCK_SECONDS = 0.5  # a client that looks whether the yard is held has the lock for an instant


def lock_yard(directory: Path) -> int:
    """One active server per yard. Raises Unavailable if another one has it; the lock ends with this process."""
    settings.make_yard_dir(directory)
    try:
        descriptor = os.open(settings.server_lock_path(directory), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(f"the yard {directory} cannot be used: {error.strerror}; choose another with --yard") from error
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                # Not the user's fault: the other server may be starting or ending, and a second try may succeed.
                raise Unavailable(f"another server has the yard {directory}") from None
            time.sleep(0.02)


async def serve(directory: Path, listen: str, db: str, ready_fd: int | None) -> None:
    """Until asked to stop, idle for too long, or signalled. Work that runs goes on without us."""
    # 1. The yard and the address are ours: a yard or address in use is reported before anything starts.
    lock = lock_yard(directory)
    open_files, descriptors = raise_descriptor_limit()
    tcp = _tcp_socket(listen) if listen else None
    # 2. Read the journal. Until here a signal ends us at once; from here on we end in order, whatever happens.
    yard = _open_yard(directory, listen, db, open_files)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, yard.lifetime.stop)
    yard.housekeeping.before_removal = yard.output_files.all_written
    running = asyncio.create_task(yard.loop.run(), name="loop")
    running.add_done_callback(lambda _: yard.lifetime.stop())
    beside = (
        asyncio.create_task(yard.housekeeping.run(), name="housekeeping"),
        asyncio.create_task(yard.output_files.run(), name="output files"),
    )
    servers: list[BoundedServer] = []
    serving: list[asyncio.Task[None]] = []
    try:
        # 3. Connect to machines and clusters, whose attempts may have gone on without us.
        yard.machines.start()
        # 4. Listen. A client that connects now is answered as soon as the loop runs.
        servers, sockets = _listeners(yard, directory, tcp, descriptors)
        serving = [asyncio.create_task(s.serve([bound])) for s, bound in zip(servers, sockets, strict=True)]
        for task in serving:
            task.add_done_callback(lambda _: yard.lifetime.stop())
        # 5. Say so, and serve.
        if ready_fd is not None:
            _say_ready(ready_fd)
        log.info("serving %s (build %s)", directory, yard.build)
        await yard.lifetime.over()
        log.info("leaving")
    finally:
        # 6. Close in order: no more requests, the last round, the journal.
        for server in servers:
            server.should_exit = True
            server.force_exit = True
        await asyncio.gather(*serving, return_exceptions=True)
        for task in beside:
            task.cancel()
        yard.loop.finish()
        (failure,) = await asyncio.gather(running, return_exceptions=True)
        await yard.loop.close()
        if isinstance(failure, BaseException):  # memory may be ahead of the journal: the next server replays that
            log.error("the loop failed", exc_info=failure)
        else:
            yard.loop.save_snapshot()
        yard.engine.dispose()
        settings.socket_path(directory).unlink(missing_ok=True)
        os.close(lock)


def _open_yard(directory: Path, listen: str, db: str, open_files: int) -> Yard:
    """Everything that routes work with; nothing of it runs yet."""
    knobs = settings.knobs(ServerKnobs)
    url = db or knobs.db or f"sqlite:///{directory / 'yard.db'}"
    with opened(url) as engine:
        journal = Journal(engine)
        yard_id = journal.fact("yard_id", os.urandom(8).hex())
        build = settings.build_id()
        loop = YardLoop(journal, Snapshots(directory / "snapshot.json", build, yard_id), History(engine))
    if knobs.token_dir:
        adopt_tokens(engine, Path(knobs.token_dir))
    path = settings.socket_path(directory)
    # Stored once: a laptop's name changes with its network, but it is the same machine.
    this_machine = journal.fact("this_machine", this_host())
    machines = Machines(loop, directory, yard_id, this_machine, listen, knobs, open_files)
    loop.environments = Environments(directory / DIRECTORY, knobs.environment_seconds)
    loop.environments.delete_unneeded(loop.state, time.time(), orphans=not loop.damages)
    return Yard(
        loop=loop,
        machines=machines,
        engine=engine,
        lifetime=Lifetime(None if listen else knobs.idle_seconds, lambda: loop.is_busy, path.exists),
        directory=str(directory),
        yard_id=yard_id,
        listen=listen or f"unix:{path}",
        database=url.split("@")[-1],  # without the password
        started_at=time.time(),
        build=build,
        environments=loop.environments,
        housekeeping=Housekeeping(loop, directory, machines.mirror, rules_of(settings.knobs(KeepKnobs))),
        output_files=OutputFiles(loop, directory),
    )


def _say_ready(descriptor: int) -> None:
    """To the client that started us. It may have gone away meanwhile (Ctrl-C): others will come."""
    with suppress(OSError):
        os.write(descriptor, b"ok\n")
    os.close(descriptor)


def _listeners(
    yard: Yard, directory: Path, tcp: socket.socket | None, descriptors: int
) -> tuple[list[BoundedServer], list[socket.socket]]:
    app = make_app(yard)
    knobs = settings.knobs(ServerKnobs)
    ours = limits_of(knobs, descriptors, is_tcp=False)
    options = {
        "log_config": None,
        "access_log": False,
        "lifespan": "off",
        "timeout_graceful_shutdown": 1,
        "h11_max_incomplete_event_size": HEADER_BYTES_MOST,
        "ws": "none",
    }
    sockets = [_unix_socket(settings.socket_path(directory))]
    servers = [BoundedServer(uvicorn.Config(Bounded(app, ours), **options), ours)]  # type: ignore[arg-type]
    if tcp is not None:
        sockets.append(tcp)
        theirs = limits_of(knobs, descriptors, is_tcp=True)
        guarded = NeedsToken(Bounded(app, theirs), yard.engine, yard.revocations, yard.refusal_seconds)
        servers.append(BoundedServer(uvicorn.Config(guarded, **options), theirs))  # type: ignore[arg-type]
    return servers, sockets


def _unix_socket(path: Path) -> socket.socket:
    """For our user alone: the directory is 0700, the socket 0600. We hold the yard's lock, so an old one is stale.

    It appears when it listens: whoever sees it is not refused.
    """
    draft = path.with_suffix(".new")  # no longer than its own name: a socket's path may have 107 bytes
    for old in (path, draft):
        old.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        bound.bind(str(draft))
    finally:
        os.umask(before)
    bound.listen(LISTEN_MOST)
    draft.replace(path)
    return bound


def _tcp_socket(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    number = whole_number(port)
    if not host or number is None or number > 65535:
        raise UserError(f"--listen {listen}: write HOST:PORT, like 127.0.0.1:8470 or 0.0.0.0:8470")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), number), family=family, backlog=LISTEN_MOST)
    except OSError as error:
        raise UserError(f"--listen {listen}: {error.strerror or error}") from error
