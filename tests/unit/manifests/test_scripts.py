"""A file that begins with #! is one script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobyard.errors import UserError
from jobyard.executors.environment import job_environment
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.input_words import InputWords
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import Command, GroupSpec, JobSpec, Script
from jobyard.model.own_command import own_values

if TYPE_CHECKING:
    from tests.unit.manifests.conftest import Load

SBATCH = """#!/bin/bash
#SBATCH --gres=gpu:2
#SBATCH --time=1:00:00
#YARD --gpus 1 --mem 4G
rm -rf build/*
for i in 1 2; do
  echo $i
done
"""


def script(spec: JobSpec) -> Script:
    (group,) = spec.groups
    assert group.command.script is not None
    return group.command.script


def test_an_sbatch_script_is_one_task_with_its_whole_text(load: Load) -> None:
    spec = load(SBATCH, "train.sh")
    assert (spec.size, spec.name, spec.submitter.source) == (1, "train", "script")
    assert script(spec) == Script("train.sh", SBATCH)
    assert spec.groups[0].command.lines is None


def test_directives_count_and_flags_win(load: Load) -> None:
    spec = load(SBATCH, "train.sh", Overrides(mem="1G"))
    assert (spec.groups[0].resources.gpus, spec.groups[0].resources.memory_mib) == (1, 1024)
    assert spec.policy.timeout_seconds == 3600
    assert spec.submitter.notes == ()


def test_an_array_of_a_script_runs_it_many_times(load: Load) -> None:
    spec = load(SBATCH, "train.sh", Overrides(array="0-9"))
    assert spec.size == 10
    assert script(spec).text == SBATCH


def test_lines_makes_a_list_of_it(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("#!/bin/bash\necho 1\necho 2\n")
    spec = spec_from_file(Path("jobs"), Overrides(), SubmitContext(str(tmp_path)), is_list=True)
    assert list(spec.groups[0].command.lines or ()) == ["echo 1", "echo 2"]


def test_a_script_that_holds_a_manifest_is_a_script_and_a_manifest_with_an_interpreter_is_none(load: Load) -> None:
    text = "#!/bin/sh\ncat <<E\napiVersion: v1\nkind: Pod\nE\n"
    assert load(text, "make-pod").submitter.source == "script"
    assert load("#!/usr/bin/env -S yard run\ncommand: echo hello\n", "hello.yaml").submitter.source == "native"


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("#!/bin/bash", ("/bin/bash",)),
        ("#! /usr/bin/env python3 ", ("/usr/bin/env", "python3")),
        ("#!/usr/bin/env -S python3 -u", ("/usr/bin/env", "-S python3 -u")),
        ("#!/bin/sh -e\r", ("/bin/sh", "-e")),
    ],
)
def test_the_first_line_is_read_as_linux_reads_it(first: str, words: tuple[str, ...]) -> None:
    assert Script("x", f"{first}\ntrue\n").interpreter == words


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.sh", "#!\ntrue\n", "names no interpreter"),
        ("x.sh", "#!/bin/sh\n" + "# long\n" * 20_000, "more than 120 KiB cannot travel"),
        ("a b.py", "print(1)\n", "yard run -- python 'a b.py'"),
        ("x.csv", "a,b\n1,2\n", "yard run --each-line x.csv -- CMD {}"),
        ("x.ipynb", '{"cells": []}', "yard run -- jupyter nbconvert"),
        ("Makefile", "all:\n\techo\n", "yard run -- make -f Makefile"),
        ("x.R", "print(1)\n", "yard run -- Rscript x.R"),
        ("x.cpp", "int main() {}\n", "is source code"),
        ("Dockerfile", "FROM x\n", "yard build"),
        ("job.slurm", "#SBATCH -n 1\nrm x\n", "begin it with #!/bin/bash"),
        ("tool", b"\x7fELF\0\1", "yard run -- ./tool"),
    ],
)
def test_what_is_neither_script_nor_list_is_refused_with_the_way_to_run_it(
    load: Load, name: str, text: str | bytes, says: str
) -> None:
    with pytest.raises(UserError) as caught:
        load(text, name)
    assert says in str(caught.value)


def test_only_a_script_has_arguments(tmp_path: Path) -> None:
    for name, program in (("jobs.sh", "bash"), ("train.py", "python")):
        (tmp_path / name).write_text("echo 1\n")
        with pytest.raises(UserError, match=rf"one FILE at a time.*yard run -- {program} {name} one 'two 2'"):
            spec_from_file(Path(name), Overrides(), SubmitContext(str(tmp_path)), arguments=["one", "two 2"])


def test_a_script_says_by_itself_which_values_its_tasks_have(load: Load) -> None:
    spec = load("#!/bin/sh\n#YARD --sweep lr=0.1,1e-3 --sweep seed=0..1\necho $YARD_PARAM_lr\n", name="s.sh")
    assert [own_values(spec, number) for number in (0, 3)] == [{"lr": "0.1", "seed": "0"}, {"lr": "1e-3", "seed": "1"}]
    assert not spec.submitter.notes


def test_how_values_are_cut_may_stand_in_a_script_and_the_values_after_it(load: Load) -> None:
    inputs = (InputWords(":::", ("a,b", "1,2")),)
    spec = load("#!/bin/sh\n#YARD --header --colsep ,\necho $1\n", name="s.sh", overrides=Overrides(inputs=inputs))
    assert own_values(spec, 0) == {"a": "1", "b": "2"}
    assert spec.groups[0].command.argv == ("{}",)


@pytest.mark.parametrize(
    ("rest", "is_for_sbatch"),
    [
        ("#SBATCH -c 2\ntrue\n", True),
        ("\n  # why\r\n#SBATCH\r\ntrue\n", True),
        ("#SBATCH --time=1", True),
        ("#SBATCHX -c 2\ntrue\n", False),
        ("true\n#SBATCH -c 2\n", False),
        ("cat > other.sh <<END\n#SBATCH -c 2\nEND\n", False),
    ],
)
def test_a_script_is_for_sbatch_by_the_lines_before_its_first_command(rest: str, is_for_sbatch: bool) -> None:
    text = f"#!/bin/bash\n{rest}"
    assert Script("x", text).is_for_sbatch is is_for_sbatch
    task = JobSpec("x", (GroupSpec(Command(script=Script("x", text))),))
    assert ("SLURM_JOB_ID" in job_environment("ab", 7, task)) is is_for_sbatch
