"""Is a child's start time the kernel's, though hardly anybody looks?"""

from __future__ import annotations

import os

from jobyard.agent.system import processes
from jobyard.agent.system.start_times import StartTimes


class Machine:
    """A kernel whose clock a test moves on, and that counts who looks into /proc."""

    def __init__(self, ahead: int = 0) -> None:
        self.now = 100
        self.looks = 0
        self._ahead = ahead
        self._began = 0
        self.start_times = StartTimes(lambda: self.now, self._look)

    def _look(self, pid: int) -> int:
        self.looks += 1
        return self._began

    def start(self, *, ticks: int = 0) -> int:
        """A child that is seen so many ticks after it was made; its start time as the lane knows it."""
        self.start_times.about_to_start()
        self._began = self.now + self._ahead
        self.now += ticks
        return self.start_times.of(4711)


def test_start_times_of_children_are_those_of_the_kernel() -> None:
    start_times = StartTimes()
    for _ in range(50):
        start_times.about_to_start()
        pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
        try:
            assert start_times.of(pid) == processes.start_time(pid)
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)


def test_of_many_quick_starts_one_is_looked_at() -> None:
    machine = Machine()
    assert [machine.start() for _ in range(100)] == [100] * 100
    assert machine.looks == 1


def test_a_start_that_took_longer_than_a_tick_is_looked_at() -> None:
    machine = Machine()
    machine.start()
    assert machine.start(ticks=3) == 100
    assert machine.start() == 103
    assert machine.looks == 2


def test_where_the_clock_is_not_that_of_start_times_each_is_looked_at() -> None:
    machine = Machine(ahead=7)
    assert [machine.start(), machine.start(), machine.start()] == [107, 107, 107]
    assert machine.looks == 3
