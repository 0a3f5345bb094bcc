"""Stopped and resumed is the same as never stopped."""

from __future__ import annotations

import re

from tests.training.trainings import EXAMPLES, TrainingYard


def test_three_preemptions_change_no_bit_of_the_final_loss(trainings: TrainingYard) -> None:
    # Attempts that are to be stopped are slow enough to be met in the middle; the pace is no part of what it computes.
    command = f"{trainings.python} {EXAMPLES / 'exact.py'} --epochs 10"
    paced = f"pace=0; [ $YARD_ATTEMPT -gt 3 ] || pace=0.25; exec {command} --step-seconds $pace"
    stopped = trainings.submit("--cpus", "0", "-e", "OMP_NUM_THREADS=1", "--epochs", "10", "--", paced)
    done = 0
    for attempt in (2, 3, 4):
        done = trainings.wait_epochs(stopped, done + 1)
        assert trainings.preempt(stopped) == attempt
    trainings.finish(stopped)
    whole = trainings.train("exact.py", "--epochs", "10", arguments=("--epochs", "10"))
    trainings.finish(whole)
    assert trainings.attempt(stopped) == 4
    assert trainings.attempt(whole) == 1
    assert final_loss(trainings, stopped) == final_loss(trainings, whole)
    # Each of the ten epochs was done once, in one of the four attempts.
    losses = [loss for attempt in "1234" for loss in epochs(trainings.logs(stopped, "--attempt", attempt))]
    assert losses == epochs(trainings.logs(whole))
    assert [number for number, _ in losses] == [str(number) for number in range(1, 11)]


def final_loss(yard: TrainingYard, job: str) -> str:
    (loss,) = re.findall(r"^final loss (\S+)$", yard.logs(job), re.MULTILINE)
    return str(loss)


def epochs(log: str) -> list[tuple[str, str]]:
    return re.findall(r"^epoch (\d+) loss (\S+)$", log, re.MULTILINE)
