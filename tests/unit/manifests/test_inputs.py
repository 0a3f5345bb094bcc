"""Rows of values: as GNU parallel reads them, from words, files, JSON and sweeps."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from jobyard.errors import UserError
from jobyard.manifests.command import spec_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.input_words import split_inputs
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import JobSpec
from jobyard.model.own_command import own_command, own_values
from jobyard.server.spec_checks import check_spec


def a_job(line: str, context: SubmitContext, **flags: Any) -> JobSpec:
    """Of the words after `yard run --`."""
    words, inputs = split_inputs(shlex.split(line))
    spec = spec_from_command(words, Overrides(**flags, inputs=inputs), context)
    check_spec(spec)
    return spec


def commands(spec: JobSpec) -> list[str]:
    return [own_command(spec, number) for number in range(spec.size)]


# As `parallel --dry-run -k` prints them.
SAME = [
    ("echo {1} {2} ::: a b ::: c d", ["echo a c", "echo a d", "echo b c", "echo b d"]),
    ("echo {2} {1} ::: a b :::+ c d", ["echo c a", "echo d b"]),
    ("echo {} ::: a b ::: c :::+ d", ["echo a c d", "echo b c d"]),
    ("echo ::: a b", ["echo a", "echo b"]),
    ("'echo {1/.}-{2} | cat' ::: x/a.b ::: c", ["echo a-c | cat"]),
    ("'cd /tmp; ls' ::: x", ["cd /tmp; ls x"]),
    ("cp {} {.}.bak {/} {//} {/.} ::: d/a.tar.gz", ["cp d/a.tar.gz d/a.tar.bak a.tar.gz d a.tar"]),
    ("echo {.} {//} ::: d.e/f /x y //z", ["echo d.e/f d.e", "echo /x /", "echo y .", "echo //z /"]),
    ("echo {#} {} ::: a b", ["echo 1 a", "echo 2 b"]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "wanted"), SAME)
def test_values_after_the_command_stand_where_parallel_has_them(
    line: str, wanted: list[str], context: SubmitContext
) -> None:
    assert commands(a_job(line, context)) == wanted


def test_files_give_values_without_their_blank_lines(context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n\n2\n  \n")
    (tmp_path / "b").write_text("x\r\ny\r\n")
    assert commands(a_job("echo {1}{2} :::: a b", context)) == ["echo 1x", "echo 1y", "echo 2x", "echo 2y"]
    assert commands(a_job("echo {1}{2} :::: a ::::+ b", context)) == ["echo 1x", "echo 2y"]
    assert commands(a_job("echo {1}{2} ::: 3 4 ::::+ b", context)) == ["echo 3x", "echo 4y"]


def test_values_that_end_with_nul_may_have_line_breaks(context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("./a b\0./c\nd\0\0./e")
    assert commands(a_job("echo {/} :::: f", context, nul=True)) == ["echo 'a b'", r"echo $'c\nd'", "echo e"]
    assert commands(a_job("echo {}", context, each_line="f", nul=True))[1] == r"echo $'./c\nd'"
    (tmp_path / "lines").write_text("a\nb\n")
    with pytest.raises(UserError, match="'lines' has no NUL after its values, but lines; leave --nul out"):
        a_job("echo :::: lines", context, nul=True)


def test_lines_are_cut_into_columns_that_a_header_names(context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("lr,seed\n0.10,1\n1e-3,2\n")
    spec = a_job("t --lr {lr} --seed {2}", context, each_line="t.csv", colsep=",", header=True)
    assert commands(spec) == ["t --lr 0.10 --seed 1", "t --lr 1e-3 --seed 2"]
    assert own_values(spec, 1) == {"lr": "1e-3", "seed": "2"}
    named = a_job("t {f/.} ::: f d/a.b ::: x 1 2", context, header=True)
    assert commands(named) == ["t a", "t a"]
    assert commands(a_job("echo {2} {1} ::: a--b c-d", context, colsep="(-)+")) == ["echo b a", "echo d c"]


def test_several_values_are_one_task_and_the_last_may_have_fewer(context: SubmitContext) -> None:
    assert commands(a_job("echo {2},{1} ::: a b c", context, values_per_task=2)) == ["echo b,a", "echo ,c"]
    assert commands(a_job("echo {} ::: a b c", context, values_per_task=2)) == ["echo a b", "echo c"]
    assert commands(a_job("echo {3} x{2}y {1} {} ::: a", context, values_per_task=3)) == ["echo '' xy a a"]
    assert commands(a_job("'echo {}' ::: a 'b c' d", context, values_per_task=2))[1] == "echo d"
    assert commands(a_job("echo hi ::: a b", context, values_per_task="0")) == [
        "YARD_LINE=a echo hi",
        "YARD_LINE=b echo hi",
    ]


def test_each_object_of_a_file_is_a_task(context: SubmitContext, tmp_path: Path) -> None:
    line = '{"lr": 1e-05, "name": "a b", "on": true, "of": [1.50, null]}'
    (tmp_path / "x.json").write_text(f'{line}\n\n{{"of": null, "on": 2, "lr": 3, "name": ""}}\n')
    spec = a_job("t {lr} {name} {on} {of}", context, each_json="x.json")
    assert commands(spec) == ["t 1e-05 'a b' true '[1.50, null]'", "t 3 '' 2 ''"]
    assert commands(a_job("t {}", context, each_json="x.json"))[0] == f"t '{line}'"


@pytest.mark.parametrize(
    "value",
    ['{"x": 1e999, "y": [1.10, NaN, 12345678901234567890.5]}', f"[{'9' * 5000}]", "1e999", "9" * 5000, "[-0, 1E5]"],
)
def test_numbers_of_an_object_stay_as_they_stand(value: str, context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(f'{{"a": {value}}}\n')
    assert own_values(a_job("t {a}", context, each_json="x.json"), 0) == {"a": value}


def test_a_value_may_have_line_breaks(context: SubmitContext, tmp_path: Path, load: Any) -> None:
    spec = a_job("t {1} {2/} ::: 'a\nb' c ::: 'x/y\nz\n'", context)
    assert commands(spec) == [r"t $'a\nb' $'y\nz\n'", r"t c $'y\nz\n'"]
    (tmp_path / "x.json").write_text('{"a": "x\\ny"}\n{"a": "z"}\n')
    assert commands(a_job("t {a}", context, each_json="x.json")) == [r"t $'x\ny'", "t z"]
    assert commands(a_job("t {a}", context, sweep=("a=x\ny,z",))) == [r"t $'x\ny'", "t z"]
    assert own_values(load('command: t {a}\nsweep: {a: ["x\\ny", z]}\n'), 0) == {"a": "x\ny"}


def test_a_row_with_fewer_columns_has_empty_ones_and_a_note(context: SubmitContext) -> None:
    spec = a_job("t {1} {3} ::: a b,c,d", context, colsep=",")
    assert commands(spec) == ["t a ''", "t b d"]
    assert spec.submitter.notes == ("1 of 2 rows of inputs have fewer columns than 3; what they lack is empty",)


def test_a_sweep_is_a_product_with_its_numbers_as_they_are_written(context: SubmitContext) -> None:
    spec = a_job("t {lr} {seed}", context, sweep=("lr=0.10,1e-3", "seed=0..10:5"))
    assert commands(spec)[:4] == ["t 0.10 0", "t 0.10 5", "t 0.10 10", "t 1e-3 0"]
    assert own_values(spec, 3) == {"lr": "1e-3", "seed": "0"}
    assert commands(a_job("t {x}", context, sweep=("x=0.1..0.3:0.1,-1..1",))) == [
        f"t {value}" for value in ("0.1", "0.2", "0.3", "-1", "0", "1")
    ]
    beside = a_job("t {1} {seed} ::: a b", context, sweep=("seed=1,2",))
    assert commands(beside) == ["t a 1", "t a 2", "t b 1", "t b 2"]
    assert commands(a_job("train", context, sweep=("lr=1,2",)))[0] == "YARD_PARAM_lr=1 train"


def test_a_product_of_a_million_tasks_is_kept_as_its_sources(context: SubmitContext) -> None:
    spec = a_job("t", context, sweep=("a=1..1000", "b=1..1000"))
    assert spec.size == 1_000_000
    assert own_values(spec, 999_999) == {"a": "1000", "b": "1000"}
    inputs = spec.groups[0].command.inputs
    assert inputs is not None
    assert sum(len(column.values.text) for column in inputs.columns) < 10_000


def test_a_command_that_does_not_get_its_values_is_noted(context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    (note,) = a_job("train", context, each_line="f").submitter.notes
    assert "no placeholder" in note
    assert "YARD_LINE" in note
    (note,) = a_job("train", context, sweep=("lr=1",)).submitter.notes
    assert "YARD_PARAM_lr" in note
    assert not a_job("'train $YARD_LINE'", context, each_line="f").submitter.notes
    assert not a_job("train {}", context, each_line="f").submitter.notes


def test_values_are_no_code_wherever_they_stand(context: SubmitContext) -> None:
    spec = a_job("'echo {1} \"{2}\"' ::: '$(touch bad)' ::: '`id`'", context)
    assert commands(spec) == [
        "YARD_1='$(touch bad)'; YARD_2='`id`'; echo \"${YARD_1}\" \"${YARD_2}\"",
    ]


LEFT_ALONE = [
    "awk '{print $1}' {} ::: a", "python -c 'print({1: 2})' {} ::: a", "'echo {a,b} {1..3} ${HOME} ${1} {}' ::: x",
    "awk '{print}' {f} ::: f x",
]  # fmt: skip


@pytest.mark.parametrize("line", LEFT_ALONE)
def test_braces_of_others_are_left_alone(line: str, context: SubmitContext) -> None:
    (command,) = commands(a_job(line, context, header=True if "{f}" in line else None))
    for braces in ("{print $1}", "{1: 2}", "{a,b} {1..3} ${HOME} ${1}", "{print}"):
        assert (braces in command) == (braces in line)


def test_a_command_without_inputs_is_never_touched(context: SubmitContext) -> None:
    (command,) = commands(a_job("echo {} {1} {x} {/.} {#} {%}", context))
    assert command == "echo {} {1} {x} {/.} {#} {%}"
    assert commands(a_job("parallel echo {} ::: a b", context)) == ["parallel echo {} ::: a b"]


REFUSED = [
    ("echo :::", {}, "no value after :::"),
    ("echo :::+ a", {}, "nothing before :::+"),
    ("echo ::: a b :::+ c", {}, "has 1 values to link with 2"),
    ("echo {3} ::: a ::: b", {}, "there is no {3} here; known: {}, {1} to {2}"),
    ("'echo {3}' ::: a ::: b", {}, "there is no {3} here"),
    ("'echo {= s/a/b/ =}' ::: a", {}, "{= s/a/b/ =} is Perl, which is not run; write {.}, {/}, {//} or {/.}"),
    ("echo", {"nul": True}, "--nul: it is for values of ::: or --each-line"),
    ("echo {lr} {x} ::: lr 1", {"header": True}, "there is no {x} here; known: {}, {1}, {lr}"),
    ("echo ::: lr", {"header": True}, "no values after its header"),
    ("echo ::: 'l r' 1", {"header": True}, "'l r' cannot name a column"),
    ("echo ::: a 1 ::: a 2", {"header": True}, "two columns are called 'a'"),
    ("echo ::: a,b c,d e", {"colsep": ",", "header": True}, "row 2 has 1 column, and the header 2 columns"),
    ("echo ::: a, c,d", {"colsep": ",", "header": True}, "'' cannot name a column"),
    ("echo ::: a", {"colsep": "("}, "--colsep: '(' is no regular expression"),
    ("echo", {"colsep": ","}, "--colsep: it is for values of ::: or --each-line"),
    ("echo ::: a ::: b", {"values_per_task": 2}, "taken from one source"),
    ("echo ::: a", {"values_per_task": 1001}, "out of range"),
    ("echo ::: a", {"array": "0-1"}, "--array and ::: cannot be used together"),
    ("echo :::: nowhere", {}, "'nowhere' does not exist"),
    ("t", {"sweep": ("lr",)}, "--sweep: 'lr' has no values"),
    ("t", {"sweep": ("lr=1,",)}, "has an empty value"),
    ("t", {"sweep": ("l-r=1",)}, "'l-r' cannot name a parameter"),
    ("t", {"sweep": ("x=3..1",)}, "runs backwards; write 1..3"),
    ("t", {"sweep": ("x=0.1..1",)}, "needs a step"),
    ("t", {"sweep": ("x=1..2:0",)}, "must be more than 0"),
    ("t", {"sweep": ("x=1..99999999",)}, "at most 10,000,000"),
    ("t", {"sweep": ("x=1..10000", "y=1..10000")}, "10000 x 10000 are 100,000,000 tasks; at most 10,000,000"),
    ("t", {"sweep": ("x=1", "x=2")}, "two columns are called 'x'"),
    ("bash -c 'echo {1}' ::: a ::: b", {}, "{1} is in a word that bash reads as code"),
    ("'cat <<E\n{2}\nE' ::: a ::: b", {}, "{2} is in or after a here-document"),
    ("'x=$(cat {1/.})' ::: a ::: b", {}, "{1/.} is inside $(...)"),
    ("timeout {} x ::: 5 ::: rm", {}, "{} is the program itself"),
    ("python {1/} ::: a/-c ::: b", {}, "begins with '-', and python would take it for an option"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "flags", "sentence"), REFUSED)
def test_bad_inputs_get_one_sentence(line: str, flags: dict[str, Any], sentence: str, context: SubmitContext) -> None:
    with pytest.raises(UserError) as refused:
        a_job(line, context, **flags)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_dash_concerns_only_the_value_that_would_be_an_option(context: SubmitContext) -> None:
    assert commands(a_job("python {1} --lr {2} ::: a.py ::: -1", context)) == ["python a.py --lr -1"]
    assert commands(a_job("'python {1} --lr {2}' ::: a.py ::: -1", context)) == ["python a.py --lr -1"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- {a: 1, b: 2}\n", ""),
        ('{"a": 1}\n{"b": 1}\n', "line 2 has"),
        ("{}\n", "is no JSON object"),
        ('{"a b": 1}\n', "cannot name a column"),
        ('{"a": "x\\u0000y"}\n', "has a NUL character"),
        ('{"a": "b"}\n{"a": "\\ud800"}\n', r"x: line 2: 'a' has \\ud800 without its other half.*; leave it out$"),
        ('{"a": ["\\ud800"]}\n', r"x: line 1: 'a' has \\ud800 without its other half"),
        (f'{{"a": {"[" * 900}{"]" * 900}}}\n', "too many lists and objects in each other|is no JSON object"),
    ],
)
def test_odd_objects_get_one_sentence(text: str, sentence: str, context: SubmitContext, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(UserError, match=sentence or "is no JSON object"):
        a_job("t", context, each_json="x")


def test_a_manifest_says_the_same(load: Any, tmp_path: Path) -> None:
    spec = load("command: t {lr} {seed}\nsweep: {lr: [0.10, 1e-3], seed: 0..1}\n")
    assert commands(spec) == ["t 0.10 0", "t 0.10 1", "t 1e-3 0", "t 1e-3 1"]
    assert commands(load("command: t {n}\nsweep: {n: [0..4]}\n")) == ["t 0..4"]  # an item is what it says
    (tmp_path / "f").write_text("n m\n1 2\n")
    assert commands(load("command: t {m}\neach_line: f\ncolsep: ' '\nheader: true\n")) == ["t 2"]
    with pytest.raises(UserError, match=r"line 2: sweep\.x: '3\.\.1' runs backwards"):
        load("command: t\nsweep: {x: 3..1}\n")
