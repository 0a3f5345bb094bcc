"""A script runs whole, as it was when it was submitted; lines of data never become code."""

from __future__ import annotations

import os

import pytest

from tests.yards import TemporaryYard

WHOLE = """#!/bin/bash
#SBATCH --job-name=fit --cpus-per-task=1
#SBATCH --time=5
#SBATCH --partition=gpu
set -e
dir=$(mktemp -d)
cd "$dir"
rm -f *
for word in "$@"; do
  echo "<$word>"
done
echo "$YARD_TASK ${YARD_SCRIPT-gone}"
echo "$SLURM_JOB_ID $SLURM_JOB_NAME $SLURM_CPUS_PER_TASK ${SLURM_NTASKS-} $SLURM_SUBMIT_DIR"
"""


def test_a_script_for_sbatch_runs_whole_and_deletes_nothing_here(yard: TemporaryYard) -> None:
    kept = yard.write("kept.txt", "mine")
    script = yard.write("whole.sh", WHOLE)
    done = yard.ok("run", script, "one", "two  words", "--", "--flag", "$(touch bad)")
    number = yard.json("show", "fit")["number"]
    said = f"0 gone\n{number} fit 1  {yard.work}\n"
    assert done.out == f"<one>\n<two  words>\n<--flag>\n<$(touch bad)>\n{said}"
    assert "of its #SBATCH lines these are not honoured: --partition=gpu" in done.err
    assert (yard.work / kept).read_text() == "mine"
    assert not (yard.work / "bad").exists()


def test_a_script_starts_in_the_directory_it_was_submitted_from(yard: TemporaryYard) -> None:
    assert yard.ok("run", yard.write("where.sh", "#!/bin/sh\npwd\n")).out == f"{yard.work}\n"


def test_a_script_is_run_by_its_own_interpreter_and_exits_as_it_does(yard: TemporaryYard) -> None:
    script = yard.write("count.py", "#!/usr/bin/env python3\nimport sys\nprint(sys.argv[1:])\nsys.exit(7)\n")
    done = yard.run("run", "--exit-code", script, "a b")
    assert (done.code, done.out) == (7, "['a b']\n")


def test_an_edit_after_the_submit_changes_nothing(yard: TemporaryYard) -> None:
    os.mkfifo(yard.work / "go")
    script = yard.write("edited.sh", '#!/bin/bash\nread -r line <go\necho "before $line"\n')
    job = yard.submit(script)
    yard.write("edited.sh", "#!/bin/bash\necho after\n")
    (yard.work / "go").write_text("now\n")
    yard.ok("wait", job)
    assert yard.logs(job) == "before now\n"


def test_an_array_of_a_script_and_lines_for_a_script(yard: TemporaryYard) -> None:
    script = yard.write("each.sh", '#!/bin/sh\necho "$SLURM_ARRAY_TASK_ID:$YARD_LINE:$1"\n')
    yard.ok("run", "-a", "2-4", "--cpus", "0.1", script, "x")
    assert sorted(yard.logs().splitlines()) == ["2| 2::x", "3| 3::x", "4| 4::x"]
    names = yard.write("data.txt", "plain\n$(touch bad) `touch bad`\n")
    yard.ok("run", "--each-line", names, "--cpus", "0.1", script, "<{}>")
    assert sorted(yard.logs().splitlines()) == [
        "0| :plain:<plain>",
        "1| :$(touch bad) `touch bad`:<$(touch bad) `touch bad`>",
    ]
    assert not (yard.work / "bad").exists()


def test_lines_makes_a_list_of_a_script(yard: TemporaryYard) -> None:
    yard.ok("run", "--lines", yard.write("list.sh", "#!/bin/bash\necho 1\necho 2\n"))
    assert sorted(yard.logs().splitlines()) == ["0| 1", "1| 2"]


def test_a_script_comes_from_stdin_too(yard: TemporaryYard) -> None:
    assert yard.ok("run", "-", "x", input='#!/bin/sh\nA=1\necho "$A $1"\n').out == "1 x\n"


def test_an_option_that_is_meant_for_the_script_is_told_where_to_stand(yard: TemporaryYard) -> None:
    done = yard.run("run", yard.write("opt.sh", "#!/bin/sh\n"), "--lr", "0.1")
    assert done.code == 2
    assert "yard run FILE -- --lr" in done.err


@pytest.mark.parametrize("command", ['echo "file: {}"', "echo 'file: {}'", "echo file:\\ {}"])
def test_no_line_of_a_file_becomes_code(yard: TemporaryYard, command: str) -> None:
    lines = ["$(touch bad)", "`touch bad`", "'; touch bad; '", '"; touch bad; "', "a;touch bad"]
    yard.ok("run", "--each-line", yard.write("lines.txt", "\n".join(lines) + "\n"), "--", command)
    assert sorted(yard.logs().splitlines()) == [f"{number}| file: {line}" for number, line in enumerate(lines)]
    assert not (yard.work / "bad").exists()


@pytest.mark.parametrize(
    "words", [["bash", "-c", "echo {}"], ["bash -c 'echo {}'"], ["python3", "-c", "print('{}')"], ["echo $(cat {})"]]
)
def test_where_a_line_would_be_code_nothing_is_submitted(yard: TemporaryYard, words: list[str]) -> None:
    before = len(yard.json("ls", "-a"))
    done = yard.run("run", "--each-line", yard.write("one.txt", "x\n"), "--", *words)
    assert (done.code, done.stdout) == (2, b"")
    assert "YARD_LINE" in done.err
    assert len(yard.json("ls", "-a")) == before
