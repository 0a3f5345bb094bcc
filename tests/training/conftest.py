"""The real frameworks, in an environment of their own, and yards to run them in."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training.trainings import TrainingYard
from tests.yards import ROOT

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here are one group, and none of them is quick: a framework takes seconds to import."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.training)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def frameworks() -> str:
    """The Python that has them. `make test` installs it before; where it is missing, this does."""
    done = subprocess.run([ROOT / "tools/frameworks"], capture_output=True, text=True)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
        pytest.skip(f"tools/frameworks cannot install torch, Lightning, transformers and TensorFlow: {why}")
    return done.stdout.strip()


@pytest.fixture
def trainings(frameworks: str) -> Iterator[TrainingYard]:
    """A yard of two fake GPUs for this test alone."""
    with TrainingYard(frameworks, JOBYARD_FAKE_GPUS="2x16GiB") as yard:
        yield yard
