"""The fake machine reads a few words of bash; what it promises is asked in tests/conformance."""

from __future__ import annotations

import pytest

from jobyard.errors import UserError
from jobyard.executors.fake import FakeExecutor, _steps
from jobyard.executors.machines import MachineExecutor
from jobyard.executors.registry import executor_class


def test_executors_are_found_by_name() -> None:
    assert executor_class("fake") is FakeExecutor
    assert executor_class("local") is MachineExecutor
    with pytest.raises(UserError, match=r"no executor 'k8'; known: fake, .*local"):
        executor_class("k8")


@pytest.mark.parametrize(
    ("argv", "steps"),
    [
        (["exit", "3"], [["exit", "3"]]),
        (["bash", "-c", "echo 'a b'; exit 3"], [["echo", "a b"], ["exit", "3"]]),
        (["bash", "-c", "trap '' TERM; sleep 60"], [["trap", "", "TERM"], ["sleep", "60"]]),
        (["bash", "-c", "echo oh >&2"], [["echo", "oh", ">&2"]]),
        (["bash", "-c", "kill -9 $$"], [["kill", "-9", "$$"]]),
    ],
)
def test_a_command_is_a_list_of_steps(argv: list[str], steps: list[list[str]]) -> None:
    assert _steps(argv) == steps
