"""#SBATCH lines of a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.overrides import Overrides
from jobyard.manifests.written import Written
from jobyard.model.job import Dependency, JobSpec
from jobyard.model.resources import Resources

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.manifests.conftest import Load

WHOLE = """#!/bin/bash
#SBATCH --job-name=fit        # a comment
#SBATCH --array=0-9%2
#SBATCH --cpus-per-task=4 --mem=24G
#SBATCH --gres=gpu:2
#SBATCH --time 2-12:00:00
#SBATCH --dependency=afterok:17:18,afterany:19
#SBATCH --chdir=code
#SBATCH --requeue
#SBATCH --export=ALL,SEED=1

# Comments and blank lines may stand between.
#SBATCH --nodes=1 --ntasks=1
#SBATCH --partition=gpu
#SBATCH -A lab
#SBATCH --mail-type=END,FAIL
echo begin
"""


def script(*options: str) -> str:
    return "#!/bin/bash\n" + "".join(f"#SBATCH {option}\n" for option in options) + "true\n"


def amounts(spec: JobSpec) -> Resources:
    (group,) = spec.groups
    return group.resources


def test_a_whole_script_of_slurm_is_read(load: Load, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    spec = load(WHOLE, "x.sh")
    assert (spec.name, spec.size, spec.policy.limit) == ("fit", 10, 2)
    assert amounts(spec) == Resources(4000, 24 * 1024, 2, memory_limit=True)
    assert spec.policy.timeout_seconds == 60 * 3600
    assert spec.after == (Dependency("17"), Dependency("18"), Dependency("19", needs_success=False))
    assert spec.workdir == str(tmp_path / "code")
    assert spec.env == {"SEED": "1", "SLURM_CPUS_PER_TASK": "4"}
    assert spec.submitter.inherited_env == {"HOME": "/home/ada", "TOKEN": "s3cret"}
    (note,) = spec.submitter.notes
    assert note.endswith("not honoured: --account=lab, --mail-type=END,FAIL, --partition=gpu")


def test_the_short_options_mean_the_same(load: Load, tmp_path: Path) -> None:
    spec = load(
        script("-J fit", "-a 1,5", "-c4", "-t 90", "-d afterok:17", f"-D {tmp_path}", "-G 1", "-n1 -N 1"), "x.sh"
    )
    assert (spec.name, spec.size, spec.policy.timeout_seconds) == ("fit", 2, 5400)
    assert (amounts(spec).cpu_millis, amounts(spec).gpus) == (4000, 1)
    assert spec.after == (Dependency("17"),)
    assert spec.submitter.notes == ()


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("1:00:00", 3600),
        ("2-12", 60 * 3600),
        ("2-12:30", 60.5 * 3600),
        ("2-12:00:00", 60 * 3600),
        ("100:00:00", 360_000),
        ("0", None),
        ("UNLIMITED", None),
    ],
)
def test_a_time_is_slurms_where_a_number_alone_is_minutes(time: str, seconds: float | None, load: Load) -> None:
    assert load(script(f"--time={time}"), "x.sh").policy.timeout_seconds == seconds


@pytest.mark.parametrize(
    ("options", "cores", "mib", "gpus"),
    [
        (("--mem=4000",), 1, 4000, 0),
        (("--mem-per-cpu=2G", "-c 4"), 4, 8192, 0),
        (("--mem-per-gpu=10G", "--gpus=a100:2"), 1, 20480, 2),
        (("--mem=0",), 1, 0, 0),
        (("--ntasks=4", "-c 2", "--mem-per-cpu=1G"), 8, 8192, 0),
        (("--ntasks-per-node=4", "--gpus-per-task=1"), 4, 0, 4),
        (("--gres=gpu:a100:2,nvme:1",), 1, 0, 2),
        (("--gres=gpu",), 1, 0, 1),
        (("--gres=none",), 1, 0, 0),
        (("--gpus-per-node=2",), 1, 0, 2),
        (("-c 2", "-c 3"), 3, 0, 0),
    ],
)
def test_amounts_are_those_of_all_that_the_script_may_start(
    options: tuple[str, ...], cores: int, mib: int, gpus: int, load: Load
) -> None:
    got = amounts(load(script(*options), "x.sh"))
    assert (got.cpu_millis, got.memory_mib, got.gpus) == (cores * 1000, mib, gpus)


def test_words_of_the_command_line_win_also_where_an_amount_depends_on_them(load: Load) -> None:
    text = script("-c 2", "--mem-per-cpu=1G", "--time=10", "-J there", "--array=0-9")
    spec = load(text, "x.sh", Overrides(cpus="8", name="here", timeout="5s", array="1-2"))
    assert (spec.name, spec.size, spec.policy.timeout_seconds) == ("here", 2, 5)
    assert (amounts(spec).cpu_millis, amounts(spec).memory_mib) == (8000, 8192)


def test_a_line_for_yard_wins_over_one_for_slurm(load: Load) -> None:
    assert amounts(load("#!/bin/sh\n#YARD --cpus 0.5\n#SBATCH -c 4\ntrue\n", "x.sh")).cpu_millis == 500


def test_files_for_output_are_patterns_as_slurm_has_them(load: Load) -> None:
    spec = load(script("-o logs/%A_%a.out", "--error=logs/%A_%a.err", "--array=0-9"), "x.sh")
    assert (spec.submitter.notes, spec.size) == ((), 10)
    assert "logs/%A_%a.out" in repr(spec)
    assert "logs/%A_%a.err" in repr(spec)


def test_several_tasks_are_one_run_with_room_for_all_and_a_note(load: Load) -> None:
    spec = load(script("--ntasks=4"), "x.sh")
    (note,) = spec.submitter.notes
    assert spec.size == 1
    assert note.startswith("--ntasks=4: the script runs once, as with sbatch, and has 4 cores; what srun would start")


def test_several_nodes_are_refused_unless_workers_are_asked_for(load: Load) -> None:
    text = script("--nodes=2 --ntasks-per-node=2 --gpus=8")
    with pytest.raises(UserError, match=r"^x.sh: line 2: --nodes=2: a script runs on one node; .*--workers 2"):
        load(text, "x.sh")
    spec = load(text, "x.sh", Overrides(workers="2"))
    assert (spec.gang, spec.size) == (True, 2)
    assert (amounts(spec).cpu_millis, amounts(spec).gpus) == (2000, 4)


@pytest.mark.parametrize(("export", "kept"), [("NONE", {}), ("HOME,X=1", {"HOME": "/home/ada"}), ("NIL", {})])
def test_an_export_without_all_leaves_the_shells_variables_out(export: str, kept: dict[str, str], load: Load) -> None:
    assert load(script(f"--export={export}"), "x.sh").submitter.inherited_env == kept


def test_directives_end_at_the_first_command_and_a_later_one_is_noted(load: Load) -> None:
    spec = load("#!/bin/bash\n\nset -e\n#SBATCH -c 4\n#YARD --gpus 1\n", "x.sh")
    assert (amounts(spec).cpu_millis, amounts(spec).gpus) == (1000, 0)
    (note,) = spec.submitter.notes
    assert note.startswith("x.sh: line 4: a directive counts only before the first command, which is in line 3")


def test_a_script_that_calls_srun_is_told_that_there_is_none(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    (note,) = load("#!/bin/bash\nsrun python x.py\n", "x.sh").submitter.notes
    assert note.startswith("x.sh: line 2: there is no srun here; without the word")


def test_what_looks_like_a_directive_is_none(load: Load) -> None:
    spec = load("#!/bin/bash\n##SBATCH -c 4\n #SBATCH -c 5\n# #SBATCH -c 6\n#SBATCHX -c 7\ntrue\n", "x.sh")
    assert amounts(spec).cpu_millis == 1000
    assert spec.submitter.notes == ()


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--time=soon", "--time=soon: it is no time; write minutes, MM:SS"),
        ("--time=1:2:3:4", "it is no time"),
        ("--time", "--time: needs a value; write --time=VALUE"),
        ("-c two", "--cpus-per-task=two: write a whole number from 1 on"),
        ("--gpus=many", "--gpus=many: write a number of GPUs"),
        ("--mem=much", "--mem=much: write a size such as 512M or 24G"),
        ("--mem=4G --mem-per-cpu=1G", "--mem-per-cpu=1G: it cannot stand beside --mem"),
        ("--dependency=afternotok:7", "--dependency=afternotok:7: unknown kind 'afternotok'"),
        ("--dependency=afterok:7?afterok:8", "one of several jobs cannot be waited for"),
        ("--dependency=singleton", "nothing waits for jobs of the same name here"),
        ("--array=9-0", "--array=9-0: '9-0' runs backwards"),
        ("--chdir=/nowhere", "--chdir=/nowhere: '/nowhere' is not a directory"),
        ("--nodes=many", "--nodes=many: write a number of nodes"),
        ("--job-name='open", "cannot read the #SBATCH line: no closing quotation"),
        ("gpu", "#SBATCH gpu: an option begins with a dash"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_guessed(option: str, says: str, load: Load) -> None:
    with pytest.raises(UserError) as refused:
        load(script(option), "x.sh")
    assert str(refused.value).startswith("x.sh: line 2: ")
    assert says in str(refused.value)


def test_a_refusal_of_the_server_names_the_line(load: Load, tmp_path: Path) -> None:
    spec = load(script("-J x", "--dependency=afterok:99"), "x.sh")
    written = Written(Overrides(), "x.sh", SubmitContext(str(tmp_path)))
    refused = UserError("there is no job 99", field="--after")
    assert written.sentence(refused, spec) == "x.sh: line 3: --after: there is no job 99"
