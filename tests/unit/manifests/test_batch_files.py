"""A file with one bash command per line."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.errors import UserError
from jobyard.manifests.batch import first_unreadable, physical_lines
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import JobSpec
from jobyard.model.resources import Resources

if TYPE_CHECKING:
    from tests.unit.manifests.conftest import Load


COMPLETE = [
    "true",
    "echo a # with a comment",
    "a | b",
    "f() { x; }; f",
    "(cd x && y)",
    "echo 'a b' > c 2>&1",
    "for i in 1 2; do echo $i; done",
    'cat <<< "x"',
    "A=1 b c",
    "time ls",
    "! x",
    "a &",
    "[[ a == b ]] && c",
    "echo a\\\\",
    "echo \\}",
    "{ a; }",
    "  indented",
    "echo grün",
    "x;",
    "if a; then b; fi",
    "echo }",
    "echo $((1 + 2)) ${x:-y} `ls`",
]
INCOMPLETE = [
    'echo "a',
    "echo 'a",
    "echo a \\",
    "a\\\\\\",
    "cat <<EOF",
    "for i in 1 2; do",
    "done",
    "}",
    "}; exit 3; {",
    "} ; g() {",
    "foo |",
    "foo &&",
    "f()",
    "echo )",
    "echo $(ls",
    "(cd x",
    "x=(1 2",
    "[[ a",
    "case x in",
    "echo ${x",
    "{ a",
]


def lines(spec: JobSpec) -> list[str]:
    found = spec.groups[0].command.lines
    assert found is not None
    return list(found)


@pytest.mark.parametrize("words", ["-c4 -G2 -eA=b=c", "-c 4 -G 2 -e A=b=c", "--cpus=4 --gpus 2 --env=A=b=c"])
def test_a_short_flag_of_a_yard_line_may_have_its_value_in_the_same_word(words: str, load: Load) -> None:
    spec = load(f"#YARD {words}\ntrue\n", "jobs.txt")
    assert (spec.groups[0].resources, spec.env) == (Resources(4000, gpus=2), {"A": "b=c"})


def test_a_flag_of_a_yard_line_may_need_another_one_of_them(load: Load) -> None:
    spec = load("#!/bin/sh\n#YARD --kind pytorchjob\n#YARD --on kubernetes --mem-limit on --mem 1G\n", "job.sh")
    assert (spec.kubernetes.kind, spec.on) == ("PyTorchJob", "kubernetes")
    with pytest.raises(UserError, match=r"jobs.txt: line 2: --kind: a PyTorchJob runs on a Kubernetes cluster only"):
        load("true\n#YARD --kind pytorchjob\n", "jobs.txt")


def test_commands_are_tasks_and_blank_lines_and_comments_are_not(load: Load) -> None:
    spec = load("# first\n\n# a comment\necho 1\n   \n  # another\n\techo 2 # tail\r\necho 3", "sweep.txt")
    assert lines(spec) == ["echo 1", "\techo 2 # tail", "echo 3"]
    assert (spec.name, spec.size, spec.submitter.source) == ("sweep", 3, "batch")
    assert [spec.label_of(number) for number in range(3)] == ["0", "1", "2"]


def test_physical_line_numbers_are_kept() -> None:
    assert physical_lines("# x\necho 1\n\necho 2\n") == [(2, "echo 1"), (4, "echo 2")]


def test_only_newlines_end_a_line() -> None:
    assert physical_lines("echo a\x0cb\u2028c\x85d\n") == [(1, "echo a\x0cb\u2028c\x85d")]


def test_a_byte_order_mark_is_no_part_of_the_first_command(load: Load) -> None:
    assert lines(load(b"\xef\xbb\xbfecho 1\n", "x.txt")) == ["echo 1"]


@pytest.mark.parametrize("name", ["clean.sh", "clean.bash", "CLEAN.SH"])
def test_a_file_named_as_a_script_is_a_list_only_where_that_is_said(
    load: Load, name: str, tmp_path: Path, context: SubmitContext
) -> None:
    with pytest.raises(UserError, match=rf"^{name} has the name .* with #!/bin/bash as its first line .* with --lines"):
        load("cd sub\ntouch marker\n", name)
    assert lines(spec_from_file(tmp_path / name, Overrides(), context, is_list=True)) == ["cd sub", "touch marker"]


def test_directives_apply_to_all_lines_and_flags_win(load: Load) -> None:
    text = (
        "echo 1\n#YARD --gpus 1 --mem=4G  # why\n#YARD -e A=1 --env 'B=x y' --name swept --after 1 --after 2\necho 2\n"
    )
    spec = load(text, "x.txt", Overrides(mem="1G", env=("A=2",)))
    assert spec.groups[0].resources.gpus == 1
    assert spec.groups[0].resources.memory_mib == 1024
    assert spec.env == {"A": "2", "B": "x y"}
    assert spec.name == "swept"
    assert [item.job for item in spec.after] == ["1", "2"]


def test_flags_without_a_value_stand_alone(load: Load, tmp_path: Path) -> None:
    spec = load("#YARD --exclusive --gpu-util 50% --no-copy\ntrue\n", "x.txt")
    assert spec.groups[0].resources == Resources(gpus=1, gpu_percent=50, whole_node=True)
    assert spec.staging.no_copy
    (tmp_path / "sub" / "a").mkdir(parents=True)
    spec = load("#YARD --copy-forward a --workdir sub --copy-backwards=b --copy-forward .\ntrue\n", "x.txt")
    assert (spec.staging.copy_forward, spec.staging.copy_back) == (("a", "."), ("b",))


def test_other_comments_are_not_directives(load: Load) -> None:
    assert load("#YARDSTICK --nope\n# YARD --nope\n#yard --nope\ntrue\n", "x.txt").size == 1


@pytest.mark.parametrize(
    ("directive", "says"),
    [
        ("--gpu 1", "x.txt: line 2: unknown flag '--gpu' after #YARD; did you mean --gpus?"),
        ("--zzzzzz 1", "unknown flag '--zzzzzz' after #YARD; known: "),
        ("4", "unknown flag '4'"),
        ("--mem", "line 2: --mem needs a value"),
        ("--whole-node=yes", "line 2: --whole-node takes no value"),
        ("--gpus two", "line 2: --gpus: cannot read 'two' as a number or a range; write 2, 1..8, or 1.."),
        ("--gpus -1", "line 2: --gpus: -1"),
        ("--mem lots", "line 2: --mem: cannot read 'lots'"),
        ("--name 'a", "line 2: cannot read the #YARD line: no closing quotation"),
        ("--array 0-3", "a batch file has one task per line already"),
    ],
)
def test_a_bad_directive_names_its_line(directive: str, says: str, load: Load) -> None:
    with pytest.raises(UserError) as caught:
        load(f"true\n#YARD {directive}\n", "x.txt")
    assert says in str(caught.value)


@pytest.mark.parametrize("line", INCOMPLETE)
def test_a_line_that_is_not_a_command_by_itself_is_refused(line: str, load: Load) -> None:
    with pytest.raises(UserError) as caught:
        load(f"true\n\n{line}\nfalse\n", "x.txt")
    message = str(caught.value)
    assert message.startswith("x.txt: line 3: bash cannot read this line by itself: ")
    assert message.endswith("yard run -- bash x.txt")
    assert "\n" not in message


def test_the_complaint_is_that_of_bash(load: Load) -> None:
    with pytest.raises(UserError, match=r"unexpected EOF while looking for matching"):
        load("echo 'a\nb'\n", "x.txt")
    with pytest.raises(UserError, match=r"here-document at line 1 delimited by end-of-file"):
        load("cat <<EOF\n", "x.txt")
    with pytest.raises(UserError, match=r"ends in a backslash"):
        load("true \\\n", "x.txt")


def test_complete_lines_pass_and_the_first_incomplete_one_is_found() -> None:
    assert first_unreadable(COMPLETE) is None
    assert [line for line in COMPLETE if first_unreadable([line]) is not None] == []
    for line in INCOMPLETE:
        assert first_unreadable([line]) == line
        assert first_unreadable([*COMPLETE, line, *INCOMPLETE]) == line


def test_a_line_too_long_for_an_environment_is_checked_too() -> None:
    long = "echo " + "x" * 200_000
    assert first_unreadable([long, "true"]) is None
    assert first_unreadable([long, "true", long + " '"]) == long + " '"


def test_nothing_is_run_while_checking(tmp_path: Path) -> None:
    victim = tmp_path / "ran"
    touch = f"touch {victim}"
    for line in [touch, f"}}; {touch}; {{", f"}}\n{touch}", f"; {touch}", f"$({touch})", f"x() {{ {touch}; }}; x"]:
        first_unreadable([line])
        first_unreadable([line, "true"])
    assert not victim.exists()


PIECES = st.sampled_from(
    [*"'\"\\`$(){};|&<>#!\n \t[]=a1-*~", "do", "done", "if", "then", "fi", "for", "in", "case", "<<E"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=8).map("".join), min_size=2, max_size=6))
def test_the_fast_check_agrees_with_bash_for_any_lines(texts: list[str]) -> None:
    commands = [command for _, command in physical_lines("\n".join(texts))]
    bad = first_unreadable(commands)
    for command in commands[: commands.index(bad) + 1] if bad is not None else commands:
        alone = subprocess.run(
            ["bash", "-n"],
            input=command + "\n",
            capture_output=True,
            text=True,
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        )
        if alone.returncode or alone.stderr:
            assert command == bad
        elif not command.endswith("\\"):
            assert command != bad


def test_a_hundred_thousand_lines_are_read_by_few_processes(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(
        f"python train.py --seed {seed} --name 'a b' > out-{seed}.log 2>&1 && echo $(({seed} + 1))\n"
        for seed in range(100_000)
    )
    started = []
    run = subprocess.run

    def counted(*arguments: Any, **named: Any) -> subprocess.CompletedProcess[str]:
        started.append(arguments)
        return run(*arguments, **named)

    monkeypatch.setattr(subprocess, "run", counted)
    assert load(text, "big.txt").size == 100_000
    assert 0 < len(started) < 200  # one process for each line takes minutes


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "x.txt: no commands in it"),
        (b"\n# only\n#YARD --gpus 1\n", "x.txt: no commands in it"),
        (b"\x7fELF\0\0", "'x.txt' is a binary file"),
        (b"echo 1\necho \xff\n", "'x.txt' is not UTF-8 text (line 2)"),
    ],
)
def test_a_file_without_commands_is_refused(content: bytes, says: str, load: Load) -> None:
    with pytest.raises(UserError) as caught:
        load(content, "x.txt")
    assert says in str(caught.value)


def test_a_missing_file_and_a_directory_are_refused(context: SubmitContext, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'nope' does not exist"):
        spec_from_file(Path("nope"), Overrides(), context)
    with pytest.raises(UserError, match="is a directory"):
        spec_from_file(tmp_path, Overrides(), context)
