"""A job of very many calls: Python's garbage collector does not look at its futures while they are made."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from jobyard.python_api import function_job
from jobyard.python_api.call_file import CallFile
from jobyard.python_api.function_job import FunctionJob
from jobyard.python_api.futures import collector_paused
from tests.unit.python_api.test_display import a_view


def test_the_collector_waits_until_all_futures_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    collections: list[str] = []
    at_begin: list[int] = []

    def began(*_: Any) -> None:
        at_begin.append(len(collections))

    def collected(phase: str, _: dict[str, int]) -> None:
        collections.append(phase)

    monkeypatch.setattr(function_job, "begin", began)
    client: Any = None
    gc.collect()
    gc.callbacks.append(collected)
    try:
        job: FunctionJob[int] = FunctionJob(client, a_view(), CallFile(Path("x"), 20_000, 3), None)
    finally:
        gc.callbacks.remove(collected)
    assert at_begin == [0]
    assert len(job.futures) == 20_000
    assert job.futures[-1].task == "6666"
    assert gc.isenabled()


def test_who_has_switched_the_collector_off_finds_it_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
