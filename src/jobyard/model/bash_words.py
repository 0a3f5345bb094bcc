"""Words of a bash command: which words, and which texts as input, has the command that is being read?"""

from __future__ import annotations


class SimpleCommand:
    """One command, filled piece by piece from left to right."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.texts: list[str] = []  # here-strings: input of the command
        self.has_hole = self.has_brace = False  # outside quotes, in the word that is being read
        self._word: list[str] | None = None  # pieces of that word; None: between words
        self._redirects: list[str] = []  # "file", "text": what the next word is

    @property
    def is_in_word(self) -> bool:
        return self._word is not None

    @property
    def word(self) -> str:
        """What there is of the word that is being read."""
        return "".join(self._word or ())

    @property
    def is_redirecting(self) -> bool:
        """Is the next word a file or a text, and none of the command?"""
        return bool(self._redirects)

    def add(self, piece: str) -> None:
        if self._word is None:
            self._word = []
        self._word.append(piece)

    def drop_number(self) -> None:
        """Digits right before a redirection are the number of a file, not a word."""
        if self._word is not None and "".join(self._word).isdigit():
            self._word = None

    def redirect(self, kind: str) -> None:
        """The next word is a "file" or a "text", not one of the command."""
        self._redirects.append(kind)

    def end_word(self) -> str:
        """The word of the command that ends here; empty where there is none."""
        if self._word is None:
            return ""
        word, self._word = "".join(self._word), None
        self.has_hole = self.has_brace = False
        if not self._redirects:
            self.words.append(word)
            return word
        if self._redirects.pop() == "text":
            self.texts.append(word)
        return ""
