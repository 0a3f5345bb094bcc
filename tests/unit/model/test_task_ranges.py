"""Words that name tasks: labels, lists and ranges of them."""

from __future__ import annotations

import pytest

from jobyard.errors import NotFound, UserError
from jobyard.model.job import ArrayRange, Command, GroupSpec
from jobyard.model.task_ranges import job_and_tasks, names_one_task, task_ranges
from tests.builders import a_job

STEPS = a_job(groups=(GroupSpec(Command(shell="true"), completions=5, array=ArrayRange(((1, 9, 2),))),))
GROUPS = a_job(
    groups=(
        GroupSpec(Command(shell="true"), name="head"),
        GroupSpec(Command(shell="true"), name="worker-a", count=4),
    )
)


@pytest.mark.parametrize(
    ("words", "ranges"),
    [
        ("1", [(0, 0)]),
        ("3-7", [(1, 3)]),
        ("9, 1-3", [(4, 4), (0, 1)]),
        ("5-5", [(2, 2)]),
        ("5-", [(2, 4)]),
        ("1,9-", [(0, 0), (4, 4)]),
    ],
)
def test_ranges_go_by_the_ids_of_an_array(words: str, ranges: list[tuple[int, int]]) -> None:
    assert task_ranges(STEPS, words) == ranges


def test_a_range_of_a_group_names_the_group_once() -> None:
    assert task_ranges(GROUPS, "worker-a/1-3,head/0") == [(2, 4), (0, 0)]


def test_a_range_without_an_end_goes_to_the_last_task_of_its_group() -> None:
    assert task_ranges(GROUPS, "head/0-") == [(0, 0)]
    assert task_ranges(GROUPS, "worker-a/2-") == [(3, 4)]
    assert not names_one_task("worker-a/3-")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("-3", "write 1-3 for all up to 3, or 9 for the last one"),
        ("-", "a dash alone names no task"),
    ],
)
def test_a_range_without_a_begin_is_refused_as_it_has_two_meanings(words: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        task_ranges(STEPS, words)


def test_a_range_without_a_begin_in_a_group_is_shown_with_the_group() -> None:
    with pytest.raises(UserError, match="write worker-a/0-1 for all up to 1, or worker-a/3 for the last one"):
        task_ranges(GROUPS, "worker-a/-1")


@pytest.mark.parametrize("words", ["2", "1-8", "", "1,", "x-3", "-2", "2-", "1-3-5"])
def test_a_word_that_names_no_task_is_refused_with_those_there_are(words: str) -> None:
    with pytest.raises(NotFound, match="its tasks are 1 to 9"):
        task_ranges(STEPS, words)


def test_a_range_that_ends_before_it_begins_says_how_to_write_it() -> None:
    with pytest.raises(UserError, match=r"tasks '7-3': task 3 .* comes before task 7; write 3-7"):
        task_ranges(STEPS, "7-3")


@pytest.mark.parametrize(("words", "is_one"), [("3", True), ("worker-a/3", True), ("3-4", False), ("3,4", False)])
def test_one_task_is_neither_a_list_nor_a_range(words: str, is_one: bool) -> None:
    assert names_one_task(words) is is_one


@pytest.mark.parametrize(
    ("word", "job", "tasks"),
    [
        ("17", "17", ""),
        ("17/3", "17", "3"),
        ("last/3,7-9", "last", "3,7-9"),
        ("my job/worker-a/1-3", "my job", "worker-a/1-3"),
    ],
)
def test_a_word_names_a_job_and_after_a_slash_some_of_its_tasks(word: str, job: str, tasks: str) -> None:
    assert job_and_tasks(word) == (job, tasks)


def test_tasks_that_flags_name_are_meant_too() -> None:
    assert job_and_tasks("17/3", ["5", "7-9"]) == ("17", "3,5,7-9")
    assert job_and_tasks("17", ["5"]) == ("17", "5")


@pytest.mark.parametrize("word", ["6/,", "6/3,", "6/,3", "6/3, ,5"])
def test_a_comma_without_a_task_is_refused_in_words_of_the_command_line(word: str) -> None:
    with pytest.raises(UserError, match=r"^tasks '.*': a comma has no task beside it; write 3,5 for two tasks$"):
        job_and_tasks(word)


def test_a_name_that_no_task_can_have_is_cut_in_the_sentence() -> None:
    with pytest.raises(UserError, match=r"^tasks '9{79}: no task has so long a name; `yard show JOB --tasks` lists"):
        job_and_tasks("6/" + "9" * 301)


@pytest.mark.parametrize(("word", "missing"), [("17/", "no task after"), ("/3", "no job before"), ("/", "no job")])
def test_a_slash_with_nothing_at_one_side_says_what_is_missing(word: str, missing: str) -> None:
    with pytest.raises(UserError, match=f"{missing}.*17/3-7"):
        job_and_tasks(word)
