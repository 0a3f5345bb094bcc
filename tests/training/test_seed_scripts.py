"""The KubeProfiler guide's three scripts, with the drop-in, in the real frameworks: run, stopped, resumed, ended."""

from __future__ import annotations

import re

import pytest

from tests.marks import long
from tests.training.trainings import TrainingYard

# How large each is so that it still runs when the yard, having heard of its first epoch, asks it to stop.
SIZES = {
    "seed_pytorch.py": ("40", "8", "4096"),
    "seed_lightning.py": ("24", "4", "32"),
    "seed_tensorflow.py": ("30", "8", "512"),
}


@pytest.mark.parametrize("script", ["seed_tensorflow.py", *long("seed_lightning.py", "seed_pytorch.py")])
@pytest.mark.long
def test_a_script_of_the_guide_stops_at_a_checkpoint_and_resumes_to_its_end(
    trainings: TrainingYard, script: str
) -> None:
    epochs, batch, samples = SIZES[script]
    job = trainings.train(script, "--epochs", epochs, "--batch-size", batch, "--training-set-size", samples)
    trainings.wait_epochs(job, 1)
    assert trainings.preempt(job) == 2
    trainings.finish(job)
    assert trainings.attempt(job) == 2
    assert trainings.epochs_done(job) == int(epochs)
    first, second = (epochs_of(trainings.logs(job, "--attempt", number)) for number in ("1", "2"))
    assert first[0] == 1
    assert first[-1] <= second[0] <= first[-1] + 1, "it resumed from what it had saved last"
    counted = [epoch["number"] for epoch in trainings.training(job)["history"]]
    assert counted == second, "and the yard counts the epochs as its framework does"
    assert second == list(range(second[0], int(epochs) + 1)), "and did each of the others once"


def epochs_of(log: str) -> list[int]:
    """The epochs that an attempt's output tells of, as each framework writes it."""
    return [int(number) for number in re.findall(r"^[Ee]poch (\d+)(?: of |/)\d+", log, re.MULTILINE)]
