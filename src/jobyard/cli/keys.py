"""Keys: which key does a person press while the live view is open? Only where the terminal is ours to read."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable

KEYS_MOST = 1024  # that are read at once
# What a terminal sends for one key, as the arrows: their letters (Shift-Right is ESC [ c in some) are no keys of ours.
_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|.)")


class Keys:
    """Between enter and exit `pressed(key)` is called, in a thread, for each key; afterwards the terminal is as before.

    Where stdin is no terminal, or another program has it (`yard run ... &`), nothing is read.
    """

    def __init__(self, pressed: Callable[[str], None], *, is_wanted: bool = True) -> None:
        self._pressed = pressed
        self.are_read = is_wanted and _is_ours()

    def __enter__(self) -> Keys:
        if self.are_read:
            self._terminal = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._terminal)
            tty.setcbreak(self._terminal)
            self._wake_reader, self._wake = os.pipe()
            self._thread = threading.Thread(target=self._read, name="keys", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.are_read:
            os.close(self._wake)
            self._thread.join()
            os.close(self._wake_reader)
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([self._terminal, self._wake_reader], [], [])
            if self._wake_reader in ready or not (pressed := os.read(self._terminal, KEYS_MOST)):
                return
            for key in _SEQUENCE.sub("\x1b", pressed.decode("utf-8", "replace")):
                self._pressed(key)


def _is_ours() -> bool:
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):  # closed, or not the terminal that controls us
        return False
