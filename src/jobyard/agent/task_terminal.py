"""Terminal beside a task: how does a command get a terminal of its own, of the size of the caller's?"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import tty
from contextlib import suppress
from typing import Any, List, Optional

_CHUNK = 1 << 15


class TaskTerminal:
    """A terminal of the kernel's between ours, or whatever our input and output are, and the command's."""

    def __init__(self, with_input: bool) -> None:
        self._with_input = with_input
        self._master, self._slave = pty.openpty()
        self._before: Optional[List[Any]] = None  # how our own terminal was
        self._typed = b""  # that the command's terminal has not taken yet
        self.take_size()

    def enter(self) -> None:
        """The child's side: from now on this is its terminal, and that of its session."""
        fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)
        for descriptor in (0, 1, 2):
            os.dup2(self._slave, descriptor)
        os.close(self._slave)
        os.close(self._master)

    def begin(self, poll: "select.poll") -> None:
        """Carry from now on. Keys go to the command as they are, Ctrl-C too."""
        os.close(self._slave)
        os.set_blocking(self._master, False)
        poll.register(self._master, select.POLLIN)
        if self._with_input:
            if os.isatty(0):
                self._before = termios.tcgetattr(0)
                tty.setraw(0, termios.TCSADRAIN)
            poll.register(0, select.POLLIN)

    def take_size(self) -> None:
        """Give the command's terminal the size of ours."""
        with suppress(OSError):
            size = fcntl.ioctl(1 if os.isatty(1) else 0, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def carry(self, descriptor: int, event: int, poll: "select.poll") -> bool:
        """What has come on one side goes to the other. False: our own side is gone."""
        if descriptor != self._master:
            return self._take_keys(event, poll)
        if event & select.POLLOUT:
            self._pass_keys_on(poll)
        if not event & ~select.POLLOUT:
            return True
        data = _read(self._master)
        if not data:  # nobody has the other end any more: the command is about to end
            poll.unregister(self._master)
        return _written(1, data)

    def _take_keys(self, event: int, poll: "select.poll") -> bool:
        poll.unregister(0)  # until these are taken
        self._typed = _read(0)
        if not self._typed:
            return not event & (select.POLLHUP | select.POLLERR)
        self._pass_keys_on(poll)
        return True

    def _pass_keys_on(self, poll: "select.poll") -> None:
        """Never waits: a command that does not read may still write."""
        try:
            self._typed = self._typed[os.write(self._master, self._typed) :]
        except BlockingIOError:
            pass
        except OSError:
            return  # it has ended
        poll.register(self._master, select.POLLIN | (select.POLLOUT if self._typed else 0))
        if not self._typed:
            poll.register(0, select.POLLIN)

    def finish(self) -> None:
        """Say what is still on its way, and restore our own terminal."""
        poll = select.poll()
        poll.register(self._master, select.POLLIN)
        while poll.poll(0):
            data = _read(self._master)
            if not data or not _written(1, data):
                break
        if self._before is not None:
            with suppress(termios.error, OSError):
                termios.tcsetattr(0, termios.TCSADRAIN, self._before)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:  # EIO: the other end of a terminal is closed
        return b""


def _written(descriptor: int, data: bytes) -> bool:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return False
    return True
