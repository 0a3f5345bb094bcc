"""POST /jobs without HTTP: what it takes, refuses and leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobyard.errors import KeyInUse, UserError
from jobyard.model.job import Dependency, JobSpec
from jobyard.model.node import NodeConfig
from jobyard.server.from_token import NOTHING_SENT
from jobyard.server.rights import Caller, TokenKind
from jobyard.server.routes.submit import submit_job
from jobyard.wire.requests import SubmitJob
from tests.builders import with_words
from tests.unit.server.running import NODE, RunningYard, a_batch, a_request, a_yard

BOB, EVE = (Caller(name, token, TokenKind.MEMBER) for name, token in (("bob", "t1"), ("eve", "t2")))
SHELL = {"SECRET": "of the shell"}
FAR = NodeConfig("far", "far.example")


def an_empty_directory(beside: Path) -> str:
    """Where a job is submitted that may go to another machine: its files would go along."""
    directory = beside / "work"
    directory.mkdir()
    return str(directory)


async def submitted(yard: RunningYard, spec: JobSpec, caller: Caller | None = None, **asked: Any) -> Any:
    """What the caller is answered; the machine takes everybody's jobs."""
    return json.loads(bytes((await submit_job(a_request(yard, caller), SubmitJob(spec, **asked))).body))


async def test_a_refused_submit_leaves_no_environment(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        with pytest.raises(UserError, match="no node 'mars'"):
            await submitted(yard, a_batch("true", on="mars", inherited_env=SHELL))
        assert list((tmp_path / "environments").iterdir()) == []
        view = await submitted(yard, a_batch("true", inherited_env=SHELL))
        assert len(list((tmp_path / "environments").iterdir())) == 1
        await yard.ended(view["id"])


async def test_a_key_is_its_callers_own(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        spec = a_batch("true")
        jobs = [(await submitted(yard, spec, caller, key="once"))["id"] for caller in (None, BOB, EVE) * 2]
        assert jobs[:3] == jobs[3:]
        assert len({*jobs}) == 3


async def test_a_key_with_another_spec_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        first = await submitted(yard, a_batch("true", inherited_env=SHELL), key="once")
        with pytest.raises(
            KeyInUse, match=f"key 'once' has made job {first['number']} of another spec; choose another"
        ):
            await submitted(yard, a_batch("false"), key="once")
    async with a_yard(tmp_path) as yard:
        with pytest.raises(KeyInUse):
            await submitted(yard, a_batch("false"), key="once")
        again = await submitted(yard, a_batch("true", user="another shell", notes=("told",)), key="once")
        assert again["id"] == first["id"]
        assert len(yard.loop.state.jobs) == 1


async def test_a_repeated_submit_is_answered_with_its_job_whatever_has_changed(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        yard.loop.state.places.configs["far"] = FAR
        needed = await yard.submit("sleep 60")
        spec = a_batch("true", after=(Dependency(needed),), workdir=an_empty_directory(tmp_path))
        first = await submitted(yard, spec, key="once")
        await yard.cancel(needed, force=True)
        await yard.ended(needed)
        with pytest.raises(UserError, match="would never start"):
            await submitted(yard, spec)
        assert (await submitted(yard, spec, key="once"))["id"] == first["id"]
        with pytest.raises(KeyInUse):
            await submitted(yard, a_batch("false"), key="once")


async def test_a_repeated_submit_needs_no_node(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        first = await submitted(yard, a_batch("true"), key="once")
        await yard.ended(first["id"])
        yard.loop.remove(NODE)
        with pytest.raises(UserError, match="no machine and no cluster"):
            await submitted(yard, a_batch("true"))
        assert (await submitted(yard, a_batch("true"), key="once"))["id"] == first["id"]


async def test_a_view_shows_what_the_submitter_asked_and_nothing_that_the_server_chose(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        yard.loop.state.places.configs["far"] = FAR
        spec = a_batch("true", workdir=an_empty_directory(tmp_path))
        owners = await submitted(yard, spec)
        assert yard.job(owners["id"]).spec.staging.snapshot, "its files go along"
        bobs = await submitted(yard, spec, BOB)
        assert (yard.job(bobs["id"]).spec.staging.snapshot, bobs["notes"]) == ("", [NOTHING_SENT])
        assert [each["asked"] for each in (owners, bobs)] == [{}, {}]
        named = await submitted(yard, with_words(spec, copy_back=("out",)))
        assert named["asked"] == {"staging.copy_back": ["out"]}
