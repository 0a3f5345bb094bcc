"""Words that are shown to be pasted: bash reads the same words back."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.quoting import joined, quoted_file

PRINT = "printf '%s\\0' "
word = st.one_of(
    st.text(st.sampled_from("$`\"'\\(){}[];|&<>*?~#! \t\n\r=-+,.:@^abcé中🙂\u202e\u00a0\udcff\x1b\x07"), max_size=20),
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20),
    st.sampled_from(["", "a=b", "!!", "{1..3}", "{a,b}", "a\nb", "-n", "~/x", "x'!y\n!!"]),
)


def words_in(line: str, *, options: tuple[str, ...] = ("-c",), stdin: str | None = None) -> list[str]:
    words = ["bash", *options, *([line] if stdin is None else [])]
    env = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "LC_ALL": "C"}
    given_in = None if stdin is None else stdin.encode()
    printed = subprocess.run(words, env=env, input=given_in, stdout=subprocess.PIPE, check=True).stdout
    return [os.fsdecode(each) for each in printed.split(b"\0")[:-1]]


@settings(deadline=None)
@given(words=st.lists(word, min_size=1, max_size=5))
def test_bash_reads_the_same_words_back_from_one_line_that_hides_nothing(words: list[str]) -> None:
    line = joined(words)
    assert words_in(PRINT + line) == words
    assert line.isprintable()


def test_a_first_word_is_a_program_though_it_looks_like_a_variable() -> None:
    line = f'command_not_found_handle() {{ {PRINT}"$@"; }}; {joined(["a=b", "c=d"])}'
    assert words_in(line) == ["a=b", "c=d"]


@pytest.mark.parametrize("text", ["a!b", "!!", "it's!x", "a\n!!", "!-1'\n!x"])
def test_an_interactive_bash_looks_nothing_up_in_its_history(text: str) -> None:
    line = f"set -o history -o histexpand\n: x\n{PRINT}{joined([text])}\n"
    assert words_in("", options=(), stdin=line) == [text]


def test_a_file_is_no_option_of_the_program_that_gets_it() -> None:
    assert quoted_file("-x") == "./-x"
    assert quoted_file("a b") == "'a b'"
