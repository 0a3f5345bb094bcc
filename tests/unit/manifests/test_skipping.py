"""Tasks that need not run: the others keep their values and their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobyard.errors import NothingLeft, UserError
from jobyard.manifests.command import spec_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.input_words import split_inputs
from jobyard.manifests.overrides import Overrides
from jobyard.manifests.skipping import only
from jobyard.model.job import JobSpec
from jobyard.model.own_command import own_command
from jobyard.server.spec_checks import check_spec


def a_job(line: str, context: SubmitContext, **flags: Any) -> JobSpec:
    words, inputs = split_inputs(line.split())
    spec = spec_from_command(words, Overrides(**flags, inputs=inputs), context)
    check_spec(spec)
    return spec


def commands(spec: JobSpec) -> list[str]:
    return [own_command(spec, number) for number in range(spec.size)]


def test_a_task_whose_file_is_there_is_left_out(context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("b-1.npz", "c-2.npz"):
        (tmp_path / "out" / name).touch()
    line = "mk {#} {1} {2} ::: x/b.a c ::: 1 2"
    spec = a_job(line, context, skip_existing="out/{1/.}-{2}.npz")
    assert commands(spec) == ["mk 2 x/b.a 2", "mk 3 c 1"]  # {#} is as it was
    (note,) = spec.submitter.notes
    assert note == "--skip-existing: 2 of 4 tasks have their file already, and are left out"
    assert commands(a_job(line, context, skip_existing="no/{1/}")) == commands(a_job(line, context))


def test_where_all_files_are_there_nothing_is_left(context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(NothingLeft, match="all 1 tasks have their file already; nothing was submitted"):
        a_job("x {} ::: a", context, skip_existing="{}")


def test_a_manifest_leaves_out_the_same(load: Any, tmp_path: Path) -> None:
    (tmp_path / "1").touch()
    text = "command: x {n}\nsweep: {n: 1..3}\nskip_existing: '%s'\n"
    assert commands(load(text % "{n}")) == ["x 2", "x 3"]
    with pytest.raises(UserError, match=r"line 3: skip_existing: there is no \{m\} here"):
        load(text % "{m}")


@pytest.mark.parametrize(
    ("line", "pattern", "sentence"),
    [
        ("x", "{}", "have no values to name a file by"),
        ("x ::: a", "out.npz", "names no file of one task"),
        ("x ::: a", "{%}", "names no file of one task"),
        ("x ::: a", "{2}", "there is no {2} here"),
    ],
)
def test_a_pattern_that_names_no_file_of_a_task_is_refused(
    line: str, pattern: str, sentence: str, context: SubmitContext
) -> None:
    with pytest.raises(UserError) as refused:
        a_job(line, context, skip_existing=pattern)
    assert sentence in str(refused.value)


def test_what_is_left_can_be_cut_again(context: SubmitContext) -> None:
    spec = a_job("x {#} ::: a b c d e f", context)
    some = only(spec, lambda number: number % 3 != 1, "f", "w")
    assert commands(some) == ["x 1", "x 3", "x 4", "x 6"]
    assert commands(only(some, lambda number: number != 1, "f", "w")) == ["x 1", "x 4", "x 6"]
    with pytest.raises(UserError, match="all have the same command"):
        only(spec_from_command(["x"], Overrides(array="0-3"), context), bool, "--resume", "w")
