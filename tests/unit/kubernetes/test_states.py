"""What pods and objects say of themselves."""

from __future__ import annotations

import pytest

from jobyard.kubernetes.channels import exit_code
from jobyard.kubernetes.states import has_condition, is_over, phase_of


@pytest.mark.parametrize(("phase", "over"), [("Succeeded", True), ("Failed", True), ("Running", False), ("", False)])
def test_a_pod_is_over_when_its_phase_says_so(phase: str, over: bool) -> None:
    pod = {"status": {"phase": phase} if phase else {}}
    assert (phase_of(pod), is_over(pod)) == (phase, over)
    assert not is_over({})


def test_only_a_condition_that_is_true_counts() -> None:
    conditions = [{"type": "Running", "status": "False"}, {"type": "Created", "status": "True"}]
    job = {"status": {"conditions": conditions}}
    assert (has_condition(job, "Created"), has_condition(job, "Running")) == (True, False)
    assert not has_condition({"status": {"conditions": None}}, "Created")
    assert not has_condition({}, "Created")


def test_the_exit_code_of_a_command_is_among_the_causes() -> None:
    causes = {"causes": [{"reason": "Other", "message": "x"}, {"reason": "ExitCode", "message": "3"}]}
    assert exit_code({"status": "Success"}) == 0
    assert exit_code({"status": "Failure", "details": causes}) == 3
    assert exit_code({"status": "Failure", "message": "no such program", "details": None}) is None
