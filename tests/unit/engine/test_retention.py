"""Which jobs go by themselves, and which never?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobyard.engine.retention import EndedJob, RetentionRules, choose_going

DAY = 86400.0
NOW = 1000 * DAY
RULES = RetentionRules(30 * DAY, 90 * DAY, DAY, jobs=3, bytes=100)


def ended(name: str, days: float, size: int = 0, **more: bool) -> EndedJob:
    return EndedJob(name, NOW - days * DAY, size, **more)


def going(*jobs: EndedJob) -> dict[str, str]:
    return {each.job: each.why for each in choose_going(jobs, RULES, NOW)}


def test_by_age_goes_what_ended_long_ago_and_what_was_not_fetched_much_later() -> None:
    old = [ended("a", 31), ended("b", 29), ended("c", 89, is_unfetched=True), ended("d", 91, is_unfetched=True)]
    assert going(*old) == {
        "d": "it ended 91d00h ago, and results that nobody fetched are kept for 90d00h",
        "a": "it ended 31d00h ago, and jobs are kept for 30d00h",
    }
    assert going(ended("kept", 9999, is_needed=True)) == {}


def test_of_too_many_the_oldest_go_but_none_of_today() -> None:
    jobs = [ended(str(days), days) for days in (0.1, 0.2, 0.3, 0.4, 2, 3)]
    assert list(going(*jobs)) == ["3", "2"]
    assert "more than 3 jobs have ended" in going(*jobs)["3"]


def test_of_too_much_the_oldest_go_until_it_is_little_enough() -> None:
    jobs = (ended("a", 5, 60), ended("b", 4, 0), ended("c", 3, 60), ended("d", 2, 40))
    assert list(going(*jobs[1:])) == []
    assert list(going(jobs[0], *jobs[2:])) == ["a"]


def test_neither_number_nor_size_takes_what_was_not_fetched_or_is_needed() -> None:
    jobs = (ended("a", 9, 200, is_unfetched=True), ended("b", 8, 200, is_needed=True), ended("c", 7, 1), ended("d", 6))
    assert list(going(*jobs)) == ["c"]


EACH = st.builds(
    EndedJob,
    st.text("abcdef", min_size=1),
    st.floats(0, NOW + DAY),
    st.integers(0, 90),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(EACH, unique_by=lambda each: each.job))
def test_whatever_there_is_one_pass_is_enough_and_nothing_needed_goes(jobs: list[EndedJob]) -> None:
    gone = going(*jobs)
    left = [each for each in jobs if each.job not in gone]
    assert going(*left) == {}
    assert not any(each.is_needed for each in jobs if each.job in gone)
    unfetched = [each for each in jobs if each.job in gone and each.is_unfetched]
    assert all(NOW - each.finished_at >= RULES.unfetched_seconds for each in unfetched)
