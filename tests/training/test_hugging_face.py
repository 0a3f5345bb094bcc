"""A Hugging Face Trainer without a word about a yard."""

from __future__ import annotations

import re

import pytest

from tests.training.trainings import EPOCH_SECONDS, EXAMPLES, TrainingYard
from tests.waiting import until

# On a quick machine an epoch of the example is over in a moment, and its checkpoints are never quiet.
SLOW = """
import runpy, sys, time
from transformers import Trainer
step = Trainer.training_step
Trainer.training_step = lambda *given, **named: time.sleep(0.1) or step(*given, **named)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.long  # the test below reads a report as well
def test_a_trainer_with_no_yard_code_reports_its_progress_by_itself(trainings: TrainingYard) -> None:
    job = trainings.train("hf_trainer.py", "-e", "HF_HUB_OFFLINE=1")
    trainings.finish(job)
    told = trainings.training(job)
    assert told["percent"] == 100
    assert told["metrics"]["epoch"] == 3
    assert "begins with a new model" in trainings.logs(job)


def test_a_trainer_with_no_yard_code_is_ended_by_a_signal_and_resumes_from_its_last_save(
    trainings: TrainingYard,
) -> None:
    slow = trainings.work / trainings.write("slow.py", SLOW)
    words = (str(EXAMPLES / "hf_trainer.py"), "--epochs", "4")
    job = trainings.train(slow, "--preemptible", "-e", "HF_HUB_OFFLINE=1", arguments=words)
    until(lambda: "'loss':" in trainings.logs(job), EPOCH_SECONDS)
    assert trainings.preempt(job) == 2
    trainings.finish(job)
    (begin,) = re.findall(r"^begins with \S+/checkpoint-(\d+)$", trainings.logs(job), re.MULTILINE)
    assert int(begin) >= 32, "the 32 steps of an epoch, at least"
    assert f"ended after step {4 * 32} " in trainings.logs(job)
    assert trainings.training(job)["percent"] == 100
