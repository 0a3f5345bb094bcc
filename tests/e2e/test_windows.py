"""The live view in a window that is resized, and suspended: tmux is a terminal that folds lines and hides them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.packages import why_lacking
from tests.waiting import until
from tests.yards import TemporaryYard

LINE = """\
[ $YARD_TASK = 1 ] && { echo 訓練中 $(seq 1 60) >&2; exit 3; }
printf 'x\r 50%% 訓練'; while :; do sleep 0.1; done"""
SWEEP = ["-n", "訓練 sweep", "-a", "0-11", "--cpus", "0.1", "--", LINE]


FRAMES = 4  # of one size: tmux tells a program of the next size at once only where the last one is a while ago


class Window:
    """A window of tmux: what stands in it, and keys."""

    def __init__(self, yard: TemporaryYard, command: str) -> None:
        self._tmux = ["tmux", "-f", "/dev/null", "-S", str(yard.root / "tmux")]
        env = {**yard.env, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        self._call("new-session", "-d", "-x", "80", "-y", "24", "-s", "w", command, cwd=yard.work, env=env)
        self._call("set", "-g", "status", "off")
        self.resize(80, 24)

    def _call(self, *words: str, **options: object) -> str:
        done = subprocess.run([*self._tmux, *words], check=True, capture_output=True, **options)  # type: ignore[call-overload]
        text: str = done.stdout.decode()
        return text

    def resize(self, columns: int, rows: int) -> None:
        self._call("resize-window", "-t", "w", "-x", str(columns), "-y", str(rows))

    def press(self, *keys: str) -> None:
        self._call("send-keys", "-t", "w", *keys)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._call("capture-pane", "-t", "w", "-p").splitlines()]

    @property
    def has_cursor(self) -> bool:
        return self._call("display", "-p", "-t", "w", "#{cursor_flag}").strip() == "1"

    def until(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        """The lines, once this is so of them."""
        try:
            return until(lambda: lines if is_so(lines := self.lines) else None)
        except AssertionError:
            raise AssertionError("\n".join(["in vain; the window has", *self.lines])) from None

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True)


@pytest.fixture
def window(yard: TemporaryYard) -> Iterator[Callable[[str], Window]]:
    """Opens a window in which a shell runs this; {yard} stands for `yard`."""
    if why := why_lacking("e2e"):
        pytest.skip(why)
    opened: list[Window] = []

    def opens(line: str) -> Window:
        called = shlex.join([sys.executable, "-P", "-m", "jobyard.cli.main"])
        opened.append(Window(yard, line.replace("{yard}", called)))
        return opened[-1]

    yield opens
    for each in opened:
        each.close()


def used(lines: list[str]) -> list[str]:
    return [line for line in lines if line]


def is_whole(lines: list[str], rows: int = 24) -> bool:
    """A head, a bar, the hint as the last line, and nothing twice."""
    text = "\n".join(lines)
    is_once = all(text.count(part) == 1 for part in ("job ", "1/12 8%", "q leaves, c cancels"))
    is_at_the_end = used(lines)[-1:] == ["q leaves, c cancels"]
    return is_once and is_at_the_end and text.count("first failure") <= 1 and len(lines) == rows


@pytest.mark.parametrize(
    "sizes",
    [
        [(80, 10), (80, 24), (80, 4), (80, 24), (120, 10), (160, 50), (80, 24)],
        [(40, 24), (120, 24), (60, 24), (40, 24), (160, 24), (80, 24)],
    ],
    ids=["lower and higher", "narrower and wider"],
)
def test_nothing_is_left_behind_and_nothing_torn_when_the_window_is_resized(
    yard: TemporaryYard, window: Callable[[str], Window], sizes: list[tuple[int, int]]
) -> None:
    job = yard.submit(*SWEEP)
    until(lambda: yard.job(job)["counts"]["failed"] == 1)
    seen = window(f"echo above; {{yard}} attach {job}; sleep 600")
    lines = whole = seen.until(lambda lines: is_whole(lines) and len(used(lines)) > 15)
    for columns, rows in sizes:
        seen.resize(columns, rows)
        for _ in range(FRAMES):
            head = lines[:2]
            seen.until(lambda lines: lines[:2] != head)  # noqa: B023 (called at once)
            lines = seen.until(partial(is_whole, rows=rows))
    assert used(lines)[-1:] == used(whole)[-1:]
    assert len([line for line in used(lines) if line != "above"]) == len(used(whole)) - 1


def test_a_window_of_one_row_has_how_far_it_is_and_the_question(
    yard: TemporaryYard, window: Callable[[str], Window]
) -> None:
    job = yard.submit(*SWEEP)
    until(lambda: yard.job(job)["counts"]["failed"] == 1)
    seen = window(f"{{yard}} attach {job}; sleep 600")
    seen.until(is_whole)
    seen.resize(80, 1)
    seen.until(lambda lines: "1/12 8%" in lines[0])
    seen.press("c")
    seen.until(lambda lines: lines[0].startswith("y cancels job"))
    seen.press("n", "q")
    seen.resize(80, 24)
    seen.until(lambda lines: any("goes on (1/12 done" in line for line in lines))
    assert yard.job(job)["counts"]["cancelled"] == 0


def test_ctrl_z_gives_the_terminal_back_and_fg_shows_the_view_again(
    yard: TemporaryYard, window: Callable[[str], Window]
) -> None:
    job = yard.submit("-a", "0-1", "--cpus", "0.1", "--", "sleep", "600")
    seen = window("bash --norc --noprofile -i")
    seen.press("-l", shlex.join([sys.executable, "-P", "-m", "jobyard.cli.main", "attach", job]))
    seen.press("Enter")
    seen.until(lambda lines: any("2 running" in line for line in lines))
    assert not seen.has_cursor
    seen.press("C-z")
    lines = seen.until(lambda lines: any("Stopped" in line for line in lines))
    assert not any("q leaves" in line for line in lines)
    until(lambda: seen.has_cursor)
    seen.press("-l", "fg")
    seen.press("Enter")
    seen.until(lambda lines: any("2 running" in line for line in lines) and any("q leaves" in line for line in lines))
    seen.press("q")
    seen.until(lambda lines: any("goes on" in line for line in lines))
