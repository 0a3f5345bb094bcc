"""The original KubeProfiler library, which posts to hosts that it knows and leaves with 0 when it is told to stop."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.marks import long
from tests.training.trainings import TrainingYard
from tests.yards import until

SCRIPT = Path(__file__).with_name("original_script.py")
WAYS = {
    "by its constructor's hosts": ("", " $YARD_REPORT_ADDRESS"),
    "by http_proxy": ("http_proxy=http://$YARD_REPORT_ADDRESS ", ""),
}
FIRST, SECOND = WAYS


@pytest.mark.parametrize("way", [FIRST, *long(SECOND)])
def test_its_exit_0_after_a_stop_request_is_a_preemption_and_it_resumes_to_its_end(way: str) -> None:
    before, after = WAYS[way]
    with TrainingYard(sys.executable) as yard:
        state = yard.work / "state"
        command = f"{before}{sys.executable} {SCRIPT} {state}{after}"
        sizes = ("--epochs", "6", "--batch-size", "8", "--training-set-size", "1024")
        job = yard.submit("--cpus", "0", *sizes, "--", command)
        yard.wait_epochs(job, 2)
        yard.ok("cancel", "--checkpoint", job)
        until(lambda: yard.files("*.stop"))
        Path(f"{state}.go").touch()
        yard.finish(job)
        assert yard.attempt(job) == 2
        assert yard.epochs_done(job) == 6
        assert yard.logs(job, "--attempt", "1") == "begins with 0 epochs saved, told 0\n"
        assert yard.logs(job, "--attempt", "2") == "begins with 3 epochs saved, told 3\ntrained to its end\n"


def test_its_exit_0_without_a_stop_request_is_success() -> None:
    with TrainingYard(sys.executable) as yard:
        state = yard.work / "state"
        Path(f"{state}.go").touch()
        command = f"{sys.executable} {SCRIPT} {state} $YARD_REPORT_ADDRESS"
        sizes = ("--epochs", "3", "--batch-size", "8", "--training-set-size", "64")
        job = yard.submit("--cpus", "0", *sizes, "--", command)
        yard.finish(job)
        assert yard.attempt(job) == 1
        assert yard.epochs_done(job) == 3
