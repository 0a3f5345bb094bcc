"""The server's log stays small, keeps the last words of a crash, and says the same thing only so often."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from jobyard.server.error_counts import ErrorCounts
from jobyard.server.log_file import ALIKE_MOST, GENERATIONS, MINUTE_SECONDS, Alike
from tests.yards import SOURCE

PROGRAM = """
import logging, sys
from pathlib import Path
from jobyard.server import log_file
log_file.LOG_BYTES_MOST = 2000
log_file.log_to_stderr(Path(sys.argv[1]))
log = logging.getLogger("test")
for number in range(int(sys.argv[2])):
    log.info(f"record {number}")  # each a kind of its own
raise RuntimeError("the last words")
"""


def crash(path: Path, records: int, stderr: Path | None = None) -> None:
    """A process with its standard error in `stderr`, which logs and then dies of an exception."""
    with (stderr or path).open("ab") as file:
        command = [sys.executable, "-c", PROGRAM, str(path), str(records)]
        subprocess.run(command, stderr=file, env={"PYTHONPATH": str(SOURCE)}, timeout=60, check=False)


def test_a_full_log_is_set_aside_and_a_few_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    crash(path, 1000)
    kept = [path, *(tmp_path / f"server.log.{age}" for age in range(1, GENERATIONS + 1))]
    assert sorted(tmp_path.iterdir()) == kept
    assert all(2000 < each.stat().st_size < 2200 for each in kept[1:])
    # The newest records are together in the newest files, and none between them is missing.
    text = "".join(each.read_text() for each in reversed(kept))
    numbers = [int(line.rpartition(" ")[2]) for line in text.splitlines() if "record" in line]
    assert numbers == list(range(numbers[0], 1000))


def test_the_traceback_of_a_crash_is_in_the_newest_file(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    crash(path, 1000)
    assert path.read_text().endswith("RuntimeError: the last words\n")
    assert "Traceback (most recent call last)" in path.read_text()


def test_a_log_that_is_not_our_file_is_left_to_its_owner(tmp_path: Path) -> None:
    terminal = tmp_path / "terminal"
    crash(tmp_path / "server.log", 200, stderr=terminal)
    assert list(tmp_path.iterdir()) == [terminal]
    assert "record 199" in terminal.read_text()


def a_record(number: int, message: str = "no connection: %s") -> logging.LogRecord:
    return logging.LogRecord("yard", logging.ERROR, "here", 1, message, (f"try {number} of 100%",), None)


def test_records_of_one_kind_are_counted_and_left_out() -> None:
    now = 0.0
    alike = Alike(lambda: now)
    passed = [record for number in range(5000) if alike.filter(record := a_record(number))]
    assert len(passed) == ALIKE_MOST
    assert passed[0].getMessage() == "no connection: try 0 of 100%"
    assert passed[-1].getMessage() == "no connection: try 19 of 100% (more like it are left out for a minute)"
    assert alike.filter(a_record(0, "something else: %s"))
    now = MINUTE_SECONDS
    record = a_record(7)
    assert alike.filter(record)
    assert record.getMessage() == "no connection: try 7 of 100% (4980 more like it were left out before)"


def test_kinds_that_come_once_are_forgotten() -> None:
    now = 0.0
    alike = Alike(lambda: now)
    for number in range(5000):
        now = float(number)
        assert alike.filter(a_record(number, f"by hand {number}: %s"))
    assert len(alike._kinds) <= 1001


def test_many_errors_of_one_kind_do_not_hide_another(caplog: pytest.LogCaptureFixture) -> None:
    errors, alike = ErrorCounts(), Alike(lambda: 0.0)
    for number in range(2 * ALIKE_MOST):
        errors.note("view", f"job {number} cannot be shown, 100%")
    errors.note("journal", "row 3 is damaged")
    passed = [record.getMessage() for record in caplog.records if alike.filter(record)]
    assert len(passed) == ALIKE_MOST + 1
    assert (passed[0], passed[-1]) == ("view: job 0 cannot be shown, 100%", "journal: row 3 is damaged")
