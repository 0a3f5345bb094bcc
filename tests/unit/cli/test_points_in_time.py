"""What `--since` understands."""

from __future__ import annotations

from datetime import datetime

import pytest

from jobyard.cli.points_in_time import parse_since
from jobyard.errors import UserError

NOW = datetime(2026, 11, 19, 14, 30)


@pytest.mark.parametrize(
    ("word", "at"),
    [
        ("2h", datetime(2026, 11, 19, 12, 30)),
        ("3d ago", datetime(2026, 11, 16, 14, 30)),
        ("today", datetime(2026, 11, 19)),
        ("Yesterday", datetime(2026, 11, 18)),
        ("2026-11-01", datetime(2026, 11, 1)),
        ("2026-11-01 09:15", datetime(2026, 11, 1, 9, 15)),
        ("2026-11-01T09:15:30", datetime(2026, 11, 1, 9, 15, 30)),
    ],
)
def test_a_time_is_written_as_people_say_it(word: str, at: datetime) -> None:
    assert parse_since(word, "--since", NOW.timestamp()) == at.timestamp()


@pytest.mark.parametrize("word", ["", "soon", "2026-13-01", "2026-11-01 25:00", "-2h", "1-2-3"])
def test_what_is_no_time_is_refused_with_the_words_that_are(word: str) -> None:
    with pytest.raises(UserError, match=r"--since: cannot read .*; write 2h, 3d, today, yesterday"):
        parse_since(word, "--since", NOW.timestamp())
