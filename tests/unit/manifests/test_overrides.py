"""What flags change in a job."""

from __future__ import annotations

import base64
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders import a_job, with_words

from jobyard.errors import UserError
from jobyard.manifests.batch import FLAGS
from jobyard.manifests.command_names import name_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.files import name_from_file
from jobyard.manifests.notation import parse_after
from jobyard.manifests.overrides import Overrides, apply, merge
from jobyard.model.job import Command, Dependency, GroupSpec, JobSpec
from jobyard.model.limits import STDIN_BYTES_MOST
from jobyard.model.resources import Resources

ONE = JobSpec("job", (GroupSpec(Command(argv=("true",))),))
TWO = JobSpec(
    "job",
    (
        GroupSpec(Command(shell="a"), "a", env={"MODE": "slow"}),
        GroupSpec(Command(shell="b"), "b", resources=Resources(4000, 100, 2, 1000)),
    ),
    env={"SEED": "1"},
)


@pytest.mark.parametrize("name", ["last", " @ "])
def test_a_name_that_means_the_newest_job_is_refused(name: str, context: SubmitContext) -> None:
    with pytest.raises(UserError, match=r"--name: '.*' always means the newest job; choose another name"):
        apply(a_job(), Overrides(name=name), context)


@pytest.mark.parametrize("name", ["7", "007", " 12 "])
def test_a_name_that_is_a_number_of_a_job_is_refused(name: str, context: SubmitContext) -> None:
    with pytest.raises(UserError, match=r"--name: '.*' means the job with that number; choose another name"):
        apply(a_job(), Overrides(name=name), context)


def test_names_that_are_taken_from_a_file_or_program_are_no_number() -> None:
    assert [name_from_file(file) for file in ("7.txt", "7a.txt", "last")] == ["7-job", "7a", "last-job"]
    assert len(name_from_file("9" * 250)) <= 200
    assert name_from_command(Command(argv=("./7",))) == "7-command"


def test_no_flags_change_nothing(context: SubmitContext) -> None:
    assert apply(TWO, Overrides(), context) == TWO


def test_amounts_replace_those_of_every_group(context: SubmitContext) -> None:
    changed = apply(TWO, Overrides(cpus="0.1", mem="2G", gpus=1, gpu_mem="4G"), context)
    assert {group.resources for group in changed.groups} == {Resources(100, 2048, 1, 4096, memory_limit=True)}


def test_memory_that_is_asked_for_is_a_limit_and_nothing_else_is(context: SubmitContext) -> None:
    def limit(mem: str | None = None, mem_limit: str | None = None) -> bool | None:
        return apply(ONE, Overrides(mem=mem, mem_limit=mem_limit), context).groups[0].resources.memory_limit

    assert limit() is None
    assert limit(mem="2G") is True
    assert limit(mem="2G", mem_limit="on") is True
    assert limit(mem="2G", mem_limit="off") is False


def test_a_flag_with_more_memory_leaves_a_limit_off_that_the_file_left_off(context: SubmitContext) -> None:
    written = apply(ONE, Overrides(mem="2G", mem_limit="off"), context)
    assert apply(written, Overrides(mem="4G"), context).groups[0].resources.memory_limit is False
    assert apply(written, Overrides(mem_limit="on"), context).groups[0].resources.memory_limit is True


@pytest.mark.parametrize(("text", "says"), [("on", "no amount of memory"), ("x", "'x' is neither on nor off")])
def test_a_limit_of_nothing_is_refused(text: str, says: str, context: SubmitContext) -> None:
    with pytest.raises(UserError, match=f"--mem-limit: {says}"):
        apply(ONE, Overrides(mem_limit=text), context)


def test_gpu_memory_alone_means_one_gpu_but_keeps_more(context: SubmitContext) -> None:
    changed = apply(TWO, Overrides(gpu_mem="4G"), context)
    assert [group.resources.gpus for group in changed.groups] == [1, 2]


def test_no_gpus_takes_gpu_memory_away_too(context: SubmitContext) -> None:
    changed = apply(TWO, Overrides(gpus=0), context)
    assert {(group.resources.gpus, group.resources.gpu_memory_mib) for group in changed.groups} == {(0, 0)}


@pytest.mark.parametrize(("text", "percent"), [("0.5", 50), ("50%", 50), ("1", 100), ("100 %", 100), (".333", 34)])
def test_a_share_of_a_gpu_is_a_fraction_or_a_percentage(text: str, percent: int, context: SubmitContext) -> None:
    changed = apply(ONE, Overrides(gpu_util=text), context)
    assert changed.groups[0].resources == Resources(gpus=1, gpu_percent=percent)


def test_no_gpus_takes_the_share_of_compute_away_too(context: SubmitContext) -> None:
    shared = apply(ONE, Overrides(gpu_util="50%", gpu_mem="1G"), context)
    assert apply(shared, Overrides(gpus=0), context).groups[0].resources == Resources()


def test_a_whole_node_for_every_group(context: SubmitContext) -> None:
    changed = apply(TWO, Overrides(whole_node=True), context)
    assert all(group.resources.whole_node for group in changed.groups)


def test_several_places_are_named_once_each(context: SubmitContext) -> None:
    assert apply(ONE, Overrides(on="gpu1, gpu2,gpu1"), context).on == "gpu1,gpu2"


def test_paths_are_relative_to_the_working_directory_however_they_are_written(
    context: SubmitContext, tmp_path: Path
) -> None:
    (tmp_path / "sub" / "a b").mkdir(parents=True)
    flags = Overrides(workdir="sub", copy_forward=("a b/", str(tmp_path / "sub"), "./a b/.."), copy_backwards=("new",))
    changed = apply(ONE, flags, context)
    assert (changed.staging.copy_forward, changed.staging.copy_back) == (("a b", ".", "."), ("new",))


def test_nothing_is_copied_where_that_is_asked(context: SubmitContext) -> None:
    changed = apply(with_words(ONE, copy_forward=("a",), copy_back=("b",)), Overrides(no_copy=True), context)
    assert (changed.staging.copy_forward, changed.staging.copy_back, changed.staging.no_copy) == ((), (), True)


def test_a_variable_given_as_a_flag_wins_over_job_and_group(context: SubmitContext) -> None:
    changed = apply(TWO, Overrides(env=("SEED=2", "MODE=fast=1", "TOKEN")), context)
    assert changed.env == {"SEED": "2", "MODE": "fast=1", "TOKEN": "s3cret"}
    assert changed.groups[0].env == {}


def test_everything_else_a_flag_can_say(context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    flags = Overrides(
        name="n", priority=-3, timeout="1h", workdir="sub", after=("7",), retries=2, max_fails=1, on="gpu", limit=4
    )
    flags = merge(flags, Overrides(retry_delay="0"))
    changed = apply(ONE, flags, context)
    assert (changed.name, changed.policy.priority, changed.policy.timeout_seconds) == ("n", -3, 3600)
    assert changed.workdir == str(tmp_path / "sub")
    assert (changed.policy.retries, changed.policy.max_fails, changed.on, changed.policy.limit) == (2, 1, "gpu", 4)
    assert changed.policy.retry_delay_seconds == 0
    assert changed.after == (Dependency("7"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", [("12", True)]),
        ("afterok:12", [("12", True)]),
        ("afterany:train", [("train", False)]),
        ("afterok:1:2,afterany:3", [("1", True), ("2", True), ("3", False)]),
    ],
)
def test_dependencies_are_read_as_slurm_writes_them(text: str, expected: list[tuple[str, bool]]) -> None:
    assert [(item.job, item.needs_success) for item in parse_after((text,))] == expected


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"name": "a/b"}, "--name: 'a/b'"),
        ({"name": ""}, "--name: ''"),
        ({"timeout": "soon"}, "--timeout: cannot read 'soon'"),
        ({"timeout": "0"}, "--timeout: '0'"),
        ({"cpus": "many"}, "--cpus: cannot read 'many'"),
        ({"cpus": "-1"}, "--cpus: '-1'"),
        ({"mem": "lots"}, "--mem: cannot read 'lots'"),
        ({"mem": "-4G"}, "--mem: cannot read '-4G'"),
        ({"gpus": -1}, "--gpus: -1"),
        ({"gpu_mem": "x"}, "--gpu-mem: cannot read 'x'"),
        ({"gpus": 0, "gpu_mem": "4G"}, "--gpu-mem: '4G' of no GPU"),
        ({"gpus": "h100,a100:2"}, "--gpus: 'h100,a100' is no kind of GPU"),
        ({"gpus": "h100:many"}, "--gpus: cannot read 'many'"),
        ({"gpus": ":2"}, "--gpus: '' is no kind of GPU"),
        ({"gpus": 0, "gpu_type": "h100"}, "--gpu-type: 'h100' of no GPU"),
        ({"gpus": 0, "min_gpu_mem": "40"}, "--min-gpu-mem: '40' of no GPU"),
        ({"gpus": "a100:1", "gpu_type": "h100"}, "--gpu-type: 'h100' is not the 'a100' of --gpus"),
        ({"gpu_util": "x"}, "--gpu-util: cannot read 'x' as a share; write 0.5 or 50%"),
        ({"gpu_util": "75"}, "--gpu-util: '75' must be more than 0 and at most all of it; write 0.5 or 50%"),
        ({"gpu_util": "0"}, "--gpu-util: '0' must be more than 0"),
        ({"gpu_util": "150%"}, "--gpu-util: '150%'"),
        ({"gpus": 0, "gpu_util": "50%"}, "--gpu-util: '50%' of no GPU"),
        ({"on": ""}, "--on: a name is missing in ''"),
        ({"on": "a,,b"}, "--on: a name is missing in 'a,,b'"),
        ({"copy_forward": ("nope",)}, "--copy-forward: 'nope' does not exist"),
        ({"copy_forward": ("..",)}, "--copy-forward: '..' is not inside the working directory"),
        ({"copy_backwards": ("/etc",)}, "--copy-backwards: '/etc' is not inside the working directory"),
        ({"copy_backwards": ("",)}, "--copy-backwards: ''"),
        ({"no_copy": True, "copy_forward": (".",)}, "--no-copy and --copy-forward cannot be used together"),
        ({"no_copy": True, "copy_backwards": (".",)}, "--no-copy and --copy-backwards cannot be used together"),
        ({"env": ("NOPE",)}, "--env: NOPE is not set in this shell; write NOPE=VALUE"),
        ({"env": ("1A=2",)}, "--env: '1A' is not a variable's name"),
        ({"env": ("=2",)}, "--env: ''"),
        ({"env": ("YARD_TASK=2",)}, "--env: YARD_TASK is set by the yard itself"),
        ({"env": ("A=\0",)}, "NUL"),
        ({"workdir": "nowhere"}, "--workdir: 'nowhere' is not a directory"),
        ({"workdir": ""}, "--workdir: ''"),
        ({"array": "9-0"}, "--array: '9-0' runs backwards"),
        ({"array": "0-1", "each_line": "x"}, "cannot be used together"),
        ({"each_line": "nowhere.txt"}, "--each-line: 'nowhere.txt' does not exist"),
        ({"each_line": "."}, "--each-line: '.' is a directory"),
        ({"after": ("afternotok:1",)}, "--after: unknown kind 'afternotok'"),
        ({"after": ("afterok:",)}, "--after: no job is named"),
        ({"after": ("",)}, "--after: no job is named"),
        ({"retries": -1}, "--retries: -1"),
        ({"max_fails": -1}, "--max-fails: -1"),
        ({"limit": 0}, "--limit: 0"),
        ({"priority": 2**40}, "--priority"),
    ],
)
def test_a_bad_flag_gets_one_sentence_with_field_and_value(
    flags: dict[str, Any], says: str, context: SubmitContext
) -> None:
    with pytest.raises(UserError) as caught:
        apply(replace(ONE, workdir=context.workdir), Overrides(**flags), context)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_array_of_groups_is_refused(context: SubmitContext) -> None:
    with pytest.raises(UserError, match="the job has groups"):
        apply(TWO, Overrides(array="0-3"), context)


def test_an_empty_file_of_lines_is_refused(context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(UserError, match="'empty' is empty"):
        apply(ONE, Overrides(each_line="empty"), context)


def test_of_two_sets_of_flags_the_upper_one_wins_and_variables_add_up() -> None:
    below = Overrides(cpus="1", mem="1G", env=("A=1", "B=1"), after=("1",), retries=3)
    above = Overrides(cpus="2", env=("B=2",), after=("2",), retries=0)
    assert merge(below, above) == Overrides(cpus="2", mem="1G", env=("A=1", "B=1", "B=2"), after=("2",), retries=0)


def test_flags_are_spelled_as_on_the_command_line() -> None:
    assert FLAGS["--gpu-mem"] == "gpu_mem"
    assert FLAGS["--each-line"] == "each_line"
    assert FLAGS["--exclusive"] == FLAGS["--whole-node"] == "whole_node"
    assert FLAGS["-e"] == FLAGS["--env"] == "env"


def test_a_file_for_standard_input_is_kept_with_the_job(context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"one\0\xff")
    stdin = apply(ONE, Overrides(stdin="data"), context).staging.stdin
    assert stdin is not None
    assert base64.b64decode(stdin) == b"one\0\xff"
    assert apply(ONE, Overrides(), context).staging.stdin is None


def test_a_file_that_is_too_large_to_be_kept_is_refused_with_the_way_out(
    context: SubmitContext, tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(bytes(STDIN_BYTES_MOST + 1))
    with pytest.raises(UserError, match=r"^--stdin: 'data' has more than 1 MiB, .*: yard run -- 'CMD < FILE'$"):
        apply(ONE, Overrides(stdin="data"), context)
    (tmp_path / "data").write_bytes(bytes(STDIN_BYTES_MOST))
    assert apply(ONE, Overrides(stdin="data"), context).staging.stdin is not None


@pytest.mark.parametrize("flag", ["stdin", "each_line"])
def test_a_dash_is_the_standard_input_of_this_command(
    flag: str, context: SubmitContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("jobyard.manifests.files._refuse_endless", lambda place, *_: opened.append(place))
    with contextlib.suppress(UserError):  # pytest gives none to read
        apply(ONE, Overrides(**{flag: "-"}), context)
    assert opened == ["/dev/stdin"]


@pytest.mark.parametrize("text", ["50%", "+0", "-2", "+100%"])
def test_a_limit_is_a_number_and_not_a_share_of_some_cores(text: str, context: SubmitContext) -> None:
    with pytest.raises(UserError, match=r"--limit: \S+ is of the cores of one machine; write how many"):
        apply(a_job(9), Overrides(limit=text), context)


def test_a_limit_of_0_is_told_what_stands_for_no_limit(context: SubmitContext) -> None:
    with pytest.raises(UserError, match="--limit: 0 would run nothing; leave it out: as many tasks run as"):
        apply(a_job(9), Overrides(limit="0"), context)
