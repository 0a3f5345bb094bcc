"""Do the callbacks stop and resume the real frameworks at a checkpoint, without a trace in the result?"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobyard.agent_protocol.progress_reducer import ProgressReducer
from tests.marks import long
from tests.yards import ROOT

SCRIPTS = Path(__file__).parent / "callbacks"


def attempt(python: str, where: Path, script: str, argument: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One attempt as the agent starts it; its reports are in `where/spool`, and a stop file of before is gone."""
    where.mkdir(exist_ok=True)
    for name in ("spool", "stop"):
        (where / name).unlink(missing_ok=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("YARD_")} | {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "YARD_SPOOL": str(where / "spool"),
        "YARD_STOP_FILE": str(where / "stop"),
        "YARD_CHECKPOINT_DIR": str(where / "checkpoints"),
        **variables,
    }
    return subprocess.run([python, SCRIPTS / script, argument], env=env, cwd=where, capture_output=True, text=True)


def progress(where: Path) -> dict[str, Any]:
    reducer = ProgressReducer()
    reducer.feed((where / "spool").read_bytes())
    reducer.confirm()
    return reducer.progress() or {}


def result(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return next(line for line in done.stdout.splitlines() if line.startswith("result"))


@pytest.mark.parametrize(
    ("script", "argument", "ask"),
    [
        *long(("with_lightning.py", "saved", "signal"), ("with_lightning.py", "unsaved", "file")),
        *long(("with_keras.py", "backup", "file"), ("with_keras.py", "model", "signal")),
        *long(("with_huggingface.py", "epoch", "signal"), ("with_huggingface.py", "no", "file")),
    ],
)
def test_a_stopped_and_resumed_training_ends_as_one_that_was_left_alone(
    frameworks: str, tmp_path: Path, script: str, argument: str, ask: str
) -> None:
    expected = result(attempt(frameworks, tmp_path / "whole", script, argument))
    first = attempt(frameworks, tmp_path / "cut", script, argument, ASK=ask)
    assert first.returncode == 85, first.stderr
    told = progress(tmp_path / "cut")
    assert told.items() >= {"epochs_done": 2, "epochs_total": 4, "has_yielded": True, "can_yield": True}.items()
    assert told["saved_at"] > 0
    assert [epoch["number"] for epoch in told["history"]] == [1, 2]
    again = attempt(frameworks, tmp_path / "cut", script, argument, YARD_EPOCHS_DONE="2", YARD_RESUMED="1")
    assert result(again) == expected
    assert progress(tmp_path / "cut")["epochs_done"] == 4
