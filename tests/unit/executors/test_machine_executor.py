"""A machine of the server's own account: what came with a token is never sent to its agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders import a_job
from tests.waiting import PATIENCE_SECONDS

from jobyard.executors.machines import MachineExecutor
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.effects import Launch
from jobyard.model.events import AttemptsWithdrawn
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Slot


@pytest.mark.parametrize(
    ("owner_only", "token", "is_sent"), [(True, "t1", False), (True, "", True), (False, "t1", True)]
)
async def test_the_servers_own_account_starts_nothing_that_came_with_a_token(
    owner_only: bool, token: str, is_sent: bool
) -> None:
    """It may have been placed there by a server that ran tasks as another user."""
    job = SubmittedJob("j1", 1, a_job(workdir="/tmp", submitted_with=token))
    yard: Any = SimpleNamespace(job=lambda _: job, resumes_at=lambda *_: None, inherited_env=lambda _: {})
    transport: Any = SimpleNamespace(address="", sees_us_as="", build="")
    executor = MachineExecutor("local", "here", transport, yard, {}, Path("/tmp"), owner_only=owner_only)
    sent: list[bytes] = []
    writer: Any = SimpleNamespace(write=sent.append)
    executor._link.open(writer, {"pid": 1, "build": ""})
    attempt = AttemptId("j1", 0, 1)
    slot = Slot("s1", "j1", 0, Placement("here", Resources(1000)))
    executor.perform([Launch("here", slot, (attempt,))])
    assert bool(sent) is is_sent
    if not is_sent:
        async with asyncio.timeout(PATIENCE_SECONDS):
            (event,) = await anext(aiter(executor.observations()))
        assert isinstance(event, AttemptsWithdrawn)
        assert event.attempts == (attempt,)
