"""Interrupts: what do Ctrl-C (SIGINT), Ctrl-Z, SIGTERM and SIGHUP mean while a job is followed or an image built?"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType


class Interrupts:
    """Between enter and exit Ctrl-C calls `pressed(n)` with its count, and SIGTERM or SIGHUP calls `hung_up(signal)`.

    The calls come from the signal handler, so they happen also while the main thread waits or writes to a full pipe. A
    third Ctrl-C raises KeyboardInterrupt: there is always a way out. A signal that is ignored (nohup) stays ignored.
    """

    def __init__(self, pressed: Callable[[int], None], hung_up: Callable[[int], None]) -> None:
        self._pressed = pressed
        self._hung_up = hung_up
        self._before: dict[int, signal.Handlers | Callable[[int, FrameType | None], object] | int | None] = {}
        self.presses = 0

    def __enter__(self) -> Interrupts:
        handlers = {signal.SIGINT: self._on_press, signal.SIGTERM: self._on_hang_up, signal.SIGHUP: self._on_hang_up}
        for number, handler in handlers.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_press(self, number: int, frame: FrameType | None) -> None:
        self.presses += 1
        if self.presses > 2:
            raise KeyboardInterrupt
        self._pressed(self.presses)

    def _on_hang_up(self, number: int, frame: FrameType | None) -> None:
        self._hung_up(number)


@contextmanager
def told_of_suspend(pressed: Callable[[], None], *, is_wanted: bool = True) -> Iterator[None]:
    """In this block Ctrl-Z (SIGTSTP) calls `pressed`, which may put the terminal right before `suspend` is called."""
    before = signal.getsignal(signal.SIGTSTP)
    if not is_wanted or before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGTSTP, lambda number, frame: pressed())
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)


def suspend() -> None:
    """Stop as Ctrl-Z stops a program that does not ask; returns when the shell lets it go on."""
    signal.raise_signal(signal.SIGTSTP)


@contextmanager
def exit_on_hang_up() -> Iterator[None]:
    """In this block SIGTERM and SIGHUP raise SystemExit, so that what was begun is tidied up; only the first one does.

    A signal that is ignored (nohup) stays ignored.
    """
    is_over = False

    def leave(number: int, frame: FrameType | None) -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            raise SystemExit(128 + number)

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
