"""Recorder: what does a command show on a terminal, from first to last? The answer is an SVG that moves."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

import pyte
from pyte.screens import Char

FRAME_SECONDS = 0.25  # a screen that lasted less is left out
LAST_SECONDS = 4.0  # the last one stays so long before it begins again
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14  # of a character of 14 px, and around all of them
FONT = "14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
GROUND, TEXT = "#0d1117", "#e6edf3"
COLOURS = {
    "black": "#484f58", "red": "#ff7b72", "green": "#3fb950", "brown": "#d29922", "yellow": "#d29922",
    "blue": "#58a6ff", "magenta": "#bc8cff", "cyan": "#39c5cf", "white": "#b1bac4",
}  # fmt: skip
# What pyte does not know and would print.
UNKNOWN = re.compile(rb"\x1b\[[<>=][\d;]*[a-z]|\x1b\[\?2026[hl]|\x1bP.*?\x1b\\", re.DOTALL)
Row = tuple[Char, ...]


@dataclass(frozen=True)
class Frame:
    """A screen, and when it came."""

    seconds: float
    rows: tuple[Row, ...]


def record(
    words: Sequence[str],
    *,
    size: tuple[int, int],
    env: Mapping[str, str],
    cwd: Path,
    keys: Sequence[tuple[float, str]] = (),
) -> list[Frame]:
    """The screens of a command until it ends; `keys` are pressed so many seconds after its start."""
    columns, lines = size
    screen = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(screen)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(
        words,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**env, **terminal},
        cwd=cwd,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # keys are read only by whom the terminal belongs to
    )
    os.close(slave)
    frames: list[Frame] = []
    waiting = list(keys)
    began = shown = time.monotonic()
    try:
        while (data := _read(master)) is not None:
            stream.feed(UNKNOWN.sub(b"", data))
            now = time.monotonic()
            if waiting and now - began > waiting[0][0]:
                os.write(master, waiting.pop(0)[1].encode())
            if now - shown >= FRAME_SECONDS:
                shown = now
                _add(frames, now - began, screen)
        _add(frames, time.monotonic() - began, screen)
    finally:
        os.close(master)
        process.wait()
    return frames


def svg(frames: Sequence[Frame], title: str, before: str = "") -> str:
    """One picture that moves; `before` is a line above the screens. Where nothing moves, the last screen is seen."""
    whole = frames[-1].seconds + LAST_SECONDS
    lines = max(_used(frame) for frame in frames)
    columns = len(frames[0].rows[0])
    top = 1 if before else 0
    width, height = round(columns * WIDTH + 2 * MARGIN), (lines + top) * HEIGHT + 2 * MARGIN
    parts = [_line(0, "", f'<tspan font-weight="bold" fill="{TEXT}">{escape(before)}</tspan>')] if before else []
    for number in range(lines):
        for row, start, end in _spans(frames, number):
            if not all(map(_is_blank, row)):
                parts.append(_line(number + top, *_pieces(row), _shown(start, end, whole)))
    body = "".join(f"  {part}\n" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" xml:space="preserve">\n'
        f"  <title>{escape(title)}</title>\n"
        f"  <style>text {{ font: {FONT}; white-space: pre; }}</style>\n"
        f'  <rect width="{width}" height="{height}" rx="8" fill="{GROUND}"/>\n{body}</svg>\n'
    )


def _read(master: int) -> bytes | None:
    """What came within a twentieth of a second; None when nobody writes any more."""
    ready, _, _ = select.select([master], [], [], 0.05)
    if not ready:
        return b""
    try:
        return os.read(master, 65536) or None
    except OSError:  # the other side is closed
        return None


def _add(frames: list[Frame], seconds: float, screen: pyte.Screen) -> None:
    rows = tuple(tuple(screen.buffer[y][x] for x in range(screen.columns)) for y in range(screen.lines))
    if not frames or frames[-1].rows != rows:
        frames.append(Frame(seconds, rows))


def _used(frame: Frame) -> int:
    """Lines, up to the last one with something in it."""
    return max((number + 1 for number, row in enumerate(frame.rows) if not all(map(_is_blank, row))), default=0)


def _is_blank(char: Char) -> bool:
    return char.data in ("", " ") and char.bg == "default" and not char.reverse


def _spans(frames: Sequence[Frame], number: int) -> Iterator[tuple[Row, float, float | None]]:
    """A line of the screen, each time that it was another: from when until when; None: to the end."""
    ends = [frame.seconds for frame in frames[1:]]
    timed = zip(frames, [frames[0].seconds, *ends], [*ends, None], strict=True)
    for row, same in groupby(timed, key=lambda each: each[0].rows[number]):
        found = list(same)
        yield row, found[0][1], found[-1][2]


def _shown(start: float, end: float | None, whole: float) -> tuple[str, str]:
    """Of something that is seen from `start` to `end`: its attribute where nothing moves, and its animation."""
    steps = [("hidden", 0.0), ("visible", start), *([("hidden", end)] if end is not None else [])]
    values = ";".join(value for value, _ in steps)
    times = ";".join(f"{seconds / whole:.4f}" for _, seconds in steps)
    animation = (
        f'<animate attributeName="visibility" values="{values}" keyTimes="{times}" calcMode="discrete" '
        f'dur="{whole:.2f}s" repeatCount="indefinite"/>'
    )
    return "" if end is None else ' visibility="hidden"', animation


def _line(number: int, grounds: str, text: str, shown: tuple[str, str] = ("", "")) -> str:
    attribute, animation = shown
    place = f'transform="translate({MARGIN},{MARGIN + number * HEIGHT})"'
    return f'<g {place}{attribute}>{animation}{grounds}<text y="13">{text}</text></g>'


def _pieces(row: Row) -> tuple[str, str]:
    """Rectangles below the text, and the text in pieces of one style."""
    grounds, texts = [], []
    for style, same in groupby(enumerate(row), key=lambda each: _style(each[1])):
        found = list(same)
        first = found[0][0]
        text = "".join(char.data for _, char in found)
        if style[1] != GROUND:
            box = f'x="{first * WIDTH:.1f}" width="{len(found) * WIDTH:.1f}" height="{HEIGHT}" fill="{style[1]}"'
            grounds.append(f"<rect {box}/>")
        if text.strip():
            texts.append(_styled(first, len(found), text, style))
    return "".join(grounds), "".join(texts)


def _styled(first: int, columns: int, text: str, style: tuple[str, str, bool, bool]) -> str:
    colour, _, is_bold, is_underlined = style
    more = (' font-weight="bold"' if is_bold else "") + (' text-decoration="underline"' if is_underlined else "")
    place = f'x="{first * WIDTH:.1f}" textLength="{columns * WIDTH:.1f}"'
    return f'<tspan {place} fill="{colour}"{more}>{escape(text)}</tspan>'


def _style(char: Char) -> tuple[str, str, bool, bool]:
    front, back = _colour(char.fg, TEXT), _colour(char.bg, GROUND)
    if char.reverse:
        front, back = back, front
    return front, back, char.bold, char.underscore


def _colour(name: str, otherwise: str) -> str:
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return COLOURS.get(name.removeprefix("bright"), otherwise)
