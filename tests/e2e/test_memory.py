"""Memory that was asked for is a limit: over it a task ends, and is tried again with more."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from jobyard.agent.execution.memory_groups import MODE
from tests.yards import TemporaryYard

TAKE = (
    f"{sys.executable} -c 'import sys, time; held = b\"x\" * (int(sys.argv[1]) << 20); time.sleep(float(sys.argv[2]))'"
)


@pytest.fixture(scope="module", params=["watch", "cgroup"])
def limiting(request: pytest.FixtureRequest) -> Iterator[TemporaryYard]:
    """Where no cgroup can be had, the second is the first again."""
    with TemporaryYard(**{MODE: request.param}) as yard:
        yield yard


@pytest.fixture
def yard(limiting: TemporaryYard) -> Iterator[TemporaryYard]:
    yield limiting
    limiting.settle()


def test_a_task_over_its_memory_is_tried_again_with_more_until_it_fits(yard: TemporaryYard) -> None:
    done = yard.run("run", "--mem", "100M", "--", f"{TAKE} 300 2")
    assert done.code == 0
    (task,) = yard.tasks(yard.job()["id"])
    assert task["attempt"] in (2, 3)  # twice as much each time: as it had, or as it was seen with


def test_each_way_to_hold_a_limit_is_tested(yard: TemporaryYard) -> None:
    seen = yard.ok("run", "--mem", "100M", "--", "cat /proc/self/cgroup").out
    assert "jobyard-" not in seen or yard.env[MODE] == "cgroup"


def test_the_limit_can_be_left_out(yard: TemporaryYard) -> None:
    assert yard.run("run", "--mem", "100M", "--mem-limit", "off", "--", f"{TAKE} 300 2").code == 0
    assert [task["attempt"] for task in yard.tasks(yard.job()["id"])] == [1]
    yard.write("batch.txt", f"#YARD --mem 100M --mem-limit off\n{TAKE} 300 2\n")
    assert yard.run("run", "batch.txt").code == 0
    assert [task["attempt"] for task in yard.tasks(yard.job()["id"])] == [1]


def test_a_manifest_asks_for_a_limit_as_the_flag_does(yard: TemporaryYard) -> None:
    manifest = f"name: taker\ncommand: |\n  {TAKE} 300 2\nresources:\n  memory: 250M\n"
    yard.write("job.yaml", manifest)
    assert yard.run("run", "job.yaml").code == 0
    assert [task["attempt"] for task in yard.tasks(yard.job()["id"])] == [2]
    yard.write("job.yaml", manifest + "  memory_limit: false\n")
    assert yard.run("run", "job.yaml").code == 0
    assert [task["attempt"] for task in yard.tasks(yard.job()["id"])] == [1]


def test_a_limit_without_an_amount_is_refused(yard: TemporaryYard) -> None:
    refused = yard.run("run", "--mem-limit", "on", "--", "true")
    assert refused.code == 2
    assert "--mem-limit: no amount of memory was asked for that could be a limit" in refused.err
    refused = yard.run("run", "--mem-limit", "perhaps", "--", "true")
    assert refused.code == 2
    assert "'perhaps' is neither on nor off" in refused.err
