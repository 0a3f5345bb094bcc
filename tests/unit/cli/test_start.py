"""What `yard` loads before it does anything: who only lists jobs does not wait for the libraries of clusters."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIBRARIES = {"kubernetes", "aiohttp"}


@pytest.mark.parametrize("verb", ["", "ls", "run", "clusters", "exec"])
def test_a_verb_does_not_pay_for_the_libraries_of_clusters(verb: str) -> None:
    words = [*verb.split(), "--help"]
    code = (
        f"import sys; from jobyard.cli.main import run; code = run({words!r}); "
        f"print(code, sorted(set(sys.modules) & {LIBRARIES!r}), file=sys.stderr)"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stderr.strip() == "0 []"
