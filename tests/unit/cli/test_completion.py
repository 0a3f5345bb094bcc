"""What Tab offers, asked by the shells themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.packages import why_lacking
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn
from tests.unit.client.views import NODE, a_job_view

from jobyard.model.job import State

BASH = """
source <(yard completion bash)
compopt() {{ printf '(%s)\\n' "$2"; }}
complete -p yard >/dev/null || echo not registered
COMP_WORDS=({words}) COMP_CWORD={index}
_yard_completion yard
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ }}
_describe() {{ print -rl -- "${{(@P)3}}" }}
compadd() {{ print -rl -- "${{@:#-*}}" }}
_path_files() {{ print -r -- '(files)' }}
source <(yard completion zsh)
words=({words}) CURRENT={index}+1
_yard_completion
"""
FISH = """
yard completion fish | source
complete -C '{line}'
"""


@pytest.fixture
def lab(stand_in: StandIn) -> StandIn:
    jobs = (
        a_job_view(State.RUNNING, id="j9", number=9, name="fit"),
        a_job_view(State.FAILED, id="j8", number=8, name="train.py"),
        a_job_view(State.FAILED, id="j7", number=7, name="$(touch bad)"),
    )
    stand_in.on("GET /jobs", Said(data=jobs))
    stand_in.on("GET /nodes", Said(data=(NODE,)))
    return stand_in


def offered(shell: str, text: str, home: Path, line: str) -> tuple[list[str], str]:
    """What a shell offers behind these words, the last of which is being typed; and what else was printed."""
    programs = home / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "yard").write_text(f'#!/bin/sh\nexec {sys.executable} -m jobyard.cli.main "$@"\n')
    (programs / "yard").chmod(0o755)
    words = " ".join(repr(word) for word in line.split(" "))
    done = subprocess.run(
        [*shell.split(), "-c", text.format(words=words, index=line.count(" "), line=line)],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines(), done.stderr


def bash(home: Path, line: str) -> list[str]:
    words, errors = offered("bash --norc", BASH, home, line)
    assert errors == ""
    return words


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("yard canc", ["cancel"]),
        ("yard show ", ["9", "8", "7", "train.py", "fit", "last"]),
        ("yard retry tr", ["train.py"]),
        ("yard nodes dr", ["drain"]),
        ("yard nodes drain he", ["here"]),
        ("yard run --on he", ["here"]),
        ("yard run --cp", ["--cpus"]),
        ("yard ls --state fa", ["failed"]),
        ("yard run tra", ["(default)"]),
    ],
)
def test_bash_is_offered_verbs_flags_jobs_and_nodes(line: str, words: list[str], home: Path) -> None:
    assert [word for word in bash(home, line) if word] == words


@pytest.mark.usefixtures("lab")
def test_no_word_that_tab_writes_is_code(home: Path) -> None:
    assert not any("touch" in word for word in bash(home, "yard show "))
    assert not (home / "here" / "bad").exists()


def test_a_name_that_a_shell_would_take_apart_is_offered_by_its_number_only(home: Path, stand_in: StandIn) -> None:
    names = ["fit*", "[f]it", "two words", "~", "plain"]
    stand_in.on("GET /jobs", Said(data=[a_job_view(id=f"j{i}", number=i, name=name) for i, name in enumerate(names)]))
    (home / "here" / "fit.py").write_text("")
    assert bash(home, "yard show ") == ["0", "1", "2", "3", "4", "plain", "last"]
    assert bash(home, "yard show fi") == [""]


def test_behind_two_dashes_programs_are_offered(home: Path) -> None:
    assert "yard" in bash(home, "yard run -- yar")


def test_without_a_yard_or_server_nothing_is_offered_started_or_made(home: Path, yard: Yard) -> None:
    assert bash(home, "yard show ") == [""]
    assert not (home / "yard").exists()
    (home / "yard").mkdir()
    assert bash(home, "yard show ") == [""]
    assert list((home / "yard").iterdir()) == []


@pytest.mark.usefixtures("lab")
def test_zsh_and_fish_are_offered_the_same_with_what_it_is(home: Path) -> None:
    if lacking := why_lacking("unit"):
        pytest.skip(lacking)
    words, errors = offered("zsh -f", ZSH, home, "yard retry tr")
    assert (words, errors) == (["train.py:job 8 (failed)"], "")
    words, errors = offered("fish --no-config", FISH, home, "yard retry tr")
    assert (words, errors) == (["train.py\tjob 8 (failed)"], "")


def test_another_shell_is_refused_with_those_that_there_are(yard: Yard) -> None:
    result = yard("completion", "tcsh")
    assert (result.code, result.out) == (2, "")
    assert "'tcsh'" in result.err
    assert "bash, fish or zsh" in result.err
