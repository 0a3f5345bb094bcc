"""Substitution: what replaces `{}` in a command, so that no line of data becomes code (injection)?

A line travels in the variable YARD_LINE, and bash expands that after it has read the command. In a command of bash
`{}` is `"${YARD_LINE}"` outside quotes, `${YARD_LINE}` inside double and `'"${YARD_LINE}"'` inside single quotes. In
words that no shell reads it is the line itself. Where it stands in code of another kind, or where this small reader of
bash's quoting is not sure, it is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from jobyard.errors import UserError
from jobyard.model.bash_words import SimpleCommand
from jobyard.model.interpreters import HOLE, UNKNOWN, Verdict, calculates, judge, kept_by, reads_code
from jobyard.model.job import Command

PLACEHOLDER = "{}"
_IN = {"": '"${YARD_LINE}"', '"': "${YARD_LINE}", "'": "'\"${YARD_LINE}\"'"}
# Not `"$YARD_LINE"`: a user might write `eval "$YARD_LINE"`, which is what was refused.
_WAY_OUT = (
    "lines that are commands go as a list (yard run FILE), "
    f"and lines that are data as arguments of a script (-- ./SCRIPT {PLACEHOLDER})"
)
_QUOTED = 'write "$YARD_LINE" there, with its quotes'
_SUBSTITUTIONS = ("is inside backticks", "is inside $(...)")
_SHOWN_MOST = 200  # characters of code in a way out
_PASSES_MOST = 4
_EVALUATES = re.compile(r"eval|exec|compile|system|popen|subprocess|spawn")
_SIMPLE_BRACES = re.compile(r"\$\{[^{}'\"`$\\()]*\}")
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])")
_BRACED_NAME = re.compile(r"\$\{!?(\w+|[@*])")
_ARGUMENT = re.compile(r"[1-9]\d*|[@*]")
_UNSURE_INSIDE = re.compile(r"<<|#|\bcase\b")  # parentheses do not tell the end of such a substitution
_BLANK = " \t"
_OPERATORS = ";&|()\n"
# Runs of characters that mean themselves, by the quotes around them: a long command is read in few steps.
_PLAIN = {
    "": re.compile(r"[^{}\\'\"$`<>&;|()\n \t#*?]+"),
    '"': re.compile(r'[^"\\$`{]+'),
    "'": re.compile(r"[^'{]+"),
}


class Substituted(NamedTuple):
    shell: str
    no_dash: str = ""  # the program for which a line that begins with a dash would be an option


class UnsafePlaceholder(UserError):
    """`{}` stands where a line would be code, or may be."""

    def __init__(self, where: str, way_out: str = _WAY_OUT) -> None:
        super().__init__(f"command: {PLACEHOLDER} {where}: a line could be run as a command there; {way_out}")


def check(command: Command) -> None:
    """Raises UserError unless every line of `entries` is data wherever `{}` stands in the command."""
    if command.entries is None or command.script is not None:
        return
    no_dash = substituted(command.shell).no_dash if command.shell else _of_words(command.argv)
    for number, line in enumerate(command.entries, start=1) if no_dash else ():
        if line.startswith(("-", "+")):
            raise UserError(
                f"command: line {number} begins with {line[0]!r}, and {no_dash} would take it for an option; "
                f"write ./{PLACEHOLDER} for a file, or change the line"
            )


def words_with(words: Sequence[str], line: str) -> tuple[str, ...]:
    """Of a command without a shell: the line in place of `{}`."""
    return tuple(word.replace(PLACEHOLDER, line) for word in words)


@lru_cache(maxsize=256)
def substituted(shell: str) -> Substituted:
    """The command of bash that finds its line in YARD_LINE. Raises UnsafePlaceholder."""
    if PLACEHOLDER not in shell:
        return Substituted(shell)
    return _read(shell)


def _read(shell: str, *, is_inner: bool = False) -> Substituted:
    kept: frozenset[str] = frozenset()
    for _ in range(_PASSES_MOST):
        reader = _Reader(shell, kept, is_inner=is_inner)
        reader.read()
        if reader.kept <= kept:
            return Substituted("".join(reader.pieces), reader.no_dash)
        kept |= reader.kept  # a second pass: a function or a loop may use a variable before the line that sets it
    raise UnsafePlaceholder("is copied from variable to variable")


def _of_words(argv: Sequence[str]) -> str:
    verdict = judge([word.replace(PLACEHOLDER, HOLE) for word in argv])
    _raise(verdict)
    return verdict.no_dash


def _raise(verdict: Verdict) -> None:
    if verdict.refusal:
        raise UnsafePlaceholder(verdict.refusal, _way_out(verdict))


def _way_out(verdict: Verdict) -> str:
    """How to write the code so that the line is data in it, if it can be."""
    code = verdict.code
    if not code or code == HOLE or UNKNOWN in code or len(code) > _SHOWN_MOST:
        return _WAY_OUT
    if verdict.is_python:
        return _WAY_OUT if _EVALUATES.search(code) else 'write os.environ["YARD_LINE"] for it in the code'
    try:
        return f"write {shlex.quote(_read(code.replace(HOLE, PLACEHOLDER), is_inner=True).shell)} for that word"
    except UnsafePlaceholder:
        return _WAY_OUT


class _Reader:
    """Reads a command of bash once, from left to right, as far as quotes and simple commands go."""

    def __init__(self, text: str, kept: frozenset[str] = frozenset(), *, is_inner: bool = False) -> None:
        self.text = text
        self.kept: set[str] = set()  # variables that hold a line, as far as this reading finds them
        self._known = kept  # and as an earlier reading found them
        self._is_inner = is_inner
        self.pieces: list[str] = []
        self.no_dash = ""
        self._at = 0
        self._last_hole = text.rfind(PLACEHOLDER)
        self._command = SimpleCommand()
        self._seen_hole = self._is_piped = self._in_test = self._calculates = False

    def read(self) -> None:
        while self._at < len(self.text):
            self._step(self.text[self._at])
        self._end_command()
        if self.kept and self._calculates:
            raise UnsafePlaceholder("is kept in a variable, and arithmetic reads variables as code")

    def _step(self, char: str) -> None:
        text, at = self.text, self._at
        if self._take_plain(""):
            return
        if text.startswith(PLACEHOLDER, at):
            self._hole("")
        elif char in _BLANK:
            self._end_word()
            self._take(1)
        elif char == "#" and not self._command.is_in_word:
            end = text.find("\n", at)
            self._take((len(text) if end < 0 else end) - at)
        elif char == "\\":
            self._take(2, None if text.startswith("\n", at + 1) else text[at + 1 : at + 2])
        elif char == "'":
            self._single()
        elif char == '"':
            self._double()
        elif char in "$`":
            self._expansion()
        elif char in "<>" or text.startswith("&>", at):
            self._redirection()
        elif char in _OPERATORS:
            self._operator(char)
        else:
            if char in "{}":
                self._command.has_brace = True
                self._refuse_brace_expansion()
            is_expanded = char in "*?" or (char == "{" and text[at + 1 : at + 2].strip() != "")
            self._take(1, UNKNOWN if is_expanded else char)

    # -- moving on --------------------------------------------------------------------------------------------------

    def _take(self, length: int, meaning: str | None = None) -> None:
        """Copy so much of the text; with a meaning it is part of a word."""
        self.pieces.append(self.text[self._at : self._at + length])
        self._at += length
        if meaning is not None:
            self._command.add(meaning)

    def _take_plain(self, quote: str) -> bool:
        match = _PLAIN[quote].match(self.text, self._at)
        if match is None:
            return False
        self._take(len(match[0]), match[0])
        return True

    def _hole(self, quote: str) -> None:
        if self._in_test:
            raise UnsafePlaceholder("is inside [[ ]]")
        self.pieces.append(_IN[quote])
        self._at += len(PLACEHOLDER)
        self._command.add(HOLE)
        self._seen_hole = True
        if not quote:
            self._command.has_hole = True
            self._refuse_brace_expansion()

    def _refuse_brace_expansion(self) -> None:
        if self._command.has_hole and self._command.has_brace:
            raise UnsafePlaceholder("is in a word with other braces")

    # -- quotes and expansions -----------------------------------------------------------------------------------------

    def _single(self) -> None:
        end = self._find("'", self._at + 1, hides=False)
        self._take(1, "")
        while self._at < end:
            if self.text.startswith(PLACEHOLDER, self._at):
                self._hole("'")
            elif not self._take_plain("'"):
                self._take(1, self.text[self._at])
        self._take(1)

    def _double(self) -> None:
        self._take(1, "")
        while (char := self.text[self._at : self._at + 1]) != '"':
            if not char:
                raise UnsafePlaceholder("is in a command with a quote that is not closed")
            if self.text.startswith(PLACEHOLDER, self._at):
                self._hole('"')
            elif char == "\\":
                if self.text.startswith(PLACEHOLDER, self._at + 1):
                    raise UnsafePlaceholder("stands after a backslash inside double quotes")
                self._take(2, self.text[self._at + 1 : self._at + 2])
            elif char in "$`":
                self._expansion(in_quotes=True)
            elif not self._take_plain('"'):
                self._take(1, char)
        self._take(1)

    def _expansion(self, *, in_quotes: bool = False) -> None:
        """Past what begins with `$` or a backtick; with `{}` inside it is refused."""
        text, at = self.text, self._at
        if text[at] == "`":
            self._pass(self._find("`", at + 1) + 1, "is inside backticks")
        elif text.startswith("$((", at) or text.startswith("$[", at):
            self._calculates = True
            self._pass(self._closing(at), "is inside arithmetic")
        elif text.startswith("$(", at):
            self._pass(self._closing(at), "is inside $(...)")
        elif text.startswith("${", at):
            match = _SIMPLE_BRACES.match(text, at)
            self._calculates = self._calculates or bool(match and re.search(r"[\[:]|@P", match[0]))
            if match is None:
                self._unsure("${...}")
            name = _BRACED_NAME.match(text, at)
            self._pass(match.end() if match else len(text), "is inside ${...}", self._value_of(name[1] if name else ""))
        elif text.startswith(("$'", '$"'), at) and not in_quotes:
            end = self._find(text[at + 1], at + 2) + 1
            if text[at + 1] == '"' and re.search(r"[$`]", text[at + 2 : end]):
                self._unsure('$"..."')
            self._pass(end, f"is inside {text[at : at + 2]}...{text[at + 1]}")
        elif match := _VARIABLE.match(text, at):
            self._take(len(match[0]), self._value_of(match[1]))
        else:
            self._take(1, "$")

    def _value_of(self, name: str) -> str:
        """A variable that a line is kept in is a line; so may be an argument of a function."""
        is_argument = _ARGUMENT.fullmatch(name) is not None
        if not is_argument and name not in self._known:
            return UNKNOWN
        self._seen_hole = True
        if is_argument:
            self.kept.add("1")
        return HOLE

    def _pass(self, end: int, where: str, meaning: str = UNKNOWN) -> None:
        if PLACEHOLDER in self.text[self._at : end]:
            raise UnsafePlaceholder(where, _QUOTED if where in _SUBSTITUTIONS else _WAY_OUT)
        self._take(end - self._at, meaning)

    def _find(self, char: str, start: int, *, hides: bool = True) -> int:
        """The next such character; where a backslash `hides`, not one behind it."""
        at = start
        while at < len(self.text) and self.text[at] != char:
            at += 2 if hides and self.text[at] == "\\" else 1
        if at >= len(self.text):
            self._unsure("a quote that is not closed")
        return min(at, len(self.text))

    def _closing(self, start: int) -> int:
        """Past the parenthesis or bracket that closes the one after `start`."""
        opening = self.text[start + 1]
        closing = {"(": ")", "[": "]"}[opening]
        depth, at = 0, start + 1
        while at < len(self.text):
            char = self.text[at]
            if char == "\\":
                at += 1
            elif char in "'\"`":
                first, at = at, self._find(char, at + 1, hides=char != "'")
                if char == '"' and re.search(r"[$`]", self.text[first:at]):
                    self._unsure("quotes inside $(...)")
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if depth == 0:
                    break
            at += 1
        if depth or _UNSURE_INSIDE.search(self.text[start:at]):
            self._unsure("$(...)")
        return min(at + 1, len(self.text))

    def _unsure(self, of: str) -> None:
        """From here on the reader may be wrong about quotes."""
        if self._last_hole >= self._at:
            raise UnsafePlaceholder(f"is in or after {of}, which cannot be read with certainty")

    # -- operators, words and commands ---------------------------------------------------------------------------------

    def _redirection(self) -> None:
        text, at = self.text, self._at
        if text.startswith(("<(", ">("), at):
            return self._pass(self._closing(at), "is inside <(...)")
        self._command.drop_number()
        self._end_word()
        match = re.compile(r"&>>?|<<<|<<-?|[<>]&|>>|>\||<>|[<>]").match(text, at)
        assert match is not None
        if match[0] in ("<<", "<<-") and self._last_hole >= at:
            raise UnsafePlaceholder("is in or after a here-document", _QUOTED)
        self._take(len(match[0]))
        self._command.redirect("text" if match[0] == "<<<" else "file")

    def _operator(self, char: str) -> None:
        if self.text.startswith("((", self._at):
            self._end_command()
            self._calculates = True
            return self._pass(self._closing(self._at - 1), "is inside arithmetic")
        is_pipe = char == "|" and not self.text.startswith("||", self._at)
        self._end_command()
        self._is_piped = self._is_piped or (is_pipe and self._seen_hole)
        self._take(2 if self.text.startswith(("||", "&&"), self._at) else 1)

    def _end_word(self) -> None:
        word = self._command.end_word()
        if word == "[[":
            self._in_test = self._calculates = True
        elif word == "]]":
            self._in_test = False

    def _end_command(self) -> None:
        self._end_word()
        words, texts = self._command.words, self._command.texts
        self._command = SimpleCommand()
        if not words:
            return
        verdict = judge(words)
        if verdict.refusal and self._is_inner:
            raise UnsafePlaceholder(verdict.refusal)
        _raise(verdict)
        self.no_dash = self.no_dash or verdict.no_dash
        self.kept |= kept_by(words)
        self._calculates = self._calculates or calculates(words)
        if (self._is_piped or any(HOLE in text for text in texts)) and reads_code(words):
            raise UnsafePlaceholder("goes to a program that runs what it reads")
