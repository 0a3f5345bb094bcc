"""Local agent: how does the yard's own machine get one? It is started, and outlives the process that started it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from jobyard.agent.build import agent_zipapp
from jobyard.agent_protocol import inherited
from jobyard.agent_protocol.lines import LARGEST_LINE
from jobyard.errors import Unavailable


class LocalAgent:
    """A transport: connects to this machine's agent of one yard, starting it when nobody answers."""

    address = sees_us_as = ""  # only others know how this machine is reached

    def __init__(self, state_dir: Path, socket: Path, fake_gpus: str = "", open_files: int = 0) -> None:
        """`open_files`: the soft limit that the agent and its tasks get; 0: ours."""
        self.state_dir = state_dir
        self.socket = socket
        self.fake_gpus = fake_gpus
        self.open_files = open_files
        self.zipapp, self.build = agent_zipapp()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a live agent. Raises Unavailable with a sentence."""
        try:
            return await self._open()
        except OSError:
            await self._start()
        try:
            return await self._open()
        except OSError as error:
            raise Unavailable(f"the agent does not answer on {self.socket}: {error}") from error

    async def send_snapshot(self, snapshot: str, tar: Path) -> None:
        raise AssertionError("this machine shares our disk")

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self.socket), limit=LARGEST_LINE)

    async def _start(self) -> None:
        self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [sys.executable, "-E", "-s", str(self.zipapp), "--state", str(self.state_dir)]
        command += ["--socket", str(self.socket), "--detach"]
        if self.fake_gpus:
            command += ["--fake-gpus", self.fake_gpus]
        if self.open_files > 0:
            # Not in the child between fork and exec: we have threads.
            command = ["/bin/sh", "-c", f'ulimit -S -n {self.open_files} && exec "$@"', "sh", *command]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd="/",
            start_new_session=True,
            env=inherited.for_agent(os.environ),
        )
        output, _ = await process.communicate()
        if process.returncode not in (0, 3):  # 3: another one was faster
            last = output.decode(errors="replace").strip().splitlines()[-1:] or ["no word"]
            raise Unavailable(f"the agent did not start: {last[0]}")
