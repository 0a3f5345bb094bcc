from __future__ import annotations

from pathlib import Path

import pytest

from jobyard.compat.ml_scheduler.batch import (
    NOTHING,
    BatchContext,
    Line,
    has_results,
    read_lines,
    remote_run,
    runs_of,
    set_aside,
)
from jobyard.compat.ml_scheduler.flags import Copies, parse_batch
from jobyard.errors import UserError
from jobyard.model.job import JobSpec
from jobyard.model.resources import Resources
from jobyard.staging.layout import ResultPaths, name_of, results_paths

TEXT = "echo one\n\n# a comment\n  echo four && exit 1  \n"


def lines_of(text: str, *words: str, file: str = "example/batch_script.sh") -> list[Line]:
    return read_lines(parse_batch([file, *words, "--machines", "m"]), text)


def home_of(spec: JobSpec, label: str) -> ResultPaths:
    return results_paths(spec.staging.results_dir, "j1", spec, label, name=name_of(spec, label))


@pytest.fixture
def context(home: Path) -> BatchContext:
    return BatchContext(str(Path.cwd()), str(home), "ben")


def test_lines_keep_their_number_in_the_file_and_blank_ones_are_not_run() -> None:
    lines = lines_of(TEXT)
    assert [(line.number, line.name, line.command) for line in lines] == [
        (1, "example_batch_script.sh.1", "echo one"),
        (4, "example_batch_script.sh.4", "echo four && exit 1"),
    ]


def test_a_batch_is_one_job_whose_tasks_are_labelled_by_line(context: BatchContext) -> None:
    (run,) = runs_of("example_batch_script.sh", lines_of(TEXT), Resources(gpus=1), "m1,m2", context)
    spec = run.spec
    assert [spec.label_of(number) for number in range(spec.size)] == ["1", "4"]
    assert spec.number_of("4") == 1
    assert (spec.on, spec.submitter.source, spec.policy.overcommit) == ("m1,m2", "ml-scheduler", True)
    assert spec.groups[0].resources == Resources(gpus=1)
    assert spec.workdir == context.here
    assert (spec.staging.copy_forward, spec.staging.copy_back) == ((), (".",))
    assert not spec.submitter.inherited_env
    paths = home_of(spec, "4")
    assert paths.directory == Path(context.here, "job_results/example_batch_script.sh.4")
    assert paths.out == Path(context.here, "job_results/example_batch_script.sh.4.out")


def test_named_paths_go_along_and_come_home(context: BatchContext) -> None:
    Path("src").mkdir()
    Path("with space.txt").write_text("x")
    words = ["--copy-forward", "src", "with space.txt", "--copy-backwards", "out"]
    (run,) = runs_of("b", lines_of("true\n", *words), Resources(), "m", context)
    assert (run.spec.staging.copy_forward, run.spec.staging.copy_back) == (("src", "with space.txt"), ("out",))
    with pytest.raises(UserError, match="--copy-forward: 'nowhere' does not exist"):
        runs_of("b", lines_of("true\n", "--copy-forward", "nowhere"), Resources(), "m", context)


def test_copying_nothing_is_an_empty_tree_from_which_nothing_comes(context: BatchContext) -> None:
    line = Line(0, "one", "true", "true", Copies((), ()))
    spec = remote_run(line, Resources(cpu_millis=0), "m", context).spec
    assert (spec.workdir, spec.staging.copy_forward, spec.staging.copy_back) == (context.empty, (), NOTHING)
    assert home_of(spec, "0").directory == Path(context.here, "job_results/one")


def test_only_the_directory_counts_as_results(context: BatchContext) -> None:
    (first, last) = lines_of(TEXT)
    Path("job_results/example_batch_script.sh.1").mkdir(parents=True)
    Path("job_results/example_batch_script.sh.4.out").write_text("old")
    assert has_results(context.here, first)
    assert not has_results(context.here, last)


def test_output_whose_results_were_deleted_is_kept_under_another_name(context: BatchContext) -> None:
    line = lines_of(TEXT)[1]
    out = Path("job_results/example_batch_script.sh.4.out")
    out.parent.mkdir()
    for text in ("first", "second"):
        out.write_text(text)
        set_aside(context.here, line)
    assert not out.exists()
    assert [Path(f"{out}.{number}").read_text() for number in (1, 2)] == ["first", "second"]


KABUKI = """execute_remote --copy-forward *.py --copy-backwards out.txt --verbose 'python a.py && echo "x y"'
execute_remote "python b.py"
execute_remote --job-name mine "python c.py" --machine ignored.yaml
"""


def test_a_line_may_be_an_execute_remote_command_of_its_own(context: BatchContext) -> None:
    for name in ("b.py", "a.py"):
        Path(name).write_text("")
    lines = lines_of(KABUKI, "--kabuki-commands", "--copy-backwards", "results", file="jobs.sh")
    assert [line.name for line in lines] == ["jobs.sh.1", "jobs.sh.2", "mine"]
    assert lines[0].command == 'python a.py && echo "x y"'
    assert lines[0].copies == Copies(("a.py", "b.py"), ("out.txt",))
    assert lines[1].copies == Copies(("./",), ("results",))
    runs = runs_of("jobs.sh", lines, Resources(), "m", context)
    found = [home_of(run.spec, run.spec.label_of(0)).directory.name for run in runs]
    assert found == ["jobs.sh.1", "jobs.sh.2", "mine"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("execute_remote --nonsense x\n", "jobs.sh: line 1: "),
        ("true\nexecute_remote 'open quote\n", "jobs.sh: line 1: "),
        ("execute_remote --job-name a x\n\nexecute_remote --job-name a y\n", "line 3: its results are called 'a'"),
    ],
)
def test_a_bad_execute_remote_line_is_told_with_its_number(text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        lines_of(text, "--kabuki-commands", file="jobs.sh")
