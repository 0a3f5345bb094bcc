"""Rounds of `kill -9` on server, agent and command line, while tasks append to a file."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from sqlalchemy import create_engine
from tests.faults.live_yard import LiveYard
from tests.faults.workload import PlannedJob, plan_jobs, what_ran
from tests.marks import long
from tests.waiting import long_until

from jobyard.engine import invariants
from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.server.journal import Journal

ROUNDS = int(os.environ.get("JOBYARD_FAULT_ROUNDS", "10"))
SEED = int(os.environ.get("JOBYARD_FAULT_SEED", "1"))
PHASES = {
    "launching": ("server-launching", "agent-launching"),
    "running": ("server-running", "agent-running"),
    "finishing": ("server-finishing", "agent-finishing"),
    "committing": ("server-committing", "server-committed"),
    "reconciling": ("server-reconciling", "agent-reconciling"),
}
POINTS = [point for points in zip(*PHASES.values(), strict=True) for point in points]


@dataclass
class Report:
    """Who was killed, where or when."""

    at_points: Counter[str] = field(default_factory=Counter)
    at_random: Counter[str] = field(default_factory=Counter)

    def phase(self, name: str) -> int:
        return sum(self.at_points[point] for point in PHASES[name])

    def __str__(self) -> str:
        phases = ", ".join(f"{name} {self.phase(name)}" for name in PHASES)
        points = ", ".join(f"{point} {self.at_points[point]}" for point in sorted(POINTS))
        others = ", ".join(f"{who} {count}" for who, count in sorted(self.at_random.items()))
        return f"kills per phase: {phases}\n  at points: {points}\n  at random moments: {others}"


class Round:
    """One yard, a few jobs, and deaths all over them."""

    def __init__(self, live: LiveYard, number: int, report: Report) -> None:
        self._live = live
        self._report = report
        self._random = random.Random(SEED * 1_000_003 + number)
        self.jobs = plan_jobs(self._random)
        # Each point has its turn: five rounds kill at every one of them at least once.
        self._points = [POINTS[(2 * number + step) % len(POINTS)] for step in range(2)]
        self._points += self._random.sample([point for point in POINTS if point not in self._points], 2)
        self._is_over = threading.Event()

    def run(self) -> list[str]:
        """What was found wrong."""
        self._live.yard("doctor")  # half of the deaths should hit a yard that works
        for point in self._points[:3]:
            self._live.arm(point)
        killers = [threading.Thread(target=self._kill_at_random)]
        killers += [threading.Thread(target=self._kill_cli, args=(job,)) for job in self.jobs if job.kill_cli_after]
        for job in self.jobs:
            job.begin(self._live)
        for killer in killers:
            killer.start()
        try:
            for job in self.jobs:
                job.end_asking(self._live)
        finally:
            self._is_over.set()
            for killer in killers:
                killer.join()
        return [*self._check_work(), *self._check_memory()]

    # -- killing

    def _kill_at_random(self) -> None:
        for who in self._random.sample(["server", "agent", "server", "both", "agent"], 3):
            if self._is_over.wait(self._random.uniform(0.2, 1.5)):
                return
            while (view := self._live.server()) is None:
                if self._is_over.wait(0.05):
                    return
            pids = {"server": view.pid, "agent": view.agents[0].pid}
            for victim in ("agent", "server") if who == "both" else (who,):
                pid = pids[victim]
                if pid and self._live.kill(pid):
                    self._report.at_random[victim] += 1
            if who == "server":
                self._live.arm(self._points[3])

    def _kill_cli(self, job: PlannedJob) -> None:
        assert job.kill_cli_after is not None
        assert job.child is not None
        self._is_over.wait(job.kill_cli_after)
        if job.child.poll() is None:
            job.was_killed = True
            job.child.kill()
            self._report.at_random["cli"] += 1

    # -- checking

    def _check_work(self) -> list[str]:
        live = self._live
        listed = live.yard("ls", "-a", "-o", "json")
        ids = [view["id"] for view in json.loads(listed.stdout)]
        done = live.yard("wait", "--timeout", "230s", *ids)
        if done.returncode not in (0, 1):
            return [f"yard wait: {done}"]
        for point in self._points:
            if live.is_armed(point):
                (live.faults / point).unlink(missing_ok=True)
            else:
                self._report.at_points[point] += 1
        live.yard("server", "start")  # the last point may have been hit after the wait
        found, ran = list(live.client.jobs(all=True, limit=1000)), what_ran(live)
        for job in self.jobs:
            job.check(live, found, ran)
        known = {job.name for job in self.jobs}
        strangers = [f"a job {view.name} that nobody asked for" for view in found if view.name not in known]
        return strangers + [problem for job in self.jobs for problem in job.problems]

    def _check_memory(self) -> list[str]:
        """A server that replays the journal knows the same, and what it knows makes sense."""
        live = self._live
        before = self._everything()
        live.client.stop_server()
        long_until(lambda: live.server() is None)
        (live.directory / "snapshot.json").unlink(missing_ok=True)
        live.yard("server", "start")
        problems = [] if self._everything() == before else ["after a replay the yard remembers something else"]
        left = live.stop()
        problems += [f"left running: {left}"] if left else []
        engine, state = create_engine(f"sqlite:///{live.directory / 'yard.db'}"), YardState()
        for _, events in Journal(engine).read():
            for event in events:
                handle(state, event)
                invariants.check(state)
        engine.dispose()
        return problems

    def _everything(self) -> list[object]:
        live = self._live
        jobs = long_until(lambda: live.server() and live.client.jobs(all=True, limit=1000))
        return [(live.client.job(view.id), live.tasks(view.id)) for view in jobs or ()]


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("half", [0, *long(1)])
def test_whoever_dies_what_was_acknowledged_runs_once_and_is_told_as_it_was(
    capsys: pytest.CaptureFixture[str], half: int
) -> None:
    report, began = Report(), time.monotonic()
    rounds = range(half * ROUNDS // 2, (half + 1) * ROUNDS // 2)
    for number in rounds:
        live = LiveYard()
        try:
            problems = Round(live, number, report).run()
            assert not problems, "\n".join(problems)
        except BaseException:
            print(f"round {number} (seed {SEED})\n{live.story()}")
            raise
        finally:
            live.remove()
    with capsys.disabled():
        print(f"\n{len(rounds)} rounds in {time.monotonic() - began:.0f} s; {report}")
    if len(rounds) >= 5:
        assert all(report.phase(name) for name in PHASES), str(report)
    if len(rounds) >= 10:
        assert report.at_random["server"]
        assert report.at_random["agent"]
        assert report.at_random["cli"]
