"""Ignore rules: which names do the lines of a .gitignore leave out? The same ones as with git, byte for byte.

Written after git's dir.c and wildmatch.c, and tested against git itself. A directory that is left out is not entered,
so a name is only asked about when all directories above it stay: a rule matches that one name, and nothing below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_SPECIAL = re.compile(rb"[*?\[\\]")
_SLASH = ord("/")
DIRECTORY = b"\0"  # marks a directory's name: not a slash, which in rules separates names
_PUNCTUATION = b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_CLASSES: dict[bytes, frozenset[int]] = {
    b"alnum": frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    b"alpha": frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    b"blank": frozenset(b" \t"),
    b"cntrl": frozenset([*range(0x20), 0x7F]),
    b"digit": frozenset(b"0123456789"),
    b"graph": frozenset(range(0x21, 0x7F)),
    b"lower": frozenset(b"abcdefghijklmnopqrstuvwxyz"),
    b"print": frozenset(range(0x20, 0x7F)),
    b"punct": frozenset(_PUNCTUATION),
    b"space": frozenset(b" \t\n\r"),
    b"upper": frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    b"xdigit": frozenset(b"0123456789abcdefABCDEF"),
}


class Rules:
    """The rules of one directory. `depth` is the length of that directory's path with its closing slash."""

    __slots__ = ("_depth", "_runs")

    def __init__(self, content: bytes, depth: int) -> None:
        self._depth = depth
        self._runs = [_run(is_ignored, rules) for is_ignored, rules in _runs_of(content)][::-1]

    def verdict(self, path: bytes, name: bytes) -> bool | None:
        """Is it left out? None: no rule here matches it. Both end with the mark if it is a directory."""
        below = path[self._depth :]
        for run in self._runs:
            if run.matches(below, name):
                return run.is_ignored
        return None


class _Run(NamedTuple):
    """Neighbouring rules of one sign, in which order no longer matters. Plain names need no regular expression."""

    is_ignored: bool
    names: frozenset[bytes]
    suffixes: tuple[bytes, ...]
    paths: frozenset[bytes]
    name_pattern: re.Pattern[bytes] | None
    path_pattern: re.Pattern[bytes] | None

    def matches(self, path: bytes, name: bytes) -> bool:
        return (
            name in self.names
            or name.endswith(self.suffixes)
            or path in self.paths
            or (self.name_pattern is not None and self.name_pattern.fullmatch(name) is not None)
            or (self.path_pattern is not None and self.path_pattern.fullmatch(path) is not None)
        )


def _runs_of(content: bytes) -> Iterator[tuple[bool, list[bytes]]]:
    sign, rules = True, list[bytes]()
    for line in _lines_of(content):
        is_ignored = not line.startswith(b"!")
        if is_ignored is not sign and rules:
            yield sign, rules
            rules = []
        sign = is_ignored
        rules.append(line if is_ignored else line[1:])
    if rules:
        yield sign, rules


def _lines_of(content: bytes) -> Iterator[bytes]:
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line and not line.startswith(b"#"):
            yield _without_trailing_spaces(line.removesuffix(b"\r").partition(b"\0")[0])


def _without_trailing_spaces(line: bytes) -> bytes:
    """A space after a backslash stays."""
    bare = line.rstrip(b" ")
    backslashes = len(bare) - len(bare.rstrip(b"\\"))
    return bare + b" " if backslashes % 2 and len(bare) < len(line) else bare


def _run(is_ignored: bool, rules: Iterable[bytes]) -> _Run:
    names, suffixes, paths = set[bytes](), list[bytes](), set[bytes]()
    name_patterns, path_patterns = list[bytes](), list[bytes]()
    for rule in rules:
        pattern = rule.removesuffix(b"/")
        ends = (DIRECTORY,) if pattern != rule else (b"", DIRECTORY)
        has_slash = b"/" in pattern
        if has_slash:
            pattern = pattern.removeprefix(b"/")
        if not _SPECIAL.search(pattern):
            (paths if has_slash else names).update(pattern + end for end in ends)
        elif not has_slash and pattern[:1] == b"*" and not _SPECIAL.search(pattern, 1):
            suffixes += [pattern[1:] + end for end in ends]
        elif (regex := _path_regex(pattern) if has_slash else _regex(pattern)) is not None:
            (path_patterns if has_slash else name_patterns).append(regex + (b"\\0" if len(ends) == 1 else b"\\0?"))
    return _Run(
        is_ignored,
        frozenset(names),
        tuple(suffixes),
        frozenset(paths),
        _any_of(name_patterns),
        _any_of(path_patterns),
    )


def _any_of(patterns: list[bytes]) -> re.Pattern[bytes] | None:
    return re.compile(b"|".join(patterns)) if patterns else None


def _path_regex(pattern: bytes) -> bytes | None:
    """Git compares what comes before the first special character by itself, so that `a**/b` is `a` and then `**/b`."""
    special = _SPECIAL.search(pattern)
    start = special.start() if special else len(pattern)
    rest = _regex(pattern[start:])
    return None if rest is None else re.escape(pattern[:start]) + rest


def _regex(pattern: bytes) -> bytes | None:
    """None: it can match nothing, like an open bracket or a backslash at the end."""
    parts: list[bytes] = []
    at = 0
    while at < len(pattern):
        match pattern[at : at + 1]:
            case b"*":
                part, at = _stars(pattern, at)
            case b"[":
                found = _bracket(pattern, at + 1)
                if found is None:
                    return None
                part, at = found
            case b"\\" if at + 1 == len(pattern):
                return None
            case b"\\":
                part, at = re.escape(pattern[at + 1 : at + 2]), at + 2
            case b"?":
                part, at = b"[^/\\0]", at + 1
            case plain:
                part, at = re.escape(plain), at + 1
        parts.append(part)
    return b"".join(parts)


def _stars(pattern: bytes, at: int) -> tuple[bytes, int]:
    end = at
    while pattern[end : end + 1] == b"*":
        end += 1
    if end - at > 1 and (at == 0 or pattern[at - 1] == _SLASH):
        if pattern[end : end + 1] == b"/":
            return b"(?:[^\\0]*/)?", end + 1
        if end == len(pattern) or pattern[end : end + 2] == b"\\/":
            return b"[^\\0]*", end
    return b"[^/\\0]*", end


def _bracket(pattern: bytes, at: int) -> tuple[bytes, int] | None:
    """The bracket expression that starts before `at` as a regular expression, and where it ends."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    members, previous, first = set[int](), 0, True
    while first or pattern[at : at + 1] != b"]":
        first = False
        character, step = _member(pattern, at)
        if character is None:
            return None
        if pattern[at : at + 2] == b"[:" and (end := pattern.find(b"]", at + 2)) != at + 2:
            if end < 0:
                return None
            if pattern[end - 1] == ord(":") and end - 1 >= at + 2:
                named = _CLASSES.get(pattern[at + 2 : end - 1])
                if named is None:
                    return None
                members |= named
                previous, at = 0, end + 1
                continue
        if pattern[at : at + 1] == b"-" and previous and pattern[at + 1 : at + 2] not in (b"", b"]"):
            last, step = _member(pattern, at + 1)
            if last is None:
                return None
            members.update(range(previous, last + 1))
            previous, at = 0, at + 1 + step
            continue
        members.add(character)
        previous, at = character, at + step
    chosen = (set(range(256)) - members if negated else members) - {_SLASH, 0}
    return (b"[%s]" % b"".join(b"\\x%02x" % member for member in sorted(chosen)) if chosen else b"(?!)"), at + 1


def _member(pattern: bytes, at: int) -> tuple[int | None, int]:
    """The character that stands there, and how long it is written; None: the pattern ends first."""
    escaped = pattern[at : at + 1] == b"\\"
    character = pattern[at + escaped : at + escaped + 1]
    return (character[0] if character else None), 1 + escaped
