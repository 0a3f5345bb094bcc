"""Following a job: how is it watched to its end? What `yard run` does after the submit, and `attach` and `wait`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from jobyard.cli.feed import Feed, StreamBroken, StreamEnded
from jobyard.cli.interrupts import Interrupts, suspend, told_of_suspend
from jobyard.cli.keys import Keys
from jobyard.cli.output.joblog import JoblogFile
from jobyard.cli.output.json import print_json
from jobyard.cli.output.pipe import nobody_reads
from jobyard.cli.output.plain import BarDisplay, PlainDisplay, QuietDisplay, counts_progress
from jobyard.cli.output.summary import exit_code_of, output_line, title
from jobyard.cli.output.tasklog import DamageNotes, DirectLog, LogWriter, MarkedLog, MergedLog
from jobyard.cli.output.text import draws, say
from jobyard.cli.results_directory import Kept, ResultsDirectory
from jobyard.cli.session import Session
from jobyard.client.api import YardClient
from jobyard.model.job import Reason, State
from jobyard.wire.views import EndingView, JobView, LogChunk, TaskView

INTERRUPTED = 130
TICK_SECONDS = 0.5
TASKS_SECONDS = 1.0  # between two looks at what runs
RUNNING_MOST = 50  # tasks of a look: no terminal has many more lines
FAILED_MOST = 5
HINT = "q leaves, c cancels"
NO_IMAGE_SECONDS = 30.0  # a kubelet has tried three times by then
LAST_OUTPUT_SECONDS = 30.0  # after the end of a job, so long without any output means that no more will come
VERBS = {"logs": "logs", "joblog": "joblog", "results": "fetch"}  # what brings the rest of a stream later


@dataclass(frozen=True)
class HungUp:
    signal: int


@dataclass(frozen=True)
class Killed:
    """The second Ctrl-C was acknowledged."""


@dataclass(frozen=True)
class Left:
    """The person pressed q: the job goes on."""

    job: JobView  # as it was last seen


@dataclass(frozen=True)
class Suspended:
    """Ctrl-Z in the live view."""


@dataclass(frozen=True)
class Interrupted:
    """Ctrl-C, where it leaves the job alone."""

    job: JobView  # as it was last seen


class Pressed(NamedTuple):
    key: str


class TasksSeen(NamedTuple):
    running: Sequence[TaskView]
    failed: Sequence[TaskView]


Stopped = HungUp | Killed | Left | Interrupted  # why a job is not followed any more, other than by its end


@dataclass(frozen=True)
class FollowOptions:
    is_quiet: bool = False
    pass_exit_code: bool = False
    is_merged: bool = False  # the output of several tasks is shown too, each line after its task
    joblog: JoblogFile | None = None  # gets a line for each task that ends
    results: ResultsDirectory | None = None  # gets the output of each task that ends
    is_cat: bool = False  # the plain output of all tasks, one after another, as `yard cat`
    has_bar: bool = False  # how far it is stands on stderr, beside output that is printed
    needs_image_soon: bool = False  # fail soon if it cannot be pulled: it was built just now
    is_older: bool = False  # it was submitted before: its output is not shown, and no submit is told of


def run_to_end(session: Session, submit: Callable[[], JobView], options: FollowOptions) -> int:
    """Submit, follow, sum up; the exit code. Ctrl-C cancels the job, twice kills it; a hang-up leaves it running."""
    client, feed = session.client, Feed()
    job: JobView | None = None

    def pressed(times: int) -> None:
        if job is not None:
            _cancel(client, feed, job, times)
        elif times > 1:
            raise KeyboardInterrupt

    with Interrupts(pressed, lambda number: feed.put(HungUp(number))) as interrupts:
        since = client.server().last_event if options.joblog or options.results else 0
        # 1. Submit. A Ctrl-C during it is kept: the job may be in the journal already, and must then be cancelled.
        job = submit()
        if interrupts.presses:
            pressed(1)
        # 2. Follow.
        if options.joblog is not None:
            feed.read("joblog", partial(client.endings, job.id, since=since))
        if options.results is not None:
            feed.read("results", partial(options.results.keep, client, job.id, since))
        follower = JobFollower(session, client, feed, job, options)
        try:
            ended = follower.follow()
        except BrokenPipeError:
            return _unread(client, job, is_cancelled=options.is_cat)
    # 3. Sum up.
    if not isinstance(ended, JobView):
        return say_stopped(job, ended)
    follower.display.summary(ended)
    if follower.is_output_unseen and (line := output_line(ended)):
        say(line)
    if session.is_json:
        print_json(ended)
    return INTERRUPTED if interrupts.presses else exit_code_of(ended, pass_through=options.pass_exit_code)


def _unread(client: YardClient, job: JobView, *, is_cancelled: bool) -> int:
    """Whoever read the output, as `head` does, has left: no error, and only with --cat the job's end."""
    if is_cancelled:
        client.cancel(job.id, message="nobody reads its output any more")
    elif nobody_reads(1):
        say(f"nobody reads any more; {title(job)} goes on: yard attach {job.number}")
    return 0


def say_stopped(job: JobView, stopped: Stopped) -> int:
    """The exit code of a job that was not followed to its end."""
    match stopped:
        case HungUp(number):
            say(f"detached; {title(job)} goes on: yard attach {job.number}")
            return 128 + number
        case Killed():
            say(f"{title(job)} was killed")
        case Left(seen) | Interrupted(seen):
            how = counts_progress(seen) if seen.counts.total > 1 else seen.state.lower()
            say(f"{title(job)} goes on ({how}); to look again: yard attach {job.number}")
    return INTERRUPTED


def watch_to_end(session: Session, job: JobView, *, deadline: float | None = None) -> JobView | Stopped:
    """Follow a job that was submitted before: as it is at its end, or at the deadline. Ctrl-C leaves it alone."""
    options, feed = FollowOptions(is_older=True), Feed()
    with Interrupts(lambda times: feed.put(Interrupted(job)), lambda number: feed.put(HungUp(number))):
        return JobFollower(session, session.client, feed, job, options, deadline=deadline).follow()


def _cancel(client: YardClient, feed: Feed, job: JobView, times: int) -> None:
    """In a thread: this is called by a signal handler, and the server may be away."""

    def first() -> Iterator[Any]:
        client.cancel(job.id, message="cancelled by Ctrl-C")
        yield f"cancelling {title(job)}; Ctrl-C again kills it"

    def second() -> Iterator[Any]:
        client.cancel(job.id, force=True, message="killed by a second Ctrl-C")
        yield Killed()

    feed.read("cancel", first if times == 1 else second)


def _cancelled_by_key(client: YardClient, job: JobView) -> Iterator[Any]:
    client.cancel(job.id, message="in the live view")
    yield f"cancelling {title(job)}"


def _given_up(client: YardClient, job: JobView) -> Iterator[Any]:
    client.cancel(job.id, force=True, message=f"given up: {job.message}")
    yield from ()


class JobFollower:
    """Reads the job's changes until it has ended: with the output of a new job of one task, or with what runs."""

    def __init__(
        self,
        session: Session,
        client: YardClient,
        feed: Feed,
        job: JobView,
        options: FollowOptions,
        *,
        deadline: float | None = None,
    ) -> None:
        self._feed = feed
        self._job = job
        self._options = options
        self._deadline = deadline  # of time.monotonic()
        is_shown = (job.counts.total == 1 or options.is_merged) and not options.is_quiet and not options.is_older
        files = {"joblog": options.joblog, "results": options.results}
        self._reading = {"job", *(source for source, file in files.items() if file is not None)}
        self._is_streamed = options.is_cat or is_shown
        self._log = _writer(session, options, is_several=job.counts.total > 1)
        self._damages = DamageNotes()
        self._last_output_at = 0.0
        self._client = client
        self._without_image_since: float | None = None
        self._is_given_up = False
        self._is_asking = False  # whether it shall be cancelled
        self.display = choose_display(session, options, self._log, is_streamed=self._is_streamed)
        feed.read("job", lambda: client.watch(job.id))
        if self._is_streamed:
            self._reading.add("logs")
            feed.read("logs", lambda: client.logs(job.id, follow=not options.is_cat, ordered=options.is_cat))
        if self.display.is_live:
            feed.read("tasks", self._look_at_tasks)

    @property
    def is_output_unseen(self) -> bool:
        """In a pipe, cron or CI several tasks print nothing, and no live view tells that there is more to see."""
        is_watched = sys.stdout.isatty() and sys.stderr.isatty()
        options = self._options
        return not (self._is_streamed or is_watched or options.is_quiet or options.results is not None)

    def follow(self) -> JobView | Stopped:
        """The job at its end, or as it is at the deadline."""
        keys = Keys(lambda key: self._feed.put(Pressed(key)), is_wanted=self.display.is_live)
        self.display.footer(HINT if keys.are_read else "")
        show = self.display.update if self._options.is_older else self.display.submitted
        show(self._job)
        while True:
            suspending = told_of_suspend(lambda: self._feed.put(Suspended()), is_wanted=self.display.is_live)
            with suspending, keys, self.display:
                ended = self._read()
            if not isinstance(ended, Suspended):
                return ended
            suspend()

    def _read(self) -> JobView | Stopped | Suspended:
        reading = self._reading
        while reading and not self._is_over():
            item = self._feed.next(self._tick_seconds())
            self.display.lost(self._client.lost_seconds)
            match item:
                case HungUp() | Killed() | Suspended():
                    return item
                case Interrupted():
                    return Interrupted(self._job)
                case Pressed(key) if self._leaves(key):
                    return Left(self._job)
                case StreamEnded(source):
                    reading.discard(source)
                case StreamBroken(source, error):
                    self._take_broken(source, error)
                    reading.discard(source)
                case _:
                    self._take(item)
                    self._give_up_without_image()
            if reading and "job" not in reading and time.monotonic() - self._last_output_at > LAST_OUTPUT_SECONDS:
                verbs = " and ".join(f"`yard {VERBS[source]} {self._job.number}`" for source in sorted(reading))
                self.display.warn(f"the last of the output did not arrive; see {verbs}")
                break
        self._log.close()
        return self._job

    def _is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _tick_seconds(self) -> float:
        return TICK_SECONDS if self._deadline is None else min(TICK_SECONDS, self._deadline - time.monotonic())

    def _take(self, item: JobView | LogChunk | EndingView | Kept | TasksSeen | str | None) -> None:
        match item:
            case JobView():
                self._job = item
                self._last_output_at = time.monotonic()
                self.display.update(item)
            case LogChunk():
                self._last_output_at = time.monotonic()
                self.display.output_follows()
                self._damages.note(item)
                self._log.write(item)
            case TasksSeen(running, failed):
                self.display.tasks(running, failed)
            case EndingView() if self._options.joblog is not None:
                self._last_output_at = time.monotonic()
                self._options.joblog.write(item)
            case Kept():
                self._last_output_at = time.monotonic()
            case str():
                self.display.say(item)
            case None:
                self.display.tick()
                if self._options.is_cat and nobody_reads(1):
                    raise BrokenPipeError

    def _leaves(self, key: str) -> bool:
        """Was this key the one that leaves? `c` asks first, and only `y` cancels."""
        was_asking, self._is_asking = self._is_asking, key == "c" and not self._is_asking
        if was_asking and key in "yY":
            self._feed.read("cancel", lambda: _cancelled_by_key(self._client, self._job))
        self.display.ask(f"y cancels {title(self._job)}, any other key does not" if self._is_asking else "")
        return key == "q" and not was_asking

    def _look_at_tasks(self) -> Iterator[TasksSeen]:
        """Again and again, in a thread that ends with the program."""
        active = f"{State.RUNNING},{State.STOPPING}"  # of small tasks hundreds are handed out and start soon
        while not self._job.state.is_final:
            running = self._client.tasks(self._job.id, state=active, limit=RUNNING_MOST, last_line=True)
            is_more = self._job.counts.failed > 1
            failed = self._client.tasks(self._job.id, state=State.FAILED, limit=FAILED_MOST) if is_more else ()
            yield TasksSeen(running, failed)
            time.sleep(TASKS_SECONDS)

    def _give_up_without_image(self) -> None:
        """Cancels a job whose pods cannot pull their image; the job's message then says why."""
        job, now = self._job, time.monotonic()
        if (
            not self._options.needs_image_soon
            or self._is_given_up
            or job.reason is not Reason.HELD
            or not speaks_of_image(job.message)
        ):
            self._without_image_since = None
            return
        self._without_image_since = self._without_image_since or now
        if now - self._without_image_since > NO_IMAGE_SECONDS:
            self._is_given_up = True
            self._feed.read("cancel", lambda: _given_up(self._client, job))

    def _take_broken(self, source: str, error: BaseException) -> None:
        """Only the job's own stream matters: output can be read later, and a late cancel is not an error."""
        if source == "job":
            raise error
        if source != "tasks":  # the job's own stream tells of a server that is gone
            self.display.warn(f"{source}: {error}")


def _writer(session: Session, options: FollowOptions, *, is_several: bool) -> LogWriter:
    if options.is_cat:
        return DirectLog(all_to_stderr=session.is_json)
    return MarkedLog(MergedLog(session.is_json) if is_several else DirectLog(all_to_stderr=session.is_json))


def speaks_of_image(message: str) -> bool:
    """Is it one of the sentences of `executors/kubernetes/states.py` about an image that a node cannot get?"""
    return " image " in message


def choose_display(session: Session, options: FollowOptions, log: LogWriter, *, is_streamed: bool) -> QuietDisplay:
    if options.is_quiet or (options.is_older and not sys.stderr.isatty()):
        return QuietDisplay()
    is_drawn = draws(sys.stderr)
    if options.has_bar and not options.is_quiet and (is_streamed or not is_drawn):
        return BarDisplay(progress_seconds=session.knobs.progress_seconds, is_terminal=is_drawn, log=log)
    if is_streamed or not is_drawn:
        return PlainDisplay(progress_seconds=session.knobs.progress_seconds, is_streamed=is_streamed, log=log)
    # Imported here: rich costs a tenth of a second, and is needed only where something is drawn.
    from jobyard.cli.output.live import LiveDisplay

    return LiveDisplay()
