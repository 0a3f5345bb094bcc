"""What every test may use: yards of its own, and `async def` tests."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.yards import TemporaryYard

MakeYard = Callable[..., TemporaryYard]

# These machines are shared: how long an example takes says nothing. The examples are the same few each time, so that a
# change is to blame when one fails; `make test-all`, `make soak` and tools/hunt search for new ones.
IS_SEARCHING = "JOBYARD_SEARCH" in os.environ
settings.register_profile(
    "house",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not IS_SEARCHING,
    max_examples=100 if IS_SEARCHING else 30,
)
settings.load_profile("house")

# Under nohup, or behind an `&` in a script, a process ignores these, and so would everything that the tests start.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine gets an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**given))
    return True


@pytest.fixture
def make_yard() -> Iterator[MakeYard]:
    """Makes yards; nothing of them is left afterwards. Variables by name, as `make_yard(YARD_IDLE_SECONDS="1")`."""
    made: list[TemporaryYard] = []

    def make(prefix: Sequence[str] = (), **env: str) -> TemporaryYard:
        made.append(TemporaryYard(prefix, **env))
        return made[-1]

    try:
        yield make
    finally:
        for yard in made:
            yard.close()


@pytest.fixture
def own_yard(make_yard: MakeYard) -> TemporaryYard:
    """A yard of this test alone."""
    return make_yard()


@pytest.fixture(scope="session")
def shared_yard() -> Iterator[TemporaryYard]:
    """One yard for all tests that only add jobs: starting a server takes a second."""
    with TemporaryYard() as yard:
        yield yard


@pytest.fixture
def yard(shared_yard: TemporaryYard) -> Iterator[TemporaryYard]:
    """The shared yard, in a directory of this test alone; no job of this test goes on afterwards."""
    common = shared_yard.work
    shared_yard.work = Path(tempfile.mkdtemp(dir=common, prefix=""))
    try:
        yield shared_yard
    finally:
        shared_yard.settle()
        shared_yard.work = common
