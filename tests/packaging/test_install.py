"""What a newcomer types first works as it is written: README's first lines, and the wheel in a clean environment."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.yards import ROOT, TemporaryYard

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # both install from the package registry


def first_commands(page: Path) -> list[str]:
    """The commands of the first console block of a page, without its prompts and comments."""
    found = re.search(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    assert found is not None, f"{page.name} has no console block"
    return [line.removeprefix("$ ").partition("  #")[0] for line in found[1].splitlines() if line.startswith("$ ")]


def run_lines(lines: list[str], yard: TemporaryYard, cwd: Path) -> str:
    """As one shell would run them one after the other; the first that fails ends it."""
    env = {name: value for name, value in yard.env.items() if name != "PYTHONPATH"}
    script = "set -e\n" + "\n".join(lines)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def test_the_first_lines_of_the_readme_work_in_a_fresh_clone(own_yard: TemporaryYard) -> None:
    clone = own_yard.work / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    commands = first_commands(clone / "README.md")
    said = run_lines(commands, own_yard, clone)
    assert "1000 succeeded" in said, said  # the array of the second line, all of it


def test_the_wheel_runs_jobs_in_a_clean_environment(own_yard: TemporaryYard) -> None:
    wheels, home = own_yard.work / "wheels", own_yard.work / "clean"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)], check=True)
    (wheel,) = wheels.glob("jobyard-*.whl")
    lines = [
        f"{sys.executable} -m venv {home}",
        f"{home}/bin/pip install --quiet --disable-pip-version-check {wheel}",
        f"PATH={home}/bin:$PATH",
        "yard --version",
        "yard run -a 0-9 --retries 1 -- sh -c 'echo task $YARD_TASK'",
        "yard logs --task 9 last",
        "yard doctor",
        "execute_batch --help >/dev/null",
        "yard server stop",
    ]
    said = run_lines(lines, own_yard, own_yard.work)
    assert "task 9" in said
