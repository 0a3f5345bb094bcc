"""A file that begins with #! is one script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import JobSpec, Script

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


def test_directives_count_and_sbatch_lines_are_named(load: Load) -> None:
    spec = load(SBATCH, "train.sh", Overrides(mem="1G"))
    assert (spec.groups[0].resources.gpus, spec.groups[0].resources.memory_mib) == (1, 1024)
    (note,) = spec.submitter.notes
    assert "not honoured (--gres=gpu:2, --time=1:00:00)" in note


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
