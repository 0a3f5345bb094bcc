"""App of `yard top`: all jobs, nodes and GPUs, live; sort, filter, logs, cancel."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, RichLog, Static

from jobyard.cli.output.harmless import harmless, shown_lines
from jobyard.cli.output.job_rows import JOB_HEADERS, SPARE_JOB_HEADERS, job_row
from jobyard.cli.output.node_rows import (
    DEVICE_HEADERS,
    NODE_HEADERS,
    SPARE_DEVICE_HEADERS,
    SPARE_NODE_HEADERS,
    device_rows,
    node_row,
)
from jobyard.cli.output.summary import title
from jobyard.cli.output.table import columns_that_fit
from jobyard.cli.output.text import Painted, width
from jobyard.cli.top.asking import in_thread
from jobyard.cli.top.looking import ORDERS, JobWords, Look, in_order, look
from jobyard.client.api import YardClient
from jobyard.errors import YardError
from jobyard.model.units import show_seconds
from jobyard.wire.views import JobView

LOG_LINES = 500  # of each task, at most
LINES_MOST = 2000  # of all tasks: a terminal is scrolled through by hand
CHUNKS_MOST = 200
Row = tuple[str, Sequence[str]]  # its key, and its cells
LOOK = "look"  # the workers that look
NO_JOBS = "no jobs; `yard run -- CMD` makes one"


class CancelQuestion(ModalScreen[bool]):
    """Shall this job be cancelled? Only y says so."""

    CSS = """
    CancelQuestion { align: center middle; }
    #question { padding: 1 2; border: solid $error; width: auto; max-width: 90%; }
    .-one-row #question, .-jobs-only #question { padding: 0; border: none; max-width: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "answer(True)"), Binding("n,escape,q", "answer(False)")]

    def __init__(self, job: JobView) -> None:
        super().__init__()
        self._job = job

    def compose(self) -> ComposeResult:
        yield Static(Text(f"y cancels {title(self._job)}, n does not"), id="question")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class LogScreen(ModalScreen[None]):
    """The end of what the tasks of a job wrote; r reads it again."""

    CSS = "LogScreen.-one-row Static, LogScreen.-one-row Footer { display: none; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,l", "dismiss", "back"),
        Binding("r", "read", "read again"),
    ]

    def __init__(self, client: YardClient, job: JobView) -> None:
        super().__init__()
        self._client = client
        self._job = job

    def compose(self) -> ComposeResult:
        yield Static(Text(f"{title(self._job)}: the last lines", "bold"))
        yield RichLog(id="log", markup=False, wrap=False)
        yield Footer()

    def on_mount(self) -> None:
        self.action_read()

    @work(exclusive=True)
    async def action_read(self) -> None:
        try:
            lines = await in_thread(lambda: list(deque(self._lines(), maxlen=LINES_MOST)))
        except YardError as error:
            lines = [str(error)]
        self._show(lines)

    def _lines(self) -> Iterator[str]:
        is_single = self._job.counts.total == 1
        chunks = self._client.logs(self._job.id, tail=LOG_LINES)
        for _, chunk in zip(range(CHUNKS_MOST), chunks, strict=False):
            before = "" if is_single else f"{chunk.task}| "
            yield from (f"{before}{line}" for line in shown_lines(chunk.damage or chunk.data))

    def _show(self, lines: Sequence[str]) -> None:
        log = self.query_one(RichLog)
        log.clear()
        for line in lines or ["nothing was written yet"]:
            log.write(Text(line))


class TopApp(App[None]):
    """Looks again every few seconds; what is done to a job is asked of the server in a thread."""

    CSS = """
    #said { height: 1; }
    #jobs { height: 1fr; }
    #nodes, #devices { height: auto; max-height: 30%; }
    #devices.-none { display: none; }
    DataTable { scrollbar-size-horizontal: 0; }
    #words { display: none; height: 1; border: none; padding: 0 1; }
    #words.-open { display: block; }
    .-jobs-only #nodes, .-one-row #nodes, .-jobs-only #devices, .-without-gpus #devices, .-one-row #devices,
    .-one-row #said, .-one-row Footer { display: none; }
    """
    # Of a window of few rows the jobs have most.
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012 (textual declares it so)
        (0, "-one-row"),
        (4, "-jobs-only"),
        (9, "-without-gpus"),
        (14, "-whole"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("s", "sort", "sort"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("l,enter", "logs", "logs"),
        Binding("c", "cancel", "cancel"),
        Binding("escape", "show_all", "all", show=False),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, client: YardClient, seconds: float = 2.0) -> None:
        super().__init__()
        self._client = client
        self._seconds = seconds
        self._words = JobWords()
        self._order = next(iter(ORDERS))
        self._seen: Look | None = None  # nothing yet

    def compose(self) -> ComposeResult:
        yield Static(id="said")
        yield DataTable[Text](id="jobs", cursor_type="row", cursor_foreground_priority="renderable")
        yield DataTable[Text](id="nodes", cursor_type="none")
        yield DataTable[Text](id="devices", cursor_type="none")
        yield Input(id="words", placeholder="a state, @user, or a part of the name; empty: all")
        yield Footer()

    def on_mount(self) -> None:
        self._table("jobs").focus()
        self.set_interval(self._seconds, self._look_again)
        self._look()

    def on_resize(self, event: Resize) -> None:
        self._table("jobs").show_header = event.size.height > 1
        self.call_after_refresh(self._show)

    # -- keys -------------------------------------------------------------------------------------------------------

    def action_sort(self) -> None:
        names = list(ORDERS)
        self._order = names[(names.index(self._order) + 1) % len(names)]
        self._show()

    def action_filter(self) -> None:
        words = self.query_one("#words", Input)
        words.add_class("-open")
        words.focus()

    def action_show_all(self) -> None:
        self.query_one("#words", Input).value = ""
        self._choose("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._choose(event.value)

    def on_data_table_row_selected(self) -> None:
        """The key Enter on a job."""
        self.action_logs()

    def action_logs(self) -> None:
        if (job := self._chosen()) is not None:
            self.push_screen(LogScreen(self._client, job))

    def action_cancel(self) -> None:
        job = self._chosen()
        if job is None or job.state.is_final:
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._cancel(job)

        self.push_screen(CancelQuestion(job), answered)

    # -- the yard ---------------------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Unless the last look still waits for a server that does not answer: then that is said."""
        if any(worker.group == LOOK and not worker.is_finished for worker in self.workers):
            if lost := self._client.lost_seconds:
                self._say(f"the server has not answered for {show_seconds(lost)}; trying again", "yellow")
        else:
            self._look()

    @work(exclusive=True, group=LOOK)
    async def _look(self) -> None:
        words = self._words
        try:
            self._seen = await in_thread(lambda: look(self._client, words))
        except YardError as error:
            self._say(str(error), "yellow")
        else:
            self._show()

    @work(group="cancel")
    async def _cancel(self, job: JobView) -> None:
        try:
            await in_thread(lambda: self._client.cancel(job.id, message="in yard top"))
        except YardError as error:
            self._say(str(error), "yellow")
        else:
            self._look()

    def _choose(self, text: str) -> None:
        self._words = JobWords.parse(text)
        self.query_one("#words", Input).remove_class("-open")
        self._table("jobs").focus()
        self._look()

    def _chosen(self) -> JobView | None:
        table = self._table("jobs")
        if not table.row_count:
            return None
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value
        return next((job for job in (self._seen.jobs if self._seen else ()) if job.id == key), None)

    # -- the screen -------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        seen = self._seen
        if seen is None:
            return
        # Who is at the first row sees what is new; any other job that was chosen stays so, wherever it is now.
        chosen = self._chosen() if self._table("jobs").cursor_row else None
        jobs = in_order(seen.jobs, self._order)
        self._fill("jobs", JOB_HEADERS, [(job.id, job_row(job)) for job in jobs], SPARE_JOB_HEADERS)
        self._fill("nodes", NODE_HEADERS, [(node.id, node_row(node)) for node in seen.nodes], SPARE_NODE_HEADERS)
        devices = [row for node in seen.nodes for row in device_rows(node)]
        self._fill("devices", DEVICE_HEADERS, [(" ".join(row[:2]), row) for row in devices], SPARE_DEVICE_HEADERS)
        self._table("devices").set_class(not devices, "-none")
        if chosen is not None:
            self._table("jobs").move_cursor(row=next(i for i, job in enumerate(jobs) if job.id == chosen.id))
        self._say(self._summary(seen))

    def _summary(self, seen: Look) -> str:
        if not seen.jobs:
            return f"no jobs: {self._words}; escape shows all" if self._words.are_any else NO_JOBS
        count = len(seen.jobs)
        more = f" and {seen.total - count} more" if seen.total > count else ""
        only = f": {self._words}" if self._words.are_any else ""
        return f"{count} job{'' if count == 1 else 's'}{more}{only}, {self._order}"

    def _say(self, sentence: str, colour: str = "") -> None:
        self.query_one("#said", Static).update(Text(harmless(sentence), f"bold {colour}", no_wrap=True))

    def _fill(self, name: str, headers: Sequence[str], rows: Sequence[Row], spare: Sequence[str]) -> None:
        """With the columns that fit; what is wider can be scrolled to."""
        cells = [row for _, row in rows]
        widths = [max(width(harmless(cell)) for cell in column) for column in zip(headers, *cells, strict=True)]
        shown = columns_that_fit(headers, widths, self.size.width, spare)
        table = self._table(name)
        left, top = table.scroll_offset
        if [str(column.label) for column in table.ordered_columns] != [headers[index] for index in shown]:
            table.clear(columns=True)
            table.add_columns(*(headers[index] for index in shown))
        else:
            table.clear()
        for key, row in rows:
            table.add_row(*(_cell(row[index]) for index in shown), key=key)
        table.scroll_to(left, top, animate=False)

    def _table(self, name: str) -> DataTable[Text]:
        return self.query_one(f"#{name}", DataTable)


def _cell(text: str) -> Text:
    return Text(harmless(text), (text.colour or "") if isinstance(text, Painted) else "")
