"""A data-parallel run that is made smaller and larger while it trains. It checks inside itself what it is told."""

from __future__ import annotations

import json
from typing import Any

from tests.training.trainings import EPOCH_SECONDS, TrainingYard
from tests.waiting import until

EPOCHS = 30  # so many that it is not in its last one when a busy machine asks late


def test_two_processes_become_one_and_two_again_and_no_sample_is_missed_or_counted_twice(
    trainings: TrainingYard,
) -> None:
    arguments = ("--epochs", str(EPOCHS), "--step-seconds", "0.1")
    flags = ("--workers", "1..2", "--gpus", "1", "--epochs", str(EPOCHS), "-e", "GLOO_SOCKET_IFNAME=lo")
    job = trainings.train("elastic.py", *flags, arguments=arguments)
    trainings.ok("scale", job, "2")
    done = trainings.wait_epochs(job, 1)
    for size, number in ((1, 2), (2, 3)):
        trainings.ok("scale", job, str(size))
        until(lambda number=number: len(starts(trainings)) == number, EPOCH_SECONDS)  # type: ignore[misc]
        done = trainings.wait_epochs(job, done + 2)
    trainings.finish(job)

    told = starts(trainings)
    assert [start["world"] for start in told] == [2, 1, 2]
    assert [len(start["devices"]) for start in told] == [2, 1, 2]
    assert [start["resumed"] for start in told] == [False, True, True]
    assert told[0]["epochs_done"] == 0 < told[1]["epochs_done"] < told[2]["epochs_done"] < EPOCHS
    (counted,) = trainings.files("samples.json")
    samples = json.loads(counted.read_text())
    assert samples == {str(epoch): list(range(240)) for epoch in range(EPOCHS)}
    assert trainings.epochs_done(job) == EPOCHS


def starts(yard: TrainingYard) -> list[dict[str, Any]]:
    """What the run wrote down at each of its starts, having checked it."""
    return [json.loads(line) for path in yard.files("starts.jsonl") for line in path.read_text().splitlines()]
