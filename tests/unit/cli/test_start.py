"""What `yard` loads before it does anything: who only lists jobs does not wait for what other verbs need."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIBRARIES = {"kubernetes", "aiohttp", "fastapi", "pydantic", "sqlalchemy", "rich", "textual"}
OF_THE_SERVER = {f"jobyard.{name}" for name in ("server", "engine", "scheduling", "executors", "simulator", "agent")}
EVENTS = {"jobyard.model.events", "jobyard.model.effects"}
OF_SUBMITTING = {f"jobyard.{name}" for name in ("manifests", "images", "staging", "kubernetes")} | {"yaml", "asyncio"}
HELP_ALONE = {f"jobyard.{name}" for name in ("client", "model", "wire")}


@pytest.mark.parametrize(
    ("verb", "spared"),
    [
        ("", OF_SUBMITTING | HELP_ALONE),
        ("ls", OF_SUBMITTING),
        ("show", OF_SUBMITTING),
        ("cancel", OF_SUBMITTING),
        ("run", set[str]()),
        ("clusters", set[str]()),
        ("exec", set[str]()),
    ],
)
def test_a_verb_loads_nothing_that_only_others_need(verb: str, spared: set[str]) -> None:
    words = [*verb.split(), "--help"]
    forbidden = LIBRARIES | OF_THE_SERVER | EVENTS | spared
    code = (
        f"import sys; from jobyard.cli.main import run; code = run({words!r}); "
        f"print(code, sorted(set(sys.modules) & {forbidden!r}), file=sys.stderr)"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stderr.strip() == "0 []"
