"""Task table: which tasks of a job are in which state? Ranges; an object only for a task that runs or failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from jobyard.engine.delayed_tasks import DelayedTasks
from jobyard.engine.intervals import IntervalSet
from jobyard.model.job import ACTIVE, State
from jobyard.model.task import Task

# Jobs up to this size keep the outcome of every task, so that `yard show` can tell times and peaks.
# Larger ones keep only what runs or failed: a million successes are one range.
REMEMBER_ALL_UP_TO = 1000


class TaskTable:
    """The tasks of one job. Every change of one goes through `put`, which updates the counts."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pending = IntervalSet([(0, size - 1)])  # those that may start now
        self.delayed = DelayedTasks()  # PENDING too, after a failure
        self.succeeded = IntervalSet()
        self.cancelled = IntervalSet()
        self.known: dict[int, Task] = {}
        self.attempts: dict[int, int] = {}  # attempt number of tasks without an object, where it is not 1
        self.counts: Counter[State] = Counter({State.PENDING: size})
        self.set_aside: dict[int, Task] = {}  # tasks that exist only when the job is larger
        self.first_failure: int | None = None
        self.gang_failures = 0  # restarts of the whole gang, because one of its tasks failed

    # -- changing ------------------------------------------------------------------------------------------------------

    def put(self, task: Task) -> bool:
        """Replace a task. Is it in another state now, or may it start now and not before?"""
        number, old, new = task.number, self.state_of(task.number), task.state
        is_changed = old is not new
        if is_changed:
            self._move(number, old, new)
        if task.not_before or (old is State.PENDING and number in self.delayed):
            is_changed = True
            self._delay(task)
        if self._is_worth_keeping(task):
            self.known[number] = task
            self.attempts.pop(number, None)
        else:
            self.known.pop(number, None)
            if task.attempt != (1 if new is State.SUCCEEDED else 0):
                self.attempts[number] = task.attempt
        return is_changed

    def _move(self, number: int, old: State, new: State) -> None:
        if (left := self._range_of(old)) is not None:
            left.remove(number)
        if (entered := self._range_of(new)) is not None:
            entered.add(number)
        self.counts[old] -= 1
        self.counts[new] += 1

    def _delay(self, task: Task) -> None:
        self.delayed.remove(task.number)
        if task.not_before:
            self.pending.remove(task.number)
            self.delayed.add(task.number, task.not_before)
        elif task.state is State.PENDING:
            self.pending.add(task.number)

    def _range_of(self, state: State) -> IntervalSet | None:
        if state is State.PENDING:
            return self.pending
        if state is State.SUCCEEDED:
            return self.succeeded
        return self.cancelled if state is State.CANCELLED else None

    def _is_worth_keeping(self, task: Task) -> bool:
        if task.state in (State.SUCCEEDED, State.CANCELLED):
            return self.size <= REMEMBER_ALL_UP_TO and task.attempt > 0
        return task.state is not State.PENDING or task.attempt > 0

    def cancel_untouched(self) -> None:
        """Every pending task becomes CANCELLED at once, in ranges. Only while none of them has an object."""
        moved = len(self.pending)
        for first, last in self.pending.ranges():
            self.cancelled.add(first, last)
        self.pending = IntervalSet()
        self.counts[State.PENDING] -= moved
        self.counts[State.CANCELLED] += moved

    def cancel_untouched_among(self, asked: IntervalSet) -> None:
        """Pending tasks among these that have no object become CANCELLED, in ranges."""
        gone = self.pending & asked
        gone -= IntervalSet((number, number) for number in sorted(self.known))
        self.pending -= gone
        self.cancelled |= gone
        self.counts[State.PENDING] -= len(gone)
        self.counts[State.CANCELLED] += len(gone)

    def revive_untouched_among(self, asked: IntervalSet) -> None:
        """The inverse: cancelled tasks among these that were never tried wait again, in ranges."""
        revived = self.cancelled & asked
        revived -= IntervalSet((number, number) for number in sorted((*self.known, *self.attempts)))
        self.cancelled -= revived
        self.pending |= revived
        self.counts[State.CANCELLED] -= len(revived)
        self.counts[State.PENDING] += len(revived)

    def resize(self, size: int) -> None:
        """Another number of tasks. Only while all of them wait and none is delayed."""
        tasks = {**self.set_aside, **self.known}
        self.size = size
        self.known = {number: task for number, task in tasks.items() if number < size}
        self.set_aside = {number: task for number, task in tasks.items() if number >= size}
        self.pending = IntervalSet([(0, size - 1)])
        self.counts = Counter({State.PENDING: size})

    # -- reading -------------------------------------------------------------------------------------------------------

    def state_of(self, number: int) -> State:
        if task := self.known.get(number):
            return task.state
        if number in self.succeeded:
            return State.SUCCEEDED
        return State.CANCELLED if number in self.cancelled else State.PENDING

    def numbers_in(self, state: State) -> list[tuple[int, int]]:
        """The task numbers in a state, as ranges."""
        numbers = self._range_of(state)
        if state is State.PENDING and len(self.delayed):
            numbers = IntervalSet((*self.pending.ranges(), *((n, n) for n in self.delayed)))
        if numbers is None:
            numbers = IntervalSet((n, n) for n, task in sorted(self.known.items()) if task.state is state)
        return list(numbers.ranges())

    def cancelled_after_a_try(self) -> list[int]:
        """Those that were tried before they were cancelled, in order."""
        tried = [number for number, task in self.known.items() if task.attempt] + list(self.attempts)
        return sorted(number for number in tried if number in self.cancelled)

    def among(self, asked: IntervalSet, states: Iterable[State]) -> IntervalSet:
        """Those of the asked tasks that are in one of the states. It costs ranges, however many numbers they have."""
        found = IntervalSet()
        for state in states:
            found |= IntervalSet(self.numbers_in(state)) & asked
        return found

    @property
    def unfinished(self) -> int:
        counts = self.counts
        return self.size - counts[State.SUCCEEDED] - counts[State.FAILED] - counts[State.CANCELLED]

    @property
    def active(self) -> int:
        return sum(self.counts[state] for state in ACTIVE)

    @property
    def most_attempts(self) -> int:
        """Of any of the tasks."""
        known = (task.attempt for task in self.known.values())
        return max(0, *known, *self.attempts.values(), int(bool(len(self.succeeded))))

    @property
    def are_fresh(self) -> bool:
        """Has none of them had an attempt, except the first ones that run now?"""
        begun = (task for task in self.known.values() if task.attempt)
        return not (self.attempts or len(self.succeeded)) and all(t.attempt == 1 and t.state.is_active for t in begun)
