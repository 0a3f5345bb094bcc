"""What a sentence says to write: pasted into bash it is the words that were meant, whatever those of the user hold."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.cli.output.harmless import harmless
from jobyard.errors import UserError
from jobyard.manifests.command import spec_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.doubts import marks_of_shells
from jobyard.manifests.files import read_text
from jobyard.manifests.other_files import refuse_other_file
from jobyard.manifests.overrides import Overrides

ODD = "$`\"'\\(){}[];|&<>*?~#! \t\n=-+,.:@abcé\u202e\udcff\x1b"
word = st.text(st.sampled_from(ODD), min_size=1, max_size=12).filter(str.strip)
HERE = SubmitContext("/nowhere", {}, "ada")
MARKS = frozenset({">", ">>", "<", "|", "&&", "||", ";"})  # they stand in the line as they are
YARD = "yard() { printf '%s\\0' \"$@\"; }; "


def sentence_of(refused: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        refused()
    return harmless(str(caught.value))


def pasted(sentence: str, mark: str) -> list[str]:
    """The words after `yard` of the command that follows the mark."""
    line = YARD + sentence[sentence.rindex(mark) + len(mark) :]
    done = subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE, env={"LC_ALL": "C"}, check=True)
    return [os.fsdecode(each) for each in done.stdout.split(b"\0")[:-1]]


@settings(deadline=None, max_examples=30)
@given(name=word)
def test_a_file_that_is_no_list_is_shown_with_its_program(name: str) -> None:
    file = f"{name}x.py"
    sentence = sentence_of(lambda: refuse_other_file("x", file))
    *before, last = pasted(sentence, "to run it write: ")
    assert before == ["run", "--", "python"]
    assert last == (f"./{file}" if file.startswith("-") else file)


@settings(deadline=None, max_examples=30)
@given(words=st.lists(word, max_size=3), program=word)
def test_flags_after_a_line_are_shown_before_it(words: list[str], program: str) -> None:
    argv = [f"a {program} b", "--header", *words]
    sentence = sentence_of(lambda: spec_from_command(argv, Overrides(), HERE))
    assert pasted(sentence, "write flags before it: ") == ["run", *argv[1:], argv[0]]


@settings(deadline=None, max_examples=30)
@given(words=st.lists(word.filter(lambda each: "{" not in each and each not in MARKS), min_size=1, max_size=3))
def test_a_line_for_a_shell_is_shown_as_one_word_that_has_the_same_words(words: list[str]) -> None:
    (note,) = marks_of_shells(["echo", *words, "{a,b}", "&&", "true"])
    if ": " not in note.rpartition("as one word")[2]:
        return  # it was too long
    (line,) = pasted(note.replace("as one word: ", "as one word: yard "), "as one word: ")
    done = subprocess.run(
        ["bash", "-c", YARD + line.replace("echo", "yard", 1)], stdout=subprocess.PIPE, env={"LC_ALL": "C"}, check=True
    )
    assert [os.fsdecode(each) for each in done.stdout.split(b"\0")[:-1]] == [*words, "{a,b}"]


def test_a_binary_file_is_shown_as_a_program(tmp_path: Path) -> None:
    file = tmp_path / "a\n!b"
    file.write_bytes(b"\0")
    sentence = sentence_of(lambda: read_text(file, HERE))
    assert pasted(sentence, "to run it write: ") == ["run", "--", str(file)]
