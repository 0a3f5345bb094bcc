"""`yard top`, by its keys: textual's pilot presses them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn
from tests.unit.client.views import NODE, a_chunk, a_job_view
from tests.waiting import PATIENCE_SECONDS
from textual.pilot import Pilot
from textual.widgets import DataTable, RichLog, Static

from jobyard.cli.top.app import LogScreen, TopApp
from jobyard.cli.top.looking import JobWords, in_order
from jobyard.client.api import YardClient
from jobyard.errors import Unreachable
from jobyard.model.job import State
from jobyard.wire.views import Counts, JobView, LogChunk, NodeView

TEN_STEPS = "".join(f"\r step {step}" for step in range(10))
JOBS = (
    a_job_view(id="j3", number=3, name="eval [b]", counts=Counts(total=9, running=9)),
    a_job_view(State.FAILED, id="j2", number=2, counts=Counts(total=9, failed=4, succeeded=5)),
    a_job_view(State.PENDING, id="j1", number=1, name="\x1b[2Jbig"),
)


class PlayedClient:
    """Answers from memory, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.cancelled: list[str] = []
        self.error: Exception | None = None
        self.lost_seconds = 0.0
        self.jobs: tuple[JobView, ...] = JOBS
        self.is_awaited = threading.Event()  # a call has come that waits
        self.may_answer = threading.Event()
        self.may_answer.set()

    def first_jobs(self, limit: int, **words: Any) -> tuple[tuple[JobView, ...], int]:
        self._wait()
        if self.error is not None:
            raise self.error
        self.asked.append(words)
        return self.jobs, 250 if self.jobs else 0

    def nodes(self) -> tuple[NodeView, ...]:
        return (NODE,)

    def logs(self, job: str, *, tail: int) -> Iterator[LogChunk]:
        self._wait()
        yield replace(a_chunk(f"{job} says\x1b[2J [red]hello\n{TEN_STEPS}\nloss 1\n"), task="4")

    def cancel(self, job: str, *, message: str) -> None:
        self.cancelled.append(job)

    def _wait(self) -> None:
        if not self.may_answer.is_set():
            self.is_awaited.set()
            self.may_answer.wait(PATIENCE_SECONDS)


class Screen:
    def __init__(self, app: TopApp, pilot: Pilot[None], client: PlayedClient) -> None:
        self._app = app
        self._pilot = pilot
        self.client = client

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        await self._app.workers.wait_for_complete()
        await self._pilot.pause()

    def column(self, number: int, table: str = "jobs") -> list[str]:
        found = self._app.screen.query_one(f"#{table}", DataTable)
        return [str(found.get_row_at(row)[number]) for row in range(found.row_count)]

    @property
    def ids(self) -> list[str]:
        return [str(key.value) for key in self._app.query_one("#jobs", DataTable).rows]

    @property
    def headers(self) -> list[str]:
        return [str(column.label) for column in self._app.query_one("#jobs", DataTable).ordered_columns]

    async def resize(self, columns: int, rows: int = 30) -> None:
        await self._pilot.resize_terminal(columns, rows)
        await self._pilot.pause()  # for what is drawn after the next refresh

    @property
    def rows(self) -> list[str]:
        """The window as a person sees it."""
        strips = self._app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def is_left(self) -> bool:
        return self._app._exit

    async def press_only(self, *keys: str) -> None:
        """What is asked of the yard then is not waited for."""
        await self._pilot.press(*keys)

    def look_again(self) -> None:
        """As the clock does it."""
        self._app._look_again()

    @property
    def said(self) -> str:
        return str(self._app.query_one("#said", Static).content)

    @property
    def log(self) -> list[str]:
        assert isinstance(self._app.screen, LogScreen)
        return [strip.text.rstrip() for strip in self._app.screen.query_one(RichLog).lines]


@asynccontextmanager
async def a_screen(columns: int = 120) -> AsyncIterator[Screen]:
    client = PlayedClient()
    app = TopApp(cast(YardClient, client), seconds=3600)
    async with app.run_test(size=(columns, 30)) as pilot:
        screen = Screen(app, pilot, client)
        await screen.settle()
        yield screen


@pytest.mark.parametrize("columns", [40, 160])
async def test_all_jobs_nodes_and_gpus_stand_there(columns: int) -> None:
    async with a_screen(columns) as screen:
        assert screen.ids == ["j3", "j2", "j1"]
        assert screen.column(1) == ["eval [b]", "train", "big"], "nothing steers the terminal, and nothing is markup"
        assert screen.column(0, "nodes") == ["here"]
        assert screen.column(-1, "devices") == (["H100 (fake)"] if columns == 160 else ["-"]), "NAME is spare"
        assert screen.said == "3 jobs and 247 more, newest first"


async def test_a_narrow_terminal_has_what_goes_on_and_does_without_spare_columns() -> None:
    async with a_screen(60) as screen:
        assert screen.headers == ["JOB", "NAME", "STATE", "DONE", "FAILED", "ETA", "WHAT"]
        await screen.resize(160)
        assert len(screen.headers) == 10


async def test_of_a_window_of_few_rows_the_jobs_have_most() -> None:
    async with a_screen() as screen:
        seen: dict[int, list[bool]] = {}
        for rows in (30, 12, 8, 3, 1, 30):
            await screen.resize(80, rows)
            text = "\n".join(screen.rows)
            seen[rows] = [word in text for word in ("eval [b]", "NAME", "q quit", "EXECUTOR", "H100")]
            assert len(screen.rows) == rows
        assert seen == {
            30: [True] * 5,
            12: [True, True, True, True, False],
            8: [True, True, True, False, False],
            3: [True, True, False, False, False],
            1: [True, False, False, False, False],
        }


@pytest.mark.parametrize("rows", [1, 3, 8, 24])
async def test_the_question_is_seen_in_every_window(rows: int) -> None:
    async with a_screen() as screen:
        await screen.press("c")
        await screen.resize(60, rows)
        assert "y cancels job 3 (eval [b]), n does not" in "".join(screen.rows)
        await screen.press("y")
        assert screen.client.cancelled == ["j3"]


async def test_a_window_of_one_row_has_a_line_of_the_log() -> None:
    async with a_screen() as screen:
        await screen.press("l")
        await screen.resize(60, 1)
        assert screen.rows == ["4| j3 says [red]hello"]


async def test_who_is_at_the_first_row_sees_new_jobs_and_no_other_choice_moves() -> None:
    async with a_screen() as screen:
        new = a_job_view(id="j4", number=4)
        screen.client.jobs = (new, *JOBS)
        await screen.press("escape", "l")
        assert screen.log[0].startswith("j4 says")
        await screen.press("escape", "down", "l")
        assert screen.log[0].startswith("4| j3 says")
        screen.client.jobs = (a_job_view(id="j5", number=5), new, *JOBS)
        await screen.press("escape", "escape", "l")
        assert screen.log[0].startswith("4| j3 says")


async def test_what_goes_on_is_looked_at_behind_a_log() -> None:
    async with a_screen() as screen:
        await screen.press("l")
        screen.client.jobs = JOBS[:1]
        screen.look_again()
        await screen.settle()
        await screen.press("escape")
        assert screen.ids == ["j3"]


async def test_of_a_long_output_the_end_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.cli.top.app.LINES_MOST", 2)
    async with a_screen() as screen:
        await screen.press("l")
        assert screen.log == ["4|  step 9", "4| loss 1"]


async def test_s_sorts_and_the_chosen_job_stays_chosen() -> None:
    async with a_screen() as screen:
        await screen.press("down", "s")  # job j2
        assert (screen.ids, screen.said) == (["j1", "j3", "j2"], "3 jobs and 247 more, state")
        await screen.press("s", "l")
        assert screen.log[0].startswith("4| j2 says")


async def test_the_server_looks_for_the_words_that_are_typed() -> None:
    async with a_screen() as screen:
        await screen.press("slash", *"ev", "enter")
        assert screen.client.asked[-1] == {"all": True, "state": None, "user": None, "name": "*ev*"}
        assert screen.said == "3 jobs and 247 more: ev, newest first"
        await screen.press("escape", "slash", "at", *"ben", "enter")
        assert screen.client.asked[-1] == {"all": True, "state": None, "user": "ben", "name": None}
        await screen.press("escape")
        assert screen.client.asked[-1] == {"all": False, "state": None, "user": None, "name": None}


async def test_l_shows_what_a_job_wrote_and_escape_leads_back() -> None:
    async with a_screen() as screen:
        await screen.press("enter")
        assert screen.log == ["4| j3 says [red]hello", "4|  step 9", "4| loss 1"], "a progress bar is one line"
        await screen.press("escape", "down", "down", "l")
        assert screen.log[0] == "j1 says [red]hello", "a job of one task needs no label"


async def test_c_cancels_only_after_y_and_never_what_has_ended() -> None:
    async with a_screen() as screen:
        await screen.press("c", "n")
        assert screen.client.cancelled == []
        await screen.press("c", "y")
        assert screen.client.cancelled == ["j3"]
        await screen.press("down", "c", "y")
        assert screen.client.cancelled == ["j3"], "it has failed already"


async def test_a_yard_that_does_not_answer_is_told_and_asked_again() -> None:
    async with a_screen() as screen:
        screen.client.error = Unreachable("no yard answers")
        await screen.press("escape")
        assert (screen.said, screen.ids) == ("no yard answers", ["j3", "j2", "j1"])
        screen.client.error = None
        await screen.press("escape")
        assert screen.said.startswith("3 jobs")


@pytest.mark.parametrize("keys", [[], ["c"], ["l"], ["slash", "x"]])
async def test_ctrl_c_quits_wherever_it_is_pressed(keys: list[str]) -> None:
    async with a_screen() as screen:
        await screen.press(*keys)
        await screen.press_only("ctrl+c")
        assert screen.is_left


async def test_without_jobs_it_says_how_one_is_made_and_by_which_words_none_is_found() -> None:
    async with a_screen() as screen:
        screen.client.jobs = ()
        await screen.press("escape")
        assert (screen.said, screen.ids) == ("no jobs; `yard run -- CMD` makes one", [])
        await screen.press("l", "c")  # there is nothing to look at or to cancel
        await screen.press("slash", *"running", "space", "at", *"ann", "enter")
        assert screen.said == "no jobs: running @ann; escape shows all"


async def test_a_server_that_keeps_us_waiting_is_asked_once_and_told_of() -> None:
    async with a_screen() as screen:
        screen.client.may_answer.clear()
        screen.look_again()
        await asyncio.to_thread(screen.client.is_awaited.wait)
        screen.client.lost_seconds = 12.0
        screen.look_again()
        assert screen.said == "the server has not answered for 12s; trying again"
        screen.client.may_answer.set()
        await screen.settle()
        assert len(screen.client.asked) == 2
        assert screen.said == "3 jobs and 247 more, newest first"


async def test_the_program_ends_although_a_call_still_waits() -> None:
    async with a_screen() as screen:
        screen.client.may_answer.clear()
        screen.look_again()
        await asyncio.to_thread(screen.client.is_awaited.wait)
        await screen.press_only("q")
        assert screen.is_left
    waiting = [thread for thread in threading.enumerate() if thread.name == "ask"]
    assert [thread.daemon for thread in waiting] == [True]
    screen.client.may_answer.set()
    for thread in waiting:
        thread.join()


async def test_the_log_may_be_left_before_it_has_come() -> None:
    async with a_screen() as screen:
        screen.client.may_answer.clear()
        await screen.press_only("l")
        await asyncio.to_thread(screen.client.is_awaited.wait)
        await screen.press_only("escape")
        screen.client.may_answer.set()
        await screen.press("s")
        assert screen.said == "3 jobs and 247 more, state"


def test_words_are_a_state_a_user_or_a_part_of_the_name() -> None:
    assert JobWords.parse("  ") == JobWords()
    assert JobWords.parse("Running @ann lr 0.1") == JobWords("RUNNING", "ann", "*lr*0.1*")


@pytest.mark.parametrize(
    ("order", "ids"),
    [("failures first", "j2 j3 j1"), ("longest first", "j3 j1 j2"), ("name", "j1 j3 j2"), ("newest first", "j3 j2 j1")],
)
def test_jobs_stand_in_the_order_that_is_asked_for(order: str, ids: str) -> None:
    assert [job.id for job in in_order(JOBS[::-1], order)] == ids.split()


def test_top_needs_a_terminal_but_for_json(yard: Yard, stand_in: StandIn) -> None:
    refused = yard("top")
    assert (refused.code, "it needs a terminal" in refused.err) == (2, True)
    stand_in.on("GET /jobs", Said(data=JOBS, headers={"Yard-Total": "250"}))
    stand_in.on("GET /nodes", Said(data=(NODE,)))
    assert '"total": 250' in yard("top", "-o", "json").out
