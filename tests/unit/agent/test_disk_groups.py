"""Do new files stay clear of what a packer deletes?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client

from jobyard.agent_protocol import disk_groups


def is_spread(directory: str) -> bool:
    """Raises OSError where the file system knows no such thing."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return bool(disk_groups._flags(descriptor) & disk_groups._TOP_OF_HIERARCHY)
    finally:
        os.close(descriptor)


def spread_or_skip(directory: Path) -> None:
    try:
        is_spread(str(directory))
    except OSError as error:
        pytest.skip(f"the file system of {directory} knows no such hint: {error}")
    disk_groups.spread(str(directory))
    if not is_spread(str(directory)):
        pytest.skip(f"the file system of {directory} does not take the hint")


def test_each_job_of_an_agent_lies_in_a_block_group_of_its_own(
    agent: AgentProcess, server: Client, tmp_path: Path
) -> None:
    spread_or_skip(tmp_path)
    server.run({"id": "j.0.1", "argv": ["true"]})
    assert is_spread(f"{agent.state}/jobs")
    assert not is_spread(f"{agent.state}/jobs/j"), "the files of one job stay together"


def test_a_hint_that_is_given_twice_changes_nothing_else(tmp_path: Path) -> None:
    jobs = tmp_path / "state" / "jobs"
    spread_or_skip(tmp_path)
    disk_groups.spread(str(jobs))
    (jobs / "j").mkdir()
    disk_groups.spread(str(jobs))
    assert is_spread(str(jobs))
    assert [path.name for path in jobs.iterdir()] == ["j"]
    assert jobs.stat().st_mode & 0o777 == 0o700


def test_a_file_system_that_knows_no_such_hint_is_no_error() -> None:
    disk_groups.spread("/proc/self")
    disk_groups.spread("/proc/nothing/can/be/made/here")
