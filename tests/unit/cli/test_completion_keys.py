"""Tab pressed on a terminal, in the shells that people have: what stands there afterwards?"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.unit.client.stand_in import Said, StandIn
from tests.unit.client.views import a_job_view
from tests.yards import Terminal

from jobyard.model.job import State

# How each is started without the files of the user, and what stands in those files by our help.
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(yard completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -Uz compinit; compinit -D; eval "$(yard completion zsh)"'),
    "fish": (["fish", "--no-config", "-i"], "yard completion fish | source"),
}
CLEAR_LINE = b"\x15"


@pytest.fixture
def programs(home: Path) -> Path:
    directory = home / "bin"
    directory.mkdir()
    (directory / "yard").write_text(f'#!/bin/sh\nexec {sys.executable} -m jobyard.cli.main "$@"\n')
    (directory / "yard").chmod(0o755)
    return directory


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_a_verb_and_a_job_and_shows_what_there_is(
    shell: str, stand_in: StandIn, programs: Path, home: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    jobs = [a_job_view(State.RUNNING, id="j9", name="fit"), a_job_view(State.FAILED, id="j8", name="train.py")]
    stand_in.on("GET /jobs", Said(data=jobs))
    command, set_up = SHELLS[shell]
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PS1": "$ "}
    with Terminal(command, env, home / "here", columns=100) as screen:
        screen.press(f"{set_up}; echo rea''dy\n".encode())
        screen.until(r"ready\r")
        screen.press(b"yard canc\t")
        screen.until(r"yard cancel ")
        screen.press(CLEAR_LINE + b"yard retry tra\t")
        screen.until(r"yard retry train\.py ")
        screen.text = ""
        screen.press(CLEAR_LINE + b"yard show \t\t")
        for word in ("9", "8", "fit", r"train\.py", "last"):
            screen.until(rf"\s{word}\s")
        screen.press(CLEAR_LINE + b"exit\n")
        screen.ended()
    assert "Traceback" not in screen.plain
