"""Streams of a pod: its output goes into the mirror's file, its reports into the progress that they add up to."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from jobyard.backoff import Backoff
from jobyard.errors import Unavailable
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.refusals import Refused

log = logging.getLogger(__name__)

BACKOFF = Backoff(0.2, 5.0)
# After so many tries the output of an ended pod is given up: its node does not give it any more.
LAST_TRIES = 6
KEPT_BYTES = 8 << 20  # a kubelet begins a new file after ten million bytes, unless it is told otherwise
CUT_NOTE = b"\n[yard: the node has cut this output; lines before this one may be missing, or follow again]\n"


class Stream:
    """The output of one container, from its beginning to its end, through any number of cuts."""

    def __init__(
        self, pod: str, container: str, take: Callable[[bytes], None], size: Callable[[], int] | None = None
    ) -> None:
        """`size` says how many bytes are here already, from an earlier server or before a disk was full."""
        self.pod, self.container = pod, container
        self.trouble = ""  # why it is not complete
        self.is_cut = False  # the cluster does not answer: the rest comes when it does
        self._size = size
        self._read = size() if size else 0  # bytes that are here already
        self._take = take
        self._container_ended = asyncio.Event()

    def ended(self) -> None:
        """The container writes no more: what can be read now is all."""
        self._container_ended.set()

    async def run(self, api: Api) -> None:
        """Returns when all is here, or when it cannot be had any more."""
        failures = 0
        while True:
            is_last = self._container_ended.is_set()
            try:
                await self._read_on(api, follow=not is_last)
                failures, self.is_cut = 0, False
            except Refused as refused:
                self.is_cut = False
                if refused.is_absent:
                    self.trouble = "its pod is gone"
                    return
                failures += 1
                self.trouble = str(refused)
            except Unavailable as error:
                failures += 1 if not is_last else 0  # the cluster comes back, and the output with it
                self.trouble, self.is_cut = str(error), True
                is_last = False
            except OSError as error:  # our own disk is full: what was not written is read again
                self.trouble, self.is_cut, is_last = str(error), True, False
                self._read = self._size() if self._size else self._read
                failures += 1
            else:
                if is_last or self._container_ended.is_set():
                    self.trouble = ""
                    return
            if is_last and failures >= LAST_TRIES:
                log.warning("output of pod %s: %s", self.pod, self.trouble)
                return
            await self._pause(failures)

    async def _pause(self, failures: int) -> None:
        """A moment; shorter when the container ends meanwhile."""
        seconds = BACKOFF.pause(failures)
        if self._container_ended.is_set():
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._container_ended.wait()
        except TimeoutError:
            pass

    async def _read_on(self, api: Api, *, follow: bool) -> None:
        """The API server begins at the beginning each time: what is here already is passed over. Of a long output the
        node keeps the end alone: then nobody can say what is missing, and that is written down."""
        if self._read > KEPT_BYTES and await self._kept(api) < self._read:
            self._take(CUT_NOTE)
            self._read = 0
        position = 0
        async for chunk in api.log(self.pod, self.container, follow=follow):
            fresh = chunk[max(0, self._read - position) :]
            position += len(chunk)
            if fresh:
                self._take(fresh)
                self._read += len(fresh)

    async def _kept(self, api: Api) -> int:
        """How many bytes the node still has."""
        return sum([len(chunk) async for chunk in api.log(self.pod, self.container, follow=False)])


class LogFile:
    """The file of an attempt's output; it may hold the beginning already, from an earlier server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, data: bytes) -> None:
        if self._descriptor is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
