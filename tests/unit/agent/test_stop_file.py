"""What does the next agent read of a stop request?"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from jobyard.agent_protocol import clock, stop_request


def test_an_order_that_an_agent_before_the_boot_clock_wrote_keeps_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_100.0)
    monkeypatch.setattr(clock, "seconds", lambda: 5000.0)
    (tmp_path / "stop").write_text(json.dumps({"asked_at": 1_000_000.0, "deadline": 300.0, "grace": 7.0}))
    request = stop_request.read(str(tmp_path / "stop"))
    assert request is not None
    assert (request.due_in(5000.0), request.grace) == (200.0, 7.0)
