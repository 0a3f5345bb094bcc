"""Bash reader: where in a command of bash does a placeholder stand, and is a value that stands there data?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from jobyard.model.bash_pieces import KNOWN_WORD, Piece, code_of, meaning_of
from jobyard.model.bash_words import SimpleCommand
from jobyard.model.interpreters import HOLE, INTEGERS, UNKNOWN, Verdict, judge, reads_code
from jobyard.model.placeholders import ONLY_LINE, Placeholder, Placeholders, Variable
from jobyard.model.unsafe_placeholder import (
    CALCULATING,
    COMPARING,
    IN_ARITHMETIC,
    IS_CALCULATED,
    OTHER_NAME,
    WAY_OUT,
    UnsafePlaceholder,
)
from jobyard.model.value_flow import (
    ARGUMENTS,
    FUNCTION,
    NO_VARIABLES,
    STDIN,
    calculates,
    evaluates,
    kept_by,
    mentioned,
    reads_input,
)

_SUBSTITUTIONS = ("is inside backticks", "is inside $(...)")
_SIMPLE_BRACES = re.compile(r"\$\{[^{}'\"`$\\()]*\}")
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])")
_BRACED_NAME = re.compile(r"\$\{!?(\w+|[@*])")
_ARGUMENT = re.compile(r"[1-9]\d*|[@*]|OPTARG")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
_NUMBERS = re.compile(r"\$?[(\[][\d\s()+*/%<>=!&|^~?:,-]*[)\]]", re.ASCII)  # arithmetic that reads no variable
_DEPTH_MOST = 8  # of code inside code
_PASSES_MOST = 4
_UNSURE_INSIDE = re.compile(r"<<|#|\bcase\b")  # parentheses do not tell the end of such a substitution
_BLANK = " \t"
_AFTER_WORD = frozenset({"", *" \t;&|()\n<>"})
_OPERATORS = ";&|()\n"
# Runs of characters that mean themselves, by the quotes around them: a long command is read in few steps.
_PLAIN = {
    "": re.compile(r"[^{}\\'\"$`<>&;|()\n \t#*?]+"),
    '"': re.compile(r'[^"\\$`{]+'),
    "'": re.compile(r"[^'{]+"),
}


class Asked(NamedTuple):
    """What is asked about a command, and about code inside it."""

    placeholders: Placeholders = ONLY_LINE
    refuse: Callable[[Verdict], None] = lambda verdict: None  # raises, unless the verdict is that all is data
    only: Variable | None = None  # with it, this variable is data, and the others are words that everybody knows
    written: tuple[str, ...] = ()  # the placeholders, as they stand in the command that a person wrote
    depth: int = 0

    def about(self, text: str) -> Asked:
        return self._replace(written=tuple(self.placeholders.texts_in(text)))


class Reader:
    """Reads a command of bash once, from left to right, as far as quotes and simple commands go."""

    def __init__(self, text: str, kept: frozenset[str] = frozenset(), asked: Asked | None = None) -> None:
        self.text = text
        self._asked = asked if asked is not None else Asked().about(text)
        self.kept: set[str] = set()  # variables that hold a line, as far as this reading finds them
        self._known = kept  # and as an earlier reading found them
        self.pieces: list[str | Piece] = []
        self.no_dash = ""
        self._at = 0
        self._last_hole = self._asked.placeholders.last(text)
        self._command = SimpleCommand()
        self._seen_hole = self._is_piped = self._in_test = self._calculates = False

    def read(self) -> None:
        while self._at < len(self.text):
            self._step(self.text[self._at])
        self._end_command()
        if self._calculates and (self.kept - {STDIN, FUNCTION} or self._known - NO_VARIABLES):
            raise self._unsafe(
                f"is kept in a variable, and for arithmetic, indexes and ${{!...}} {IN_ARITHMETIC}", CALCULATING
            )
        if named := (self.kept | self._known) & INTEGERS:
            raise self._unsafe(f"is the value of {min(named)}, {IS_CALCULATED}", OTHER_NAME)

    def _step(self, char: str) -> None:
        text, at = self.text, self._at
        if self._take_plain(""):
            return
        if char == "{" and (found := self._asked.placeholders.at(text, at)):
            self._hole(found, "")
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

    def _hole(self, found: Placeholder, quote: str) -> None:
        if self._in_test:
            raise self._unsafe(f"is inside [[ ]], where {IN_ARITHMETIC}", COMPARING)
        end = self._at + len(found.text)
        is_apart = not self._command.is_in_word and self.text[end : end + 1] in _AFTER_WORD
        is_word = is_apart and not quote and not self._command.is_redirecting
        variables = found.words if is_word else found.inside
        self.pieces.append(Piece(code_of(quote, variables, self._asked.placeholders.short, is_word=is_word), variables))
        self._at = end
        for index, variable in enumerate(variables if is_word else variables[:1]):
            if index:
                self._end_word()
            self._command.add(meaning_of((variable,) if is_word else variables, self._asked.only))
        self._seen_hole = True
        if not quote:
            self._command.has_hole = True
            self._refuse_brace_expansion()

    def _unsafe(self, where: str, way_out: str = WAY_OUT) -> UnsafePlaceholder:
        return UnsafePlaceholder(where, way_out, self._asked.written)

    @property
    def _quoted(self) -> str:
        variables = self._asked.placeholders.variables_in(self.text)
        return f'write "${variables[0].name}" there, with its quotes' if len(variables) == 1 else WAY_OUT

    def _refuse_brace_expansion(self) -> None:
        if self._command.has_hole and self._command.has_brace:
            raise self._unsafe("is in a word with other braces")

    # -- quotes and expansions -----------------------------------------------------------------------------------------

    def _single(self) -> None:
        end = self._find("'", self._at + 1, hides=False)
        self._take(1, "")
        while self._at < end:
            if found := self._asked.placeholders.at(self.text, self._at):
                self._hole(found, "'")
            elif not self._take_plain("'"):
                self._take(1, self.text[self._at])
        self._take(1)

    def _double(self) -> None:
        self._take(1, "")
        while (char := self.text[self._at : self._at + 1]) != '"':
            if not char:
                raise self._unsafe("is in a command with a quote that is not closed")
            if found := self._asked.placeholders.at(self.text, self._at):
                self._hole(found, '"')
            elif char == "\\":
                if self._asked.placeholders.at(self.text, self._at + 1):
                    raise self._unsafe("stands after a backslash inside double quotes")
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
            end = self._find("`", at + 1)
            self._substitution(end + 1, text[at + 1 : end], "is inside backticks")
        elif text.startswith("$((", at) or text.startswith("$[", at):
            self._arithmetic(self._closing(at))
        elif text.startswith("$(", at):
            end = self._closing(at)
            self._substitution(end, text[at + 2 : end - 1], "is inside $(...)")
        elif text.startswith("${", at):
            match = _SIMPLE_BRACES.match(text, at)
            end = match.end() if match else self._closing(at)
            self._calculates = self._calculates or evaluates(text[at:end])
            if match is None:
                self._unsure("${...}")
            values = [self._value_of(name) for name in mentioned(text[at:end])]
            self._pass(end, "is inside ${...}", HOLE if HOLE in values else UNKNOWN)
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
        is_last = name == "_" and self._seen_hole  # the last word of the command before
        if not is_argument and not is_last and name not in self._known:
            return UNKNOWN
        self._seen_hole = True
        if is_argument:
            self.kept.add(ARGUMENTS)
        return HOLE

    def _arithmetic(self, end: int) -> None:
        """Of numbers alone nothing is read as code."""
        self._calculates = self._calculates or not _NUMBERS.fullmatch(self.text, self._at, end)
        for name in mentioned(self.text[self._at : end]):
            self._value_of(name)
        self._pass(end, f"is inside arithmetic, where {IN_ARITHMETIC}", way_out=CALCULATING)

    def _substitution(self, end: int, code: str, where: str, meaning: str = HOLE) -> None:
        """What it prints is a value where it has one, in a variable or as its input."""
        is_fed = STDIN in self._known and reads_input(code)
        has_value = HOLE in list(map(self._value_of, mentioned(code)))
        if not self._asked.placeholders.stands_in(code) and (has_value or is_fed):
            if "`" in where and "\\" in code:
                raise self._unsafe("is in a variable that stands inside backticks; write $(...)")
            self.kept |= self._inside(code, self._known | self.kept)
        self._pass(end, where, meaning if has_value or is_fed else UNKNOWN)

    def read_inner(self, code: str) -> None:
        """Code of a shell that has values as its arguments."""
        self._inside(code.replace(UNKNOWN, KNOWN_WORD), {ARGUMENTS, "0"})

    def _inside(self, code: str, known: frozenset[str] | set[str]) -> set[str]:
        """Reads code that has values in variables; which others hold them after it."""
        if self._asked.depth == _DEPTH_MOST:
            raise self._unsafe("is in code inside code, too deep to be read")
        for _ in range(_PASSES_MOST):
            inner = Reader(code, frozenset(known), self._asked._replace(depth=self._asked.depth + 1))
            inner._seen_hole, inner._is_piped = True, self._is_piped
            inner.read()
            if inner.kept <= known:
                return inner.kept
            known = known | inner.kept
        raise self._unsafe("is copied from variable to variable")

    def _pass(self, end: int, where: str, meaning: str = UNKNOWN, way_out: str = WAY_OUT) -> None:
        if self._asked.placeholders.stands_in(self.text, self._at, end):
            raise self._unsafe(where, self._quoted if where in _SUBSTITUTIONS else way_out)
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
        closing = {"(": ")", "[": "]", "{": "}"}[opening]
        depth, at = 0, start + 1
        while at < len(self.text):
            char = self.text[at]
            if char == "\\":
                at += 1
            elif char in "'\"`":
                first, at = at, self._find(char, at + 1, hides=char != "'")
                if char == '"' and re.search(r"`|\$[({\[]", _SIMPLE_BRACES.sub("", self.text[first:at])):
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
        if self._last_hole >= self._at or (self.kept | self._known) - {FUNCTION}:
            raise self._unsafe(f"is in or after {of}, which cannot be read with certainty")

    # -- operators, words and commands ---------------------------------------------------------------------------------

    def _redirection(self) -> None:
        text, at = self.text, self._at
        if text.startswith(("<(", ">("), at):
            end = self._closing(at)
            if HOLE in list(map(self._value_of, mentioned(text[at:end]))):
                self.kept.add(STDIN)
                self._command.texts.append(HOLE)
            return self._substitution(end, text[at + 2 : end - 1], "is inside <(...)", "/dev/stdin")
        self._command.drop_number()
        self._end_word()
        match = re.compile(r"&>>?|<<<|<<-?|[<>]&|>>|>\||<>|[<>]").match(text, at)
        assert match is not None
        if match[0] in ("<<", "<<-") and self._last_hole >= at:
            raise self._unsafe("is in or after a here-document", self._quoted)
        self._take(len(match[0]))
        self._command.redirect("text" if match[0] == "<<<" else "file")

    def _operator(self, char: str) -> None:
        if self.text.startswith("((", self._at):
            self._end_command()
            return self._arithmetic(self._closing(self._at - 1))
        if char == "(" and self._command.is_in_word:
            if _ARRAY.fullmatch(self._command.word):
                return self._array()
            self.kept.add(FUNCTION)
        is_pipe = char == "|" and not self.text.startswith("||", self._at)
        self._end_command()
        if is_pipe and self._seen_hole:
            self._is_piped = True
            self.kept.add(STDIN)
        self._take(2 if self.text.startswith(("||", "&&"), self._at) else 1)

    def _array(self) -> None:
        """`name=(...)`: its elements are words, of which an index is arithmetic."""
        outer, self._command = self._command, SimpleCommand()
        self._take(1)
        while (char := self.text[self._at : self._at + 1]) != ")":
            if char == "\n":
                self._end_word()
                self._take(1)
            elif not char or char in "(;&|<>":
                raise self._unsafe("is in or after an array that cannot be read with certainty")
            else:
                self._step(char)
        self._end_word()
        words, self._command = self._command.words, outer
        if any(word.startswith("[") and HOLE in word for word in words):
            raise self._unsafe("is in an element of an array with an index")
        self._calculates = self._calculates or any(re.match(r"\[(?!\d+\])", word) for word in words)
        self._take(1, HOLE if any(HOLE in word for word in words) else "")

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
        self._asked.refuse(verdict)
        self.no_dash = self.no_dash or verdict.no_dash
        if verdict.inner:
            self.read_inner(verdict.inner)
        if any(HOLE in text for text in texts):
            self.kept.add(STDIN)
        if words[0] == "function":
            self.kept.add(FUNCTION)
        self.kept |= kept_by(words, is_fed=STDIN in self._known)
        self._calculates = self._calculates or calculates(words)
        is_fed = self._is_piped or self._known >= {STDIN, FUNCTION} or any(HOLE in text for text in texts)
        if is_fed and reads_code(words):
            raise self._unsafe("goes to a program that runs what it reads")
