"""Job record: what does the engine remember of one job?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from jobyard.engine.intervals import IntervalSet
from jobyard.engine.resource_use import MemoryGrant, ResourceUse
from jobyard.engine.task_table import TaskTable
from jobyard.engine.training_record import PreemptionRecord, TrainingRecord
from jobyard.model.job import JobSpec, Reason, State
from jobyard.model.task import Slot, Task
from jobyard.model.training import Size

# How much work may wait at the agent behind a running task: enough to hide a round trip, little enough
# that taking it back costs nothing.
BACKLOG_SECONDS = 0.5
BACKLOG_MOST = 256
# No job opens more slots than this, whatever it asks: a task may ask for no cpu at all.
SLOTS_MOST = 1000
# A slot without progress for this long gives back what waits in it.
STUCK_SECONDS = 2 * BACKLOG_SECONDS
_PUT_BACK_SECONDS = 1.0  # a clock that is set by less changes nothing


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


@dataclass(slots=True)
class JobTimes:
    submitted_at: float
    started_at: float | None = None
    finished_at: float | None = None
    first_started_at: float | None = None  # stays when the job is retried, which begins its times anew
    next_start_at: float = 0.0  # no task starts before, where its policy has a delay between starts

    def begin(self, at: float) -> None:
        if self.started_at is None:
            self.started_at = at
        if self.first_started_at is None:
            self.first_started_at = at


class JobRecord:
    """Mutable, private to the engine."""

    def __init__(self, job_id: str, number: int, spec: JobSpec, submitted_at: float) -> None:
        self.id = job_id
        self.number = number
        self.spec = spec
        self.priority = spec.policy.priority
        self.age = number  # its position among jobs of its priority; smaller is earlier
        self.times = JobTimes(submitted_at)
        self.tasks = TaskTable(spec.size)
        self.slots: dict[str, SlotRecord] = {}
        self.stop: tuple[Reason, str] | None = None  # why no more of its tasks may start
        self.training = TrainingRecord(spec.training.estimated_seconds if spec.training else None)
        self.preemption = PreemptionRecord()
        self.use = ResourceUse()
        self.memory = MemoryGrant()
        self.annotations: dict[str, str] = {}  # what other programs keep with it

    # -- tasks ------------------------------------------------------------------------------------------------------

    def task(self, number: int) -> Task:
        """The task as it is now, also one that was never tried."""
        if task := self.tasks.known.get(number):
            return task
        state, attempts = self.tasks.state_of(number), self.tasks.attempts
        if state is State.SUCCEEDED:
            return Task(number, state, attempts.get(number, 1))
        if state is State.CANCELLED:
            return Task(number, state, attempts.get(number, 0), *self._why_cancelled())
        return Task(number)

    def put(self, task: Task) -> bool:
        """Replace a task; progress that is not needed any more goes. May that change what the job wants?"""
        is_changed = self.tasks.put(task)
        if task.number not in self.tasks.known:
            self.training.forget(task.number)
        return is_changed

    def cancel_untouched(self) -> None:
        """Every pending task becomes CANCELLED at once: no object for a task that has none."""
        reason, message = self._why_cancelled()
        for task in [task for task in self.tasks.known.values() if task.state is State.PENDING]:
            self.put(replace(task, state=State.CANCELLED, reason=reason, message=message, not_before=0.0))
        self.tasks.cancel_untouched()

    def cancel_untouched_among(self, asked: IntervalSet) -> None:
        """Tasks among these that wait and were never tried become CANCELLED."""
        self.tasks.cancel_untouched_among(asked)

    def revive_untouched_among(self, asked: IntervalSet) -> None:
        """Cancelled tasks among these that were never tried wait again."""
        self.tasks.revive_untouched_among(asked)

    def resize(self, size: Size) -> None:
        """Another number of tasks, or tasks of another size. Only while all of them wait."""
        self.spec = self.spec.sized(size)
        self.tasks.resize(self.spec.size)

    def next_attempt_at(self, task: Task, at: float) -> float:
        """Before when a task that fails now is not tried again; 0: at any time. A gang counts its failures together."""
        spec = self.spec
        if spec.cluster and not (spec.is_one_attempt or spec.elastic):
            return 0.0  # Kubernetes begins the next one itself, after a delay of its own
        failures = self.tasks.gang_failures if spec.gang else task.failures
        seconds = spec.policy.retry_delay(failures)
        return at + seconds if seconds else 0.0

    def active_tasks(self) -> Iterator[Task]:
        known = self.tasks.known
        for record in self.slots.values():
            for number in record.tasks:
                yield known[number]

    def _why_cancelled(self) -> tuple[Reason, str]:
        return self.stop or (Reason.CANCELLED, "")

    # -- the whole ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Derived: what its tasks amount to."""
        counts = self.tasks.counts
        if not self.tasks.unfinished:
            return self._final_state()
        if self.stop is not None:
            return State.STOPPING
        for state in (State.RUNNING, State.STARTING, State.STOPPING):
            if counts[state]:
                return State.RUNNING if state is State.STARTING and self.times.started_at else state
        return State.PENDING

    def _final_state(self) -> State:
        counts = self.tasks.counts
        if self.stop is not None and self.stop[0] is Reason.ENOUGH:
            return State.SUCCEEDED
        if self.stop is not None and self.stop[0] in (Reason.CANCELLED, Reason.DEPENDENCY):
            # Everything may have ended well before the request arrived.
            return State.SUCCEEDED if counts[State.SUCCEEDED] == self.spec.size else State.CANCELLED
        if counts[State.FAILED] or (self.stop is not None and self.stop[0] is Reason.TIMEOUT):
            return State.FAILED
        return State.CANCELLED if counts[State.CANCELLED] else State.SUCCEEDED

    @property
    def is_final(self) -> bool:
        return not self.tasks.unfinished

    @property
    def is_yielding(self) -> bool:
        return bool(self.tasks.counts[State.STOPPING]) and any(task.is_yielding for task in self.active_tasks())

    @property
    def is_adaptive(self) -> bool:
        """Does what it asks for change with what is measured?"""
        spec = self.spec
        shares = any(group.resources.gpu_memory_mib for group in spec.groups)
        return bool(spec.training or spec.elastic or shares or self.training.progress or self.memory.requeues)

    # -- room ---------------------------------------------------------------------------------------------------------

    @property
    def slots_allowed(self) -> int:
        """How many slots it may have open at once. A gang has one for each task, whatever its limits.

        So has a job that becomes one object of a cluster: some of its pods cannot be held back.
        """
        if self.spec.gang or (self.spec.cluster and self.spec.starts_together):
            return self.spec.size
        return SLOTS_MOST if self.spec.policy.limit is None else min(SLOTS_MOST, self.spec.policy.limit)

    @property
    def start_delay(self) -> float:
        """Seconds between two starts; what starts together has none."""
        return 0.0 if self.spec.starts_together else self.spec.policy.start_delay_seconds

    def may_start(self, now: float) -> bool:
        """Has its delay between two starts passed? Or was the clock put back to before the last of them?"""
        next_at = self.times.next_start_at
        return not next_at - self.start_delay - _PUT_BACK_SECONDS <= now < next_at

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
        mean = self.use.mean_seconds.get(group)
        if self.start_delay:
            return 1
        if mean is None or self.spec.gang or self.spec.cluster:  # a cluster keeps the next pods ready itself
            return 1
        return max(1, min(BACKLOG_MOST, int(BACKLOG_SECONDS / max(mean, 1e-4))))
