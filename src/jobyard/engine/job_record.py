"""Job record: what does the engine remember of one job? Ranges of tasks; an object only for one that runs or failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from jobyard.engine.intervals import IntervalSet
from jobyard.model.events import Used, YieldRequested
from jobyard.model.job import ACTIVE, FINAL, JobSpec, Reason, State
from jobyard.model.task import Slot, Task
from jobyard.model.training import Progress, Size

# Jobs up to this size keep the outcome of every task, so that `yard show` can tell times and peaks.
# Larger ones keep only what runs or failed: a million successes are one range.
REMEMBER_ALL_UP_TO = 1000
# How much work may wait at the agent behind a running task: enough to hide a round trip, little enough
# that taking it back costs nothing.
BACKLOG_SECONDS = 0.5
BACKLOG_MOST = 256
# No job opens more slots than this, whatever it asks: a task may ask for no cpu at all.
SLOTS_MOST = 1000
# A slot without progress for this long gives back what waits in it.
STUCK_SECONDS = 2 * BACKLOG_SECONDS


@dataclass(slots=True)
class SlotRecord:
    """An open slot and the tasks that were handed to it and have not ended."""

    slot: Slot
    tasks: set[int] = field(default_factory=set)
    was_fed: bool = False
    # Takes no more tasks: its task was preempted, or its node refused what was sent. The scheduler places them anew.
    is_closing: bool = False
    progress_at: float = 0.0  # when it last took up or ended something

    def is_stuck(self, now: float) -> bool:
        """Something runs longer than expected, and other tasks may be waiting behind it."""
        return bool(self.tasks) and now - self.progress_at > STUCK_SECONDS


class JobRecord:
    """Mutable, private to the engine. Every change of a task goes through `put`, which updates the counts."""

    def __init__(self, job_id: str, number: int, spec: JobSpec, submitted_at: float) -> None:
        self.id = job_id
        self.number = number
        self.spec = spec
        self.priority = spec.policy.priority
        self.submitted_at = submitted_at
        self.started_at: float | None = None
        self.finished_at: float | None = None
        self.pending = IntervalSet([(0, spec.size - 1)])
        self.succeeded = IntervalSet()
        self.cancelled = IntervalSet()
        self.tasks: dict[int, Task] = {}
        self.attempts: dict[int, int] = {}  # attempt number of tasks without an object, where it is not 1
        self.counts: Counter[State] = Counter({State.PENDING: spec.size})
        self.slots: dict[str, SlotRecord] = {}
        self.mean_seconds: dict[int, float] = {}  # by group: how long its attempts run
        self.first_failure: int | None = None
        self.stop: tuple[Reason, str] | None = None  # why no more of its tasks may start
        self.gang_failures = 0
        self.peak_memory_mib = 0
        self.busy_seconds = 0.0
        self.revision = 0  # grows with every change of what it wants from the scheduler
        self.age = number  # its position among jobs of its priority; smaller is earlier
        # Training. By task, where a task has reported; the checkpoint is on the machine, or in the storage of the
        # cluster, where it was written.
        self.progress: dict[int, Progress] = {}
        self.checkpoint_places: dict[int, str] = {}
        self.kind = ""  # the key of its profile
        self.fixed_size: Size | None = None  # set by a user (`yard scale`)
        self.next_size: Size | None = None  # the size of its next start
        self.asked_to_yield: YieldRequested | None = None  # since its slots were opened
        self.set_aside: dict[int, Task] = {}  # tasks that exist only when it is larger
        self.estimate_seconds: float | None = spec.training.estimated_seconds if spec.training else None
        self.preemptions = 0
        self.resizes = 0
        self.more_gpu_mib = 0  # the least GPU memory that it gets after it ran out of memory
        self.more_memory_mib = 0
        self.memory_requeues = 0
        self.missed_deadline = ""  # the message if it did not stop in time
        self.annotations: dict[str, str] = {}  # what other programs keep with it
        self.quarantine = ""  # why nothing of it is started or stopped
        # Measured, by task; not kept.
        self.steps: dict[int, Progress] = {}  # progress between two journalled reports
        self.used: dict[int, Used] = {}
        self.gpu_percent: float | None = None  # a running mean: utilisation jumps
        self.idle_since: dict[int, float] = {}  # tasks whose GPUs are idle

    # -- tasks ------------------------------------------------------------------------------------------------------

    def task(self, number: int) -> Task:
        """The task as it is now, also one that was never tried."""
        if task := self.tasks.get(number):
            return task
        attempt = self.attempts.get(number, 1)
        if number in self.succeeded:
            return Task(number, State.SUCCEEDED, attempt)
        if number in self.cancelled:
            reason, message = self.stop or (Reason.CANCELLED, "")
            return Task(number, State.CANCELLED, self.attempts.get(number, 0), reason, message)
        return Task(number)

    def put(self, task: Task) -> None:
        """Replace a task, and update the counts of its old and its new state."""
        number, old = task.number, self.task(task.number).state
        new = task.state
        if old is not new:
            self.revision += 1
            self._leave(number, old)
            self.counts[old] -= 1
            self.counts[new] += 1
            if new is State.PENDING:
                self.pending.add(number)
            elif new is State.SUCCEEDED:
                self.succeeded.add(number)
            elif new is State.CANCELLED:
                self.cancelled.add(number)
        if self._worth_keeping(task):
            self.tasks[number] = task
            self.attempts.pop(number, None)
        else:
            self.tasks.pop(number, None)
            self.forget_progress(number)
            if task.attempt != (1 if new is State.SUCCEEDED else 0):
                self.attempts[number] = task.attempt

    def forget_progress(self, number: int) -> None:
        """Its task starts from the beginning, or its progress is not needed any more."""
        self.progress.pop(number, None)
        self.checkpoint_places.pop(number, None)

    def _leave(self, number: int, state: State) -> None:
        if state is State.PENDING:
            self.pending.remove(number)
        elif state is State.SUCCEEDED:
            self.succeeded.remove(number)
        elif state is State.CANCELLED:
            self.cancelled.remove(number)

    def _worth_keeping(self, task: Task) -> bool:
        if task.state in (State.SUCCEEDED, State.CANCELLED):
            return self.spec.size <= REMEMBER_ALL_UP_TO and task.attempt > 0
        return task.state is not State.PENDING or task.attempt > 0

    def cancel_untouched(self) -> None:
        """Every pending task becomes CANCELLED at once, in ranges: no object for a task that has none."""
        reason, message = self.stop or (Reason.CANCELLED, "")
        for task in [task for task in self.tasks.values() if task.state is State.PENDING]:
            self.put(replace(task, state=State.CANCELLED, reason=reason, message=message))
        moved = len(self.pending)
        for first, last in self.pending.ranges():
            self.cancelled.add(first, last)
        self.pending = IntervalSet()
        self.counts[State.PENDING] -= moved
        self.counts[State.CANCELLED] += moved
        self.revision += 1

    def revive_untouched(self, first: int, last: int) -> None:
        """The inverse, within first..last: cancelled tasks that were never tried wait again, in ranges."""
        revived = IntervalSet(self.cancelled.first_within(first, last, last - first + 1))
        for number in (*self.tasks, *self.attempts):
            revived.remove(number)
        for low, high in revived.ranges():
            self.cancelled.remove(low, high)
            self.pending.add(low, high)
        self.counts[State.CANCELLED] -= len(revived)
        self.counts[State.PENDING] += len(revived)
        self.revision += 1

    def final_within(self, first: int, last: int) -> list[int]:
        """The numbers of the tasks in first..last that have ended."""
        ended = (IntervalSet(self.numbers_in(state)).first_within(first, last, last - first + 1) for state in FINAL)
        return sorted(number for ranges in ended for low, high in ranges for number in range(low, high + 1))

    def active_tasks(self) -> Iterator[Task]:
        for record in self.slots.values():
            for number in record.tasks:
                yield self.tasks[number]

    def numbers_in(self, state: State) -> list[tuple[int, int]]:
        """The task numbers in a state, as ranges."""
        if state is State.PENDING:
            return list(self.pending.ranges())
        if state is State.SUCCEEDED:
            return list(self.succeeded.ranges())
        if state is State.CANCELLED:
            return list(self.cancelled.ranges())
        return list(IntervalSet((n, n) for n, task in sorted(self.tasks.items()) if task.state is state).ranges())

    def resize(self, size: Size) -> None:
        """Another number of tasks, or tasks of another size. Only while all of them wait."""
        tasks = {**self.set_aside, **self.tasks}
        self.spec = self.spec.sized(size)
        self.tasks = {number: task for number, task in tasks.items() if number < self.spec.size}
        self.set_aside = {number: task for number, task in tasks.items() if number >= self.spec.size}
        self.pending = IntervalSet([(0, self.spec.size - 1)])
        self.counts = Counter({State.PENDING: self.spec.size})
        self.revision += 1

    # -- the whole ----------------------------------------------------------------------------------------------------

    @property
    def unfinished(self) -> int:
        return self.spec.size - sum(self.counts[state] for state in FINAL)

    @property
    def active(self) -> int:
        return sum(self.counts[state] for state in ACTIVE)

    @property
    def state(self) -> State:
        """Derived: what its tasks amount to."""
        counts = self.counts
        if not self.unfinished:
            return self._final_state()
        if self.stop is not None:
            return State.STOPPING
        for state in (State.RUNNING, State.STARTING, State.STOPPING):
            if counts[state]:
                return State.RUNNING if state is State.STARTING and self.started_at else state
        return State.PENDING

    def _final_state(self) -> State:
        if self.stop is not None and self.stop[0] in (Reason.CANCELLED, Reason.DEPENDENCY):
            # Everything may have ended well before the request arrived.
            return State.SUCCEEDED if self.counts[State.SUCCEEDED] == self.spec.size else State.CANCELLED
        if self.counts[State.FAILED] or (self.stop is not None and self.stop[0] is Reason.TIMEOUT):
            return State.FAILED
        return State.CANCELLED if self.counts[State.CANCELLED] else State.SUCCEEDED

    @property
    def most_attempts(self) -> int:
        """Of any of its tasks."""
        known = (task.attempt for task in self.tasks.values())
        return max(0, *known, *self.attempts.values(), int(bool(len(self.succeeded))))

    @property
    def is_final(self) -> bool:
        return not self.unfinished

    @property
    def is_fresh(self) -> bool:
        """Has none of its tasks had an attempt, except the first ones that run now?"""
        begun = (task for task in self.tasks.values() if task.attempt)
        return not (self.attempts or len(self.succeeded)) and all(t.attempt == 1 and t.state.is_active for t in begun)

    @property
    def is_yielding(self) -> bool:
        return bool(self.counts[State.STOPPING]) and any(task.is_yielding for task in self.active_tasks())

    @property
    def is_adaptive(self) -> bool:
        """Does what it asks for change with what is measured?"""
        spec = self.spec
        shares = any(group.resources.gpu_memory_mib for group in spec.groups)
        return bool(spec.training or spec.elastic or shares or self.progress or self.memory_requeues)

    # -- what is measured ---------------------------------------------------------------------------------------------

    def note_use(self, used: Used, at: float) -> None:
        number, percent = used.attempt.task, used.gpu_percent
        self.used[number] = used
        if percent is not None:
            known = self.gpu_percent
            self.gpu_percent = percent if known is None else known + 0.2 * (percent - known)
        if percent == 0:
            self.idle_since.setdefault(number, at)
        else:
            self.idle_since.pop(number, None)

    def forget_measured(self, number: int) -> None:
        """An attempt of this task has ended."""
        for measured in (self.steps, self.used, self.idle_since):
            measured.pop(number, None)

    def progress_now(self, number: int) -> Progress | None:
        """The newest progress, including reports that are not journalled."""
        return self.steps.get(number) or self.progress.get(number)

    # -- room ---------------------------------------------------------------------------------------------------------

    @property
    def slots_allowed(self) -> int:
        """How many slots it may have open at once. A gang has one for each task, whatever its limits.

        So has a job that becomes one object of a cluster: some of its pods cannot be held back.
        """
        if self.spec.gang or (self.spec.cluster and self.spec.starts_together):
            return self.spec.size
        return SLOTS_MOST if self.spec.policy.limit is None else min(SLOTS_MOST, self.spec.policy.limit)

    def slots_of(self, group: int) -> int:
        if len(self.spec.groups) == 1:
            return len(self.slots)
        return sum(record.slot.group == group for record in self.slots.values())

    def numbers_of(self, group: int, replica: int | None) -> tuple[int, int]:
        """First and last task number that a slot of this group (and replica) may run."""
        first, last = self.spec.offsets[group], self.spec.offsets[group + 1] - 1
        if replica is not None:
            first += replica * self.spec.groups[group].completions
            last = first + self.spec.groups[group].completions - 1
        return first, last

    def backlog(self, group: int) -> int:
        """How many tasks a slot of this group may hold at once, from how long they have been running so far."""
        mean = self.mean_seconds.get(group)
        if mean is None or self.spec.gang or self.spec.cluster:  # a cluster keeps the next pods ready itself
            return 1
        return max(1, min(BACKLOG_MOST, int(BACKLOG_SECONDS / max(mean, 1e-4))))

    def learn_duration(self, group: int, seconds: float) -> None:
        known = self.mean_seconds.get(group)
        self.mean_seconds[group] = seconds if known is None else known + 0.1 * (seconds - known)
