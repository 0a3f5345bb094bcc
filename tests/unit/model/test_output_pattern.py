"""Where the output of each task goes."""

from __future__ import annotations

import os

import pytest

from jobyard.errors import UserError
from jobyard.model.output_pattern import TaskOutput, check_apart, check_pattern, expand
from tests.builders import a_group, a_job

NAMES = TaskOutput(17, "worker/3", "train", "gpu1", "ada")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/w/logs/%j_%t.out", "/w/logs/17_worker_3.out"),
        ("/w/%x/%A-%a.log", "/w/train/17-worker_3.log"),
        ("/w/%N/%u/100%%", "/w/gpu1/ada/100%"),
        ("/w/%6j.out", "/w/000017.out"),
        ("/w/{}.out", "/w/{}.out"),
        ("/w/../%j", "/w/../17"),  # the submitter wrote it so
    ],
)
def test_slurms_patterns(pattern: str, path: str) -> None:
    assert expand(pattern, NAMES) == path


def test_a_number_of_a_task_is_filled_up_and_a_name_is_not() -> None:
    assert expand("/%3t", NAMES._replace(task="7")) == "/007"
    assert expand("/%9x", NAMES) == "/train"


@pytest.mark.parametrize("name", ["..", ".", "../../etc/passwd", "/etc/passwd", "a\0b", ""])
def test_a_name_never_leads_to_another_directory(name: str) -> None:
    path = expand("/w/logs/%x", NAMES._replace(name=name))
    head, _, last = path.rpartition("/")
    assert head == "/w/logs"
    assert last not in ("", ".", "..")
    assert "\0" not in last


def test_a_long_name_is_cut_to_what_a_file_can_have() -> None:
    assert len(expand("/w/%x.out", NAMES._replace(name="ä" * 300)).encode()) <= 3 + 255
    assert expand("/w/%x.out", NAMES._replace(name="x" * 300)).endswith("x.out")


@pytest.mark.parametrize(
    "pattern", ["/w/%x%x_%t", "/w/%x%u_%a", "/w/%t/%x", "/w/%x.%N.%t.out", "/w/" + "y" * 250 + "%t"]
)
def test_tasks_have_a_file_each_however_long_the_names_are(pattern: str) -> None:
    names = NAMES._replace(name="ä" * 100, user="u" * 200, node="n" * 140)
    paths = [expand(pattern, names._replace(task=str(task))) for task in range(2000)]
    assert len(set(paths)) == 2000
    assert all(len(name.encode()) <= 255 for path in paths for name in path.split("/"))


def test_a_directory_whose_name_is_not_utf8_is_that_directory() -> None:
    path = os.fsdecode(b"/w/b\xff/%x/%t")
    assert os.fsencode(expand(path, NAMES._replace(name=os.fsdecode(b"\xe4"), task="3"))) == b"/w/b\xff/\xe4/3"


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("/w/%t", "/w/%a"),
        ("/w/x/%t", "/w/./x/%t"),
        ("/w/x/%t", "/w//x/%t"),
        ("/w/x/%t", "/w/y/../x/%t"),
        ("//w/%t", "/w/%t"),
        ("/w/%j_%t", "/w/%A_%t"),
        ("/w/train/%t", "/w/%x/%t"),
        ("/w/%2t", "/w/%t"),
        ("/w/%t", "/w/%t"),
    ],
)
def test_one_file_under_two_names_is_refused(output: str, error: str) -> None:
    spec = a_job(name="train", groups=(a_group(completions=100),), output=output, error=error)
    with pytest.raises(UserError, match="is the file of output by another name; leave it out: one file for both"):
        check_apart(spec, "--error")


@pytest.mark.parametrize(
    ("output", "error"),
    [("/w/%t", "/w/%t.err"), ("/w/%t", ""), ("", "/w/%t"), ("/dev/null", "/dev/null"), ("/w/%N/%t", "/w/%x/%t")],
)
def test_two_files_and_one_for_both_are_taken(output: str, error: str) -> None:
    check_apart(a_job(name="train", groups=(a_group(completions=100),), output=output, error=error), "--error")


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("/w/%s.out", "output: %s has no meaning in '/w/%s.out'; known: %j the job's number"),
        ("/w/50%", "output: % has no meaning"),
        ("/w/", "names no file"),
        ("", "names no file"),
        ("/w/%j.out", "all 2 tasks would write '/w/%j.out'; put %t"),
        ("/w/%t/../out", "all 2 tasks would write '/w/%t/../out'; put %t"),
        ("/w/" + "y" * 256 + "/%t", "output: a name of 256 bytes in '/w/y"),
    ],
)
def test_what_is_no_path_for_each_task_is_refused(pattern: str, told: str) -> None:
    with pytest.raises(UserError, match=told.replace(".", r"\.")):
        check_pattern(pattern, "output", 2)


def test_one_task_needs_no_pattern_and_everything_may_be_thrown_away() -> None:
    check_pattern("/w/train.out", "output", 1)
    check_pattern("/dev/null", "output", 1000)
