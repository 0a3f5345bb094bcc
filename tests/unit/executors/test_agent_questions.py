"""Is an answer the whole answer, in however many pieces it comes?"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.played_agent import WELCOME, Wire
from tests.waiting import PATIENCE_SECONDS

from jobyard.executors.agent_link import AgentLink
from jobyard.executors.agent_questions import PIECES_MOST, AgentQuestions


async def answered_with(*messages: dict[str, Any]) -> Any:
    """What is found when these come after the question."""
    link = AgentLink({})
    link.open(cast(asyncio.StreamWriter, Wire()), WELCOME)
    questions = AgentQuestions(link)
    asking = asyncio.create_task(questions.ask({"op": "stored"}, "stored", PATIENCE_SECONDS))
    await asyncio.sleep(0)
    for message in messages:
        questions.answered({"ev": "stored", **message}, "jobs", "snapshots")
    return await asking


async def test_an_answer_in_pieces_is_joined() -> None:
    found = await answered_with(
        {"jobs": ["a", "b"], "snapshots": [], "more": True},
        {"jobs": ["c"], "snapshots": ["x"], "more": True},
        {"jobs": [], "snapshots": ["y"]},
        {"jobs": ["late"], "snapshots": []},
    )
    assert (found["jobs"], found["snapshots"]) == (["a", "b", "c"], ["x", "y"])


async def test_an_answer_without_end_is_taken_as_far_as_it_went() -> None:
    found = await answered_with(*[{"jobs": ["a"], "snapshots": [], "more": True}] * (2 * PIECES_MOST))
    assert found["jobs"] == ["a"] * PIECES_MOST


async def test_pieces_for_nobody_are_not_kept() -> None:
    link = AgentLink({})
    link.open(cast(asyncio.StreamWriter, Wire()), WELCOME)
    questions = AgentQuestions(link)
    questions.answered({"ev": "stored", "jobs": ["a"], "snapshots": [], "more": True}, "jobs", "snapshots")
    assert await questions.ask({"op": "stored"}, "stored", 0.001) is None
    asking = asyncio.create_task(questions.ask({"op": "stored"}, "stored", PATIENCE_SECONDS))
    await asyncio.sleep(0)
    questions.answered({"ev": "stored", "jobs": ["b"], "snapshots": []}, "jobs", "snapshots")
    assert await asking == {"ev": "stored", "jobs": ["b"], "snapshots": []}
