"""`yard run -- CMD ARGS`."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobyard.errors import UserError
from jobyard.manifests.command import spec_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.files import name_from_file
from jobyard.manifests.overrides import Overrides


def test_a_program_or_file_that_is_called_as_the_newest_job_gives_its_job_another_name() -> None:
    assert spec_from_command(("last", "-n1"), Overrides(), SubmitContext("/")).name == "last-command"
    assert name_from_file("jobs/last.txt") == "last-job"


def test_several_words_are_run_exactly_as_given(context: SubmitContext) -> None:
    spec = spec_from_command(["echo", "a | b", "$HOME"], Overrides(), context)
    assert spec.groups[0].command.argv == ("echo", "a | b", "$HOME")
    assert (spec.name, spec.size, spec.submitter.source) == ("echo", 1, "command")
    assert (spec.workdir, spec.submitter.user) == (context.workdir, "ada")
    assert spec.submitter.inherited_env == context.environ


@pytest.mark.parametrize("line", ["a | b", "echo $HOME", "ls;ls", "sleep 1", "ls>x", "echo 'a'", "ls *"])
def test_one_word_with_shell_characters_is_a_line_of_bash(line: str, context: SubmitContext) -> None:
    command = spec_from_command([line], Overrides(), context).groups[0].command
    assert (command.shell, command.argv) == (line, ())


@pytest.mark.parametrize("word", ["true", "./run.sh", "/bin/ls", "{}", "a-b_c.d"])
def test_one_plain_word_is_a_program(word: str, context: SubmitContext) -> None:
    assert spec_from_command([word], Overrides(), context).groups[0].command.argv == (word,)


def test_a_program_with_a_blank_in_its_name_is_a_program(context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "my job.sh").touch(0o755)
    assert spec_from_command(["./my job.sh"], Overrides(), context).groups[0].command.argv == ("./my job.sh",)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/usr/bin/python3", "x.py"], "x.py"),
        (["python", "-u", "src/train.py", "--lr", "0.1"], "train.py"),
        (["python3.11", "-X", "dev", "train"], "train"),
        (["python", "-m", "pkg.mod", "x.py"], "pkg.mod"),
        (["python", "-c", "print(1)"], "python"),
        (["python", "{}"], "python"),
        (["python"], "python"),
        (["bash", "x.sh"], "x.sh"),
        (["bash", "-e", "x.sh"], "x.sh"),
        (["bash", "-lc", "cd code && python train.py"], "train.py"),
        (["perl", "-ne", "print"], "perl"),
        (["env", "A=1", "python", "x.py"], "x.py"),
        (["env", "-u", "HOME", "./x"], "x"),
        (["env", "A=1"], "env"),
        (["nice", "-n", "5", "timeout", "-k", "5", "1h", "python", "x.py"], "x.py"),
        (["torchrun", "--nproc_per_node", "2", "t.py"], "t.py"),
        (["torchrun", "--standalone", "--nnodes=1", "t.py", "--epochs", "3"], "t.py"),
        (["torchrun", "--nproc_per_node", "2", "-m", "pkg.mod", "--lr", "1"], "pkg.mod"),
        (["python", "-m", "torch.distributed.run", "--nproc_per_node", "2", "t.py"], "t.py"),
        (["accelerate", "launch", "--num_processes", "4", "x.py"], "x.py"),
        (["mpirun", "-np", "4", "./a.out"], "a.out"),
        (["uv", "run", "x.py"], "x.py"),
        (["uv", "run", "--with", "torch", "python", "x.py"], "x.py"),
        (["uv", "run", "--frozen", "pytest"], "pytest"),
        (["uv", "sync"], "uv"),
        (["jupyter", "nbconvert", "--execute", "n.ipynb"], "jupyter"),
        (["SEED=1 ./train.sh | tee log"], "train.sh"),
        (["cd x && python a+b.py > log 2>&1"], "a+b.py"),
        (["for i in 1 2; do python x.py $i; done"], "x.py"),
        (["( cd x; ls )"], "ls"),
        (["( cd x )"], "cd"),
        (["echo 'open"], "echo"),
        (["-"], "-"),
    ],
)
def test_the_job_is_named_after_its_script_or_program(argv: list[str], name: str, context: SubmitContext) -> None:
    assert spec_from_command(argv, Overrides(), context).name == name


@pytest.mark.parametrize("argv", [[], [""], ["  "]])
def test_nothing_to_run_is_refused(argv: list[str], context: SubmitContext) -> None:
    with pytest.raises(UserError, match="nothing to run"):
        spec_from_command(argv, Overrides(), context)


def test_an_array_is_one_group_with_a_completion_per_id(context: SubmitContext) -> None:
    spec = spec_from_command(["true"], Overrides(array="0-9:3%2"), context)
    (group,) = spec.groups
    assert (group.count, group.completions, spec.policy.limit, spec.size) == (1, 4, 2, 4)
    assert [spec.label_of(number) for number in range(4)] == ["0", "3", "6", "9"]


def test_each_line_of_a_file_that_is_not_blank_is_a_row(context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "names").write_bytes(b"Ada\r\n\nGrace Hopper")
    spec = spec_from_command(["echo", "{}"], Overrides(each_line="names"), context)
    inputs = spec.groups[0].command.inputs
    assert inputs is not None
    assert [inputs.row(number).line for number in range(spec.size)] == ["Ada", "Grace Hopper"]


def test_a_command_with_nul_is_refused(context: SubmitContext) -> None:
    with pytest.raises(UserError, match="NUL"):
        spec_from_command(["echo", "\0"], Overrides(), context)
