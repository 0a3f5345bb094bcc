from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobyard.errors import UserError
from jobyard.model.inputs import Column, Inputs, Source
from jobyard.model.job import ArrayRange, Command, Dependency, GroupSpec, JobSpec
from jobyard.model.limits import STDIN_BYTES_MOST, WORD_BYTES_MOST
from jobyard.model.lines import Lines
from jobyard.model.resources import Resources
from jobyard.model.training import Elastic
from jobyard.server.spec_checks import check_spec, check_submit, check_together
from jobyard.wire.requests import SubmitJob
from tests.builders import a_group, a_job, one_column


def rows(*columns: list[str], name: str = "") -> Inputs:
    return Inputs((Source(tuple(Column(Lines.of(values), name) for values in columns)),))


def an_array(*pieces: tuple[int, int, int], completions: int = 1, **group: Any) -> JobSpec:
    return a_job(groups=(replace(a_group(**group), array=ArrayRange(pieces), completions=completions),))


def commands(**command: Any) -> JobSpec:
    return a_job(groups=(GroupSpec(Command(**command)),))


@pytest.mark.parametrize(
    "spec",
    [
        a_job(),
        an_array((0, 9, 3), completions=4),
        an_array((0, 10, 2), (1, 9, 2), completions=11),
        a_job(groups=(a_group("a"), a_group("b"))),
        a_job(groups=(a_group(count=4096, cpus=0),), gang=True),
        a_job(groups=(a_group(gpus=2),), elastic=Elastic(gpus=(1, 4))),
        a_job(after=(Dependency("1"),) * 10_000),
        a_job(copy_forward=(".", "a/../b"), copy_back=("out",)),
        a_job(manifest='{"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}}'),
    ],
)
def test_what_makes_sense_is_taken(spec: JobSpec) -> None:
    check_spec(spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (an_array(), "its array has no ids"),
        (an_array((0, 1, 0)), "by 0; ids go up"),
        (an_array((0, 1, -1)), "ids go up"),
        (an_array((5, 1, 1)), "array ids 5 to 1"),
        (an_array((-1, 1, 1), completions=3), "ids go up from 0"),
        (an_array((0, 9, 1), completions=5), "10 array ids for 1 x 5 tasks"),
        (an_array((0, 9, 1), completions=10, count=2), "10 array ids for 2 x 10 tasks"),
        (an_array((0, 9, 1), (5, 5, 1), completions=11), "array id 5 stands twice"),
        (an_array(*((n, 10**6, 1001 + n) for n in range(2000)), completions=1), "array ids for"),
        (a_job(groups=(a_group("a"), a_group("a"))), "the name 'a'"),
        (a_job(groups=(a_group(count=4097, cpus=0),), gang=True), "gang of 4097 tasks; at most 4096"),
        (a_job(groups=(a_group(count=1_000_000, cpus=0),), gang=True), "gang of 1000000 tasks"),
        (a_job(after=tuple(Dependency(str(n)) for n in range(1001))), "comes after 1001 jobs; at most 1000"),
        (commands(), "no command"),
        (commands(argv=(" ", "x")), "the program's name is empty"),
        (commands(shell=" \n"), "the command is empty; write what to run"),
        (a_job(cluster="lab"), "cluster: the yard sets it by itself; leave it out"),
        (a_job(environment="0123"), "submitter.environment: the yard sets it"),
        (a_job(submitted_with="t1"), "submitter.submitted_with: the yard sets it"),
        (a_job(snapshot="ab"), "staging.snapshot: the yard sets it"),
        (a_job(on="gpu1,,gpu2"), "on: a name is missing in 'gpu1,,gpu2'"),
        (a_job(on=" "), "on: a name is missing"),
        (a_job(gang=True, limit=1), "policy.limit: a gang starts all its tasks together"),
        (a_job(2, gang=True, parallelism=1), "parallelism: a gang starts all its tasks together"),
        (a_job(no_copy=True, copy_back=("out",)), "staging.copy_back: with no_copy nothing is copied"),
        (a_job(no_copy=True, results_dir="/r"), "staging.results_dir: with no_copy nothing is copied"),
        (a_job(copy_forward=("",)), "an empty path names nothing; write . for all"),
        (a_job(gpu_mem=100), "resources.gpu_memory_mib of no GPU; leave it out or ask for a GPU"),
        (a_job(groups=(replace(a_group(), least_device_mib=1),)), "least_device_mib of no GPU"),
        (
            a_job(groups=(replace(a_group(), resources=Resources(memory_limit=True)),)),
            "no amount that could be a limit",
        ),
        (commands(argv=("a",), shell="b"), "argv and shell are two commands"),
        (commands(lines=Lines("a\nb")), "no newline"),
        (commands(lines=Lines("a\nb\n")), "2 lines for 1 tasks"),
        (commands(lines=Lines.of(["x" * 200_000])), "a line has 200000 characters"),
        (commands(shell="x", inputs=rows(["a", "b"])), "2 rows of inputs for 1 tasks"),
        (commands(shell="x", inputs=rows([])), "inputs: it has no values"),
        (commands(shell="x", inputs=rows(["a"], ["b", "c"])), "columns of 1 to 2 values"),
        (commands(shell="x", inputs=Inputs((Source((Column(Lines("a\nb")),)),))), "without a newline at its end"),
        (commands(shell="x", inputs=rows(["a"], name="a b")), "cannot name a column"),
        (commands(shell="x", inputs=rows(["a"], ["b"], name="a")), "inputs: two columns are called 'a'"),
        (commands(shell="x", inputs=Inputs(rows(["a"]).sources, ((0, 1),))), "rows 0 to 1 of 1 are chosen"),
        (commands(shell="x", inputs=Inputs(rows(["a"]).sources, ((0, 0), (0, 0)))), "name each once, in order"),
        (
            commands(shell="x", inputs=Inputs(8 * rows([*"0123456789"]).sources)),
            "100,000,000 tasks; at most",
        ),
        (commands(lines=Lines("a\n"), inputs=rows(["a"])), "inputs beside lines"),
        (commands(shell="x {2}", inputs=rows(["a"])), "there is no {2} here"),
        (commands(shell="bash -c 'x {1}'", inputs=rows(["a"])), "bash reads as code"),
        (commands(shell="x", inputs=one_column(Lines("a\nb\n"))), "2 rows of inputs for 1 tasks"),
        (a_job(env={"YARD_SPOOL": "/x"}), "YARD_SPOOL is set by the yard"),
        (a_job(groups=(replace(a_group(), env={"YARD_TASK": "7"}),)), "YARD_TASK is set by the yard"),
        (a_job(groups=(a_group(gpus=8),), elastic=Elastic(gpus=(1, 4))), "8 gpus is not in its range of 1 to 4"),
        (a_job(groups=(a_group(gpus=2),), elastic=Elastic(gpus=(4, 1))), "range of 4 to 1"),
        (a_job(3, elastic=Elastic(workers=(1, 3))), "only one training"),
        (a_job(copy_forward=("../secret",)), "'../secret' is not inside"),
        (a_job(copy_back=("/etc",)), "'/etc' is not inside"),
        (a_job(output="/w/x", error="/w/./x"), "error: '/w/./x' is the file of output by another name"),
        (a_job(manifest="[]"), "manifest: apiVersion, kind, metadata, spec missing"),
        (a_job(manifest='{"apiVersion": "v1", "kind": 3, "metadata": {}, "spec": {}}'), "manifest: kind missing"),
        (a_job(manifest="[" * 100_000), "manifest"),
    ],
)
def test_what_can_never_be_right_gets_one_sentence(spec: JobSpec, words: str) -> None:
    with pytest.raises(UserError) as caught:
        check_spec(spec)
    assert words in str(caught.value)


def test_a_job_without_groups_has_no_tasks() -> None:
    with pytest.raises(UserError, match="no tasks"):
        check_spec(JobSpec("x", ()))


def test_one_object_of_a_cluster_has_a_limit_of_its_own() -> None:
    with pytest.raises(UserError, match="at most 20000 start together"):
        check_together(a_job(groups=(a_group("a", count=30_000),), cluster="lab"))


@pytest.mark.parametrize("name", ["last", "@"])
def test_no_job_has_the_name_that_means_the_newest(name: str) -> None:
    with pytest.raises(UserError, match=f"name: '{name}' always means the newest job; choose another name"):
        check_spec(a_job(name=name))


def test_no_job_has_a_number_as_its_name() -> None:
    with pytest.raises(UserError, match="name: '7' means the job with that number; choose another name"):
        check_spec(a_job(name="7"))


class CountedText(str):
    """Knows how often it was searched; to split it would build every line."""

    searches = 0

    def rfind(self, *arguments: Any) -> int:
        self.searches += 1
        return super().rfind(*arguments)

    def split(self, *arguments: Any) -> Any:
        raise AssertionError("all lines were built at once")


def test_many_lines_are_looked_at_in_few_steps_and_never_built_all_at_once() -> None:
    text = CountedText("a line\n" * 100_000)
    check_spec(a_job(groups=(replace(GroupSpec(Command(lines=Lines(text))), completions=100_000),)))
    assert text.searches < 10


@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize("before", ["", "x\n", "x\n" * 100_000])
def test_a_line_may_be_as_long_as_linux_takes_it_wherever_it_stands(before: str, beyond: int) -> None:
    lines = Lines(before + "y" * (WORD_BYTES_MOST + beyond) + "\nz\n")
    assert lines.longer_than(WORD_BYTES_MOST) == (WORD_BYTES_MOST + 1 if beyond else 0)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (SubmitJob(a_job(), render=True), "render: .* say dry_run as well"),
        (SubmitJob(a_job(), key="once", dry_run=True), "key: a dry run makes no job"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(asked: SubmitJob, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check_submit(asked)


@pytest.mark.parametrize(
    ("stdin", "told"),
    [("no base64!", "is no base64"), ("A" * 4 * (STDIN_BYTES_MOST // 3 + 1), "at most 1048576 are possible")],
)
def test_standard_input_is_base64_of_a_bounded_size(stdin: str, told: str) -> None:
    check_spec(a_job(stdin="YQ=="))
    with pytest.raises(UserError, match=told):
        check_spec(a_job(stdin=stdin))
