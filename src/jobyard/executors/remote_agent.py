"""Remote agent: how is one reached by running a command as its account? The command brings it, starts it and connects.

Nothing is installed there: python3 is enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import socket
from abc import ABC, abstractmethod
from asyncio.subprocess import Process
from pathlib import Path

from jobyard.agent.build import agent_zipapp
from jobyard.agent_protocol import remote_program
from jobyard.agent_protocol.lines import LARGEST_LINE
from jobyard.errors import Rejected, Unavailable

ANSWER_SECONDS = 45.0  # for a login and a start of the agent on a busy machine
LONGEST_WORDS = 1 << 16  # bytes of what ssh and the far side say on stderr

# What our bootstrap answers with; ssh itself answers 255, a shell without python3 answers 127.
AGENT_IS_MISSING, PYTHON_IS_OLD, HOME_IS_READ_ONLY = 66, 67, 68

_PUSH = """
import os, sys
sys.version_info >= (3, 8) or sys.exit({old})
path = os.path.expanduser({path!r})
try:
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    draft = path + "." + str(os.getpid())
    data = sys.stdin.buffer.read()
    len(data) == {size} or sys.exit(1)  # the link was cut: half an agent must not get the name of a whole one
    with open(draft, "wb") as file:
        file.write(data)
    os.replace(draft, path)
except OSError as error:
    sys.stderr.write(str(error))
    sys.exit({read_only})
"""


class RemoteAgent(ABC):
    """A transport: connects to the agent of another account, sending it first where it is missing."""

    def __init__(self, node: str, yard_id: str) -> None:
        self.node = node
        self._yard_id = agent_name(yard_id, node)
        self.address = self.sees_us_as = ""  # by which machines reach it, and by which it would reach this one
        self._endings: set[asyncio.Task[tuple[int, str]]] = set()  # of the processes that connections go through
        zipapp, self.build = agent_zipapp()
        self._zipapp = Path(zipapp)
        self._remote_path = remote_program.path_of(self.build)

    @abstractmethod
    async def _start(self, remote_command: str, stdin: int, stdout: int) -> Process:
        """Run a command of a shell there. Raises Unavailable where not even that is possible."""

    @abstractmethod
    def _explain_failure(self, code: int | None, said: str) -> str:
        """The second half of a sentence: what went wrong with this way of running a command, and the way out."""

    def explain(self, code: int | None, said: str) -> str:
        """One sentence for what went wrong, with the way out."""
        match code:
            case 127:
                return f"node {self.node}: there is no python3; install Python 3.8 or newer there"
            case 67:
                return f"node {self.node}: its python3 is older than 3.8; install a newer one there"
            case 68:
                why = f"its home cannot be written ({last_line(said)})"
                return f"node {self.node}: {why}; make room there or log in as another user"
        return f"node {self.node}: {self._explain_failure(code, said)}"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the agent there. Raises Unavailable with a sentence that names the node and the way out."""
        for is_last in (False, True):
            reader, writer, ending = await self._open(self.run_agent("--bridge", "--yard", self._yard_id))
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    if (words := await _greeting(reader)) is not None:
                        self.address, self.sees_us_as = (*words, "", "")[:2]
                        return reader, writer
            except TimeoutError:
                writer.close()
                raise Unavailable(self.explain(None, "timed out")) from None
            except ValueError:  # of asyncio: the line is longer than its reader takes
                writer.close()
                most = f"{LARGEST_LINE >> 20} MiB"
                raise Unavailable(
                    f"node {self.node}: its login prints a line of more than {most}; make it quiet for commands"
                ) from None
            except BaseException:
                writer.close()
                raise
            writer.close()
            code, said = await ending
            if code != AGENT_IS_MISSING or is_last:
                raise Unavailable(self.explain(code, said))
            await self._push()
        raise AssertionError("unreachable")

    async def _open(
        self, remote_command: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Task[tuple[int, str]]]:
        """A remote command on a socket pair: closing our side ends it, in whatever state the link is."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await self._start(remote_command, theirs.fileno(), theirs.fileno())
        ending = asyncio.create_task(_ending(process))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        reader, writer = await asyncio.open_connection(sock=ours, limit=LARGEST_LINE)
        return reader, writer, ending

    def run_agent(self, *arguments: str) -> str:
        """The remote command that runs the agent's program; one quoted word for any shell."""
        return remote_program.command(self.build, arguments, AGENT_IS_MISSING, PYTHON_IS_OLD)

    async def _push(self) -> None:
        size = self._zipapp.stat().st_size
        script = _PUSH.format(path=self._remote_path, size=size, old=PYTHON_IS_OLD, read_only=HOME_IS_READ_ONLY)
        code, said = await self._feed(f"python3 -c {shlex.quote(script)}", self._zipapp)
        if code:
            raise Unavailable(self.explain(code, said))

    async def send_snapshot(self, snapshot: str, tar: Path) -> None:
        code, said = await self._feed(self.run_agent("--receive", snapshot, "--yard", self._yard_id), tar)
        if code == HOME_IS_READ_ONLY:
            raise Rejected(f"node {self.node}: {last_line(said).removeprefix('jobyard agent: ')}; make room there")
        if code:
            raise Unavailable(self.explain(code, said))

    async def _feed(self, remote_command: str, path: Path) -> tuple[int, str]:
        """Run a command there to its end with a file as its input. Answers as `_ending` does."""
        with path.open("rb") as file:
            process = await self._start(remote_command, file.fileno(), asyncio.subprocess.DEVNULL)
        return await _ending(process)


def agent_name(yard_id: str, node: str) -> str:
    """An agent for each node: were one machine added under two names, each would stop what the other runs."""
    return f"{yard_id}.{node}"


def last_line(said: str) -> str:
    return next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")


async def _greeting(reader: asyncio.StreamReader) -> list[str] | None:
    """The bridge says one known line, and in it addresses: what a login prints before it is passed over."""
    while line := await reader.readline():
        if line.split(None, 2)[:2] == [b"jobyard", b"bridge"]:
            return line.decode(errors="replace").split()[2:]
        await asyncio.sleep(0)  # one that prints without end keeps nobody waiting
    return None


async def _ending(process: Process) -> tuple[int, str]:
    """The exit code of a process and what it said on stderr. A cancelled call kills it."""
    assert process.stderr is not None
    said = b""
    try:
        while data := await process.stderr.read(LONGEST_WORDS):
            said = (said + data)[-LONGEST_WORDS:]  # the end of it tells what went wrong, however much there is
        return await process.wait(), said.decode(errors="replace")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
