"""Whatever a line of data holds, it is data: the command is run by a real bash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.errors import UserError
from jobyard.model import bash_reader
from jobyard.model.inputs import Column, Inputs, Row, Source
from jobyard.model.interpreters import HOLE
from jobyard.model.job import Command, Script
from jobyard.model.lines import Lines
from jobyard.model.placeholders import Placeholders
from jobyard.model.substitution import check, substituted, variables_of, words_with
from jobyard.model.unsafe_placeholder import UnsafePlaceholder
from tests.builders import one_column
from tests.unit.model.real_bash import EVIL, ONE_COLUMN, TWO_COLUMNS, run

# A template, and what stands before and after the line in what it prints.
PRINTING = [
    ("printf %s {}", "", ""),
    ("printf %s a{}b", "a", "b"),
    ("printf '%s' \"file: {}\"", "file: ", ""),
    ("printf %s 'it is {}, yes'", "it is ", ", yes"),
    ('printf %s "a\\\\{}"', "a\\", ""),
    ("printf %s \"$HOME\"'/'{}", "/nowhere/", ""),
    ("x={}; printf %s \"$x\"", "", ""),
    ("export X={}; printf %s \"$X\"", "", ""),
    ("X={} printenv X | head -c -1", "", ""),
    ("for f in {}; do printf %s \"$f\"; done", "", ""),
    ("if true; then printf %s {}; fi # {}", "", ""),
    ("case a in a) printf %s {};; esac", "", ""),
    ("{ printf %s {}; }", "", ""),
    ("( printf %s {} )", "", ""),
    ("f() { printf %s {}; }; f", "", ""),
    ("cat <<< {} | head -c -1", "", ""),
    ("printf %s $(echo 1) {}", "1", ""),
    ("printf %s `echo 1` {}", "1", ""),
    ("printf %s $((1 + 1)) {}", "2", ""),
    ("printf %s ${HOME}/{}", "/nowhere/", ""),
    ("printf %s \\\n {}", "", ""),
    ("bash -c 'printf %s \"$1\"' _ {}", "", ""),
    ("python3 -c 'import os, sys; sys.stdout.buffer.write(os.fsencode(sys.argv[1]))' {}", "", ""),
    ("env A=1 printf %s {}", "", ""),
    ("printf %s {} | cat", "", ""),
    ("printf %s \"[[ {} ]]\"", "[[ ", " ]]"),
    ('a=({}); printf %s "${a[0]}"', "", ""),
    ('a=(x {}); printf %s "${a[@]:1}"', "", ""),
    ('x={}; y="$(printf %s "$x" "")"; printf %s "$(basename a)" >&2; printf %s "$x"', "", ""),
    ("bash -c 'x=$(printf %s \"$1\" | wc -c); printf %s \"$1\"' _ {}", "", ""),
    ("[ {} = {} ] && printf %s {}", "", ""),
]  # fmt: skip
line_of_data = st.one_of(
    st.just(EVIL),
    st.text(st.sampled_from("$`\"'\\(){}[];|&<>*?~#! \t\n=-+,.:@abcé中🙂\u202e"), max_size=30),
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=30),
)


@pytest.mark.parametrize(("template", "before", "after"), PRINTING, ids=[each[0] for each in PRINTING])
@settings(max_examples=12, deadline=None)
@given(line=line_of_data)
def test_bash_prints_exactly_the_line_and_does_nothing_else(template: str, before: str, after: str, line: str) -> None:
    printed, files = run(substituted(template).shell, line)
    assert printed == f"{before}{line}{after}".encode()
    assert files == []


def test_the_three_forms_are_as_documented() -> None:
    assert substituted("echo {}").shell == 'echo "${YARD_LINE}"'
    assert substituted('echo "a {}"').shell == 'echo "a ${YARD_LINE}"'
    assert substituted("echo 'a {}'").shell == "echo 'a '\"${YARD_LINE}\"''"
    assert substituted("echo hello").shell == "echo hello"


def test_an_escaped_placeholder_and_one_in_a_comment_stay_as_they_are() -> None:
    assert substituted("echo \\{} # {}").shell == "echo \\{} # {}"


REFUSED = [
    "bash -c 'echo {}'", 'sh -c "echo {}"', "python3.11 -c 'print(\"{}\")'", "perl -e 'print {}'", "perl -ne '{}' x",
    'ssh host "ls {}"', "ssh {} uptime", "eval {}", 'eval "echo {}"', "ls | xargs -I{} echo {}", "parallel echo {}",
    "env bash -c 'echo {}'", "sudo sh -c 'echo {}'", "sudo -u ben bash -lc 'echo {}'", "nohup bash -c 'echo {}'",
    "timeout 5 bash -c 'echo {}'", "docker run img sh -c 'echo {}'", "bash -O extglob -c 'echo {}'",
    "python -W ignore -c 'print({})'", "bash \\\n -c 'echo {}'", "bash $FLAGS 'echo {}'", "$SHELL -c 'echo {}'",
    "node -e 'x({})'", "sed s/a/{}/ f", "sed -e {} f", "awk {} f", "make X={}", "watch ls {}", "psql -c 'select {}'",
    "flock l -c 'echo {}'", "su -c 'echo {}'", "tmux new 'bash -c {}'", "unknown-wrapper -c 'do {}'",
    "find . -exec cat {} +",
    "cat <<EOF\n{}\nEOF", "cat <<EOF >{}\nEOF", "echo $(cat {})", 'echo "$(cat {})"', "echo `cat {}`",
    'echo "`cat {}`"',
    "diff <(cat {}) y", "tee >(cat {})", "echo $((1 + {}))", "(( {} ))", "echo $[{}]", "[[ {} -eq 1 ]]",
    "echo $'{}'", 'echo $"{}"', "echo ${x:-{}}", 'echo "${x:-{}}"', "echo ${}", 'echo "\\{}"', "echo {a,{}}",
    "echo {}{a,b}",
    "{}", "{} a", "env {}", "sudo {}", "timeout 5 {}", "a[{}]=1", "a=([{}]=1)", "declare -a a=({})",
    "declare {}", "declare -i n={}", "let x={}",
    "export {}", "read {}", "unset {}", "printf -v {} x", "test -v {}", "trap {} EXIT", "command eval {}", "! eval {}",
    "builtin eval {}", "time -p eval {}", "function f { eval {}; }", "PS4={} bash -x s", "BASH_ENV={} bash s",
    "env BASH_ENV={} bash s",
    "echo {} | bash", "echo 'rm {}' | sudo sh -s", "echo {} | ssh host", "bash <<< {}", "cat {} | xargs rm",
    "x={}; echo $((x + 1))", "declare -i n; n={}", "x={}; [[ $x -eq 1 ]]", "echo 'not closed {}", 'echo "not closed {}',
    'echo "$(case x in x) echo "a" ;; esac)" {}',
]  # fmt: skip


@pytest.mark.parametrize("template", REFUSED)
def test_where_a_line_would_be_code_the_command_is_refused(template: str) -> None:
    with pytest.raises(UnsafePlaceholder, match="a line could be run as a command there; "):
        substituted(template)


RUN_BY_OTHERS = [
    "flock f -c {}", "flock f {}", "flock -w 5 f {}", "sudo flock f -c {}", "script -qc {} /dev/null",
    "script --command={} x", "tar -I {} -xf a.tar", "tar --to-command={} -xf a.tar", "rsync -e {} a b:", "srun {}",
    "srun -n 4 {}", "chroot / {}",
    "x={}; $x", "x={}; ${x} a", 'x={}; "$x"', "x={}; eval $x", 'x={}; bash -c "$x"', 'x={}; echo "$x" | bash',
    "x={}; y=$x; $y", "f() { $x; }; x={}; f", "for x in {}; do $x; done", "set -- {}; $1", 'set -- {}; "$@"',
    "f() { $1; }; f {}", 'f() { eval "$1"; }; f {}', "f() { [[ $1 -eq 1 ]]; }; f {}", 'x={}; echo "${x@P}"',
    "a=$e; b=$a; c=$b; d=$c; e={}", "bash -c $x {}", "bash -c $x -c {}", "bash --rcfile $x run.sh {}",
    "python -m $x {}", "python -W $x run.py {}", "nohup $x {}", "timeout $x {}", "sudo -u $x {}", "env $x A=1 {}",
    "flock $x {}", "chroot $x {}", "git -c alias.x={} x", "git -c {} log", "git clone --upload-pack {} a b",
    "git clone --config={} a", "sort --compress-program={} f", "wget -e {} a",
]  # fmt: skip


@pytest.mark.parametrize("template", RUN_BY_OTHERS)
def test_a_line_that_is_run_by_way_of_a_variable_or_of_a_known_program_is_refused(template: str) -> None:
    with pytest.raises(UnsafePlaceholder, match="a line could be run as a command there; "):
        substituted(template)


EVALUATED = [
    "a=([{}]=1)",
    "a+=([{}]=1)",
    "a=(x {}); ${a[1]}",
    'a=(x {}); eval "${a[1]}"',
    "read x <<< {}; echo $((x))",
    'read -r x <<< "{}"; eval $x',
    "IFS=, read -r a b <<< {}; echo $((a+b))",
    "while read -r l; do n=$((l+1)); done <<< {}",
    'while read -r l; do eval "$l"; done <<< {}',
    "echo {} | while read x; do echo $((x)); done",
    r"""printf '%s\n' {} | while read l; do eval "$l"; done""",
    "mapfile -t a <<< {}; ${a[0]}",
    "mapfile -t a < <(echo {}); ${a[0]}",
    "x={}; mapfile -t a < <(echo $x); ${a[0]}",
    "x={}; echo ${!x}",
    "f() { echo ${!1}; }; f {}",
    "f() { echo $(( $1 )); }; f {}",
    "f() { (( $1 )); }; f {}",
    "declare -n r; r={}; echo $r",
    "{ declare -i n; n={}; }",
    "f() { local -i n; n=$1; }; f {}",
    "declare -$F n; n={}",
    "RANDOM={}",
    "export SECONDS={}",
    "for RANDOM in {}; do :; done",
    "read RANDOM <<< {}",
    "x={}; a[x]=1",
    "x={}; echo ${a[$x]}",
    "x={}; echo ${a[x]}",
    "s=abc; x={}; echo ${s:$x:1}",
    "s=abc; x={}; echo ${s:x:1}",
    "x={}; y=${x%.*}; echo ${!y}",
    "f() { bash; }; echo {} | f",
    'x={}; . <(echo "$x")',
    'x={}; y=$(echo "$x"); $y',
    'x={}; y=$(echo "$x"); eval "$y"',
    "x={}; y=`echo $x`; eval $y",
    'x={}; echo $(eval "$x")',
    'x={}; echo "$(eval "$x")"',
    'x={}; $(echo "$x")',
    'x={}; cat <(eval "$x")',
    'x={}; echo ${z:-"a"}; eval "$x"',
    "x={}; y=${z:-$x}; $y",
    'echo {} ${z:-"a"} | bash',
    "echo {}; $_",
    ': {}; eval "$_"',
    'f() { for x; do eval "$x"; done; }; f {}',
    "hash -p {} ls",
    "jobs -x {}",
    "enable -f {} x",
    "bash -c 'eval $0' {}",
    "bash -c '$1' _ {}",
    "bash -c 'echo $(($1))' _ {}",
    """bash -c 'x=$1; eval "$x"' _ {}""",
    """bash -c 'bash -c "$1"' _ {}""",
    "printf -vx '%s' {}; eval $x",
    "[ {1} {2} ]",
    "x={}; unset 'a[x]'",
    "x={}; test -v 'a[x]'",
    "x={}; printf -v 'a[x]' y",
    "if let x=y; then x={}; fi",
    "x={}; coproc $x",
]


@pytest.mark.parametrize("template", EVALUATED)
def test_a_value_is_refused_where_bash_would_evaluate_it(template: str) -> None:
    with pytest.raises(UnsafePlaceholder, match="a line could be run as a command there; "):
        substituted(template, TWO_COLUMNS if "{1}" in template else ONE_COLUMN)


DAILY = [
    'args=(--lr {} --seed 1); python train.py "${args[@]}"',
    "x={}; echo ${y:-3}",
    "x={}; echo ${x:0:3}",
    'x={}; echo "${#x}"',
    'f={}; out="$(basename "$f" .wav)"; cp "$f" "out/$out"',
    'f={}; cp "$f" "out/$(basename "${f%.*}").txt"',
    'python train.py {} --out "$(basename "$PWD")"',
    'while read -r line; do echo "$line" {}; done < list.txt',
    'cat {} | while read -r a b; do echo "$a" "$b"; done',
    'read a b <<< {}; echo "$a-$b"',
    "curl {} | tar x; ls -j$(nproc)",
    """bash -c 'cp "$1" out/' _ {}""",
    """bash -c 'x=$(basename "$1"); cp "$1" out/$x' _ {}""",
    "[ -f {} ] && cat {}",
    "[ {1} = {2} ] || exit 1",
    "[ -f {1} -a -f {2} ]",
    'if [ "{}" -gt 5 ]; then echo big; fi',
    "for f in {}; do echo ${f%.*}.png; done",
    "cd {} && for i in 1 2 3; do echo $((i+1)); done",
    "python train.py {} $((1+2))",
    "x={}; echo ${x//a/b} ${x##*/} ${x^^}",
    'f() { gzip -k "$1"; }; f {}',
    "python train.py --seed $RANDOM {}",
    'files=({1} {2}); cat "${files[@]}"',
    "mkdir -p out/{}; for i in $(seq 3); do python x.py {} $i; done",
]


@pytest.mark.parametrize("template", DAILY)
def test_commands_that_keep_and_use_values_as_data_are_accepted(template: str) -> None:
    assert "{}" not in substituted(template, TWO_COLUMNS if "{1}" in template else ONE_COLUMN).shell


def test_code_inside_code_is_read_to_some_depth() -> None:
    with pytest.raises(UnsafePlaceholder, match="too deep"):
        substituted("x={}; echo " + "$(" * 20 + "echo $x" + ")" * 20)


@pytest.mark.parametrize(
    "template",
    [
        *RUN_BY_OTHERS, "eval {}", "trap {} EXIT", "let {}", "printf -v {} x", "{}", "bash -c {}", "echo {} | bash",
        "bash -c 'eval {}'", "bash -c 'x={}; $x'", "bash -c \"$X {}\"", "ssh host 'ls {}'", "python -c {}",
        "python -c 'exec({})'", "sed s/a/{}/ f",
    ],
)  # fmt: skip
def test_a_refusal_does_not_advise_what_would_run_the_line(template: str) -> None:
    with pytest.raises(UnsafePlaceholder, match=r"lines that are commands go as a list|calculate with expr") as refused:
        substituted(template)
    assert "YARD_LINE" not in str(refused.value)


def test_a_refusal_shows_the_code_in_which_the_line_is_data() -> None:
    with pytest.raises(UnsafePlaceholder) as refused:
        substituted('bash -c "printf %s {}"')
    assert str(refused.value).endswith("""; write 'printf %s "${YARD_LINE}"' for that word""")
    assert run("""bash -c 'printf %s "${YARD_LINE}"'""", EVIL) == (EVIL.encode(), [])
    with pytest.raises(UnsafePlaceholder, match=r'write os.environ\["YARD_LINE"\] for it in the code'):
        check(Command(argv=("python3", "-c", "print('{}')"), inputs=one_column(Lines.of(["x"]))))


@pytest.mark.parametrize(
    "template",
    [
        "python train.py -c {}",
        "python -u -m train --lr {}",
        "bash script.sh {}",
        "awk -F, '{print $1}' {}",
        "sed -n 1p {}",
        "cat {} | python -c 'import sys'",
        "curl -sS {} | jq .title",
        "$HOME/bin/train {}",
        "srun python $DIR/train.py {}",
        "echo {} 2>&1 | tee out.{}",
        "convert {} -resize 50% small/{}",
        "flock {} make",
        "flock lock python train.py {}",
        "tar -cf {}.tar {}",
        "rsync -av {} host:",
        "x={}; $HOME/bin/train $x",
        "x={}; y=$(basename $x); cp $x out/$y",
        'f() { gzip -k "$1"; }; f {}',
        "timeout $T python train.py {}",
        "git clone {} repo",
        "git checkout {} && python train.py",
        "git commit -m {}",
        "sort -u {}",
        "curl -o out -d {} localhost",
        "sudo -u $USER bash run.sh {}",
        "nohup $RUNNER train {}",
    ],
)
def test_everyday_commands_are_not_refused(template: str) -> None:
    assert "{}" not in substituted(template).shell


TWO = Inputs((Source((Column(Lines.of(["d/a.b"]), "x"), Column(Lines.of(["c"])))),))
FAMILY = ["{}", "{1}", "{2}", "{x}", "{.}", "{/}", "{//}", "{1/.}", "{x//}", "{#}", "{%}"]


@pytest.mark.parametrize("placeholder", FAMILY)
def test_what_is_refused_of_one_placeholder_is_refused_of_each(placeholder: str) -> None:
    known = Placeholders.of(TWO)
    for template in (*REFUSED, *RUN_BY_OTHERS):
        if "${}" not in template:  # with a name it is a variable of bash
            with pytest.raises(UnsafePlaceholder, match="a line could be run as a command there; "):
                substituted(template.replace("{}", placeholder), known)


@pytest.mark.parametrize("placeholder", FAMILY)
@pytest.mark.parametrize("template", [each[0] for each in PRINTING if "printf -v" not in each[0]])
def test_no_placeholder_runs_its_value(template: str, placeholder: str) -> None:
    known = Placeholders.of(TWO)
    try:
        found = substituted(template.replace("{}", placeholder), known)
    except UnsafePlaceholder:  # of two words the second would be a program
        assert placeholder in ("{}", "{.}", "{/}", "{//}")
        return
    values = {variable.name: EVIL for variable in found.variables}
    assert run(found.shell, EVIL, values)[1] == []


def test_several_values_are_words_of_their_own_where_the_placeholder_is_a_word() -> None:
    shell = substituted("echo {} x{} '{}' {/}", Placeholders.of(TWO)).shell
    assert shell == (
        'echo "${YARD_1}" "${YARD_2}" x"${YARD_LINE}" \'\'"${YARD_LINE}"\'\' "${YARD_BASE_1}" "${YARD_BASE_2}"'
    )


def test_a_value_does_not_name_the_file_that_is_run_where_another_one_is_read() -> None:
    for shell in ("echo {1} | bash {2}", "bash {2} <<< {1}", "echo {1} | python /dev/{2}", "echo {1} | . {2}"):
        with pytest.raises(UnsafePlaceholder, match="goes to a program that runs what it reads"):
            substituted(shell, Placeholders.of(TWO))


def test_a_row_that_ends_early_puts_no_other_word_in_the_place_of_a_program() -> None:
    short = Inputs((Source((Column(Lines.of(["a", "b"])), Column(Lines.of(["c"])))),))
    command = Command(shell="printf '%s.' {} 'x{}' {2}", inputs=short)
    shell = substituted(command.shell, Placeholders.of(short)).shell
    row = short.row(1)
    assert run(shell, "", variables_of(command, row))[0] == b"b.xb.."
    assert words_with(Command(argv=("echo", "{}", "{2}"), inputs=short), row) == ("echo", "b", "")


WORDS = (
    "echo cat a b= $b $HOME eval [[ ]] case in esac if then fi for do done time { } ( ) $( ${ $(( )) (( $' ` ' \" \\ $ "
    "; | && <<< <<E , ~ * = [ ] # {} {} x= $x ${x} ${!x} a[x]= a=( $((x)) <( read @ _ $_ $1 $(("
)
fragments = st.lists(
    st.sampled_from([*WORDS.split(), "bash -c ", "printf '%s\\n' ", " ", " ", "\n"]),
    min_size=2,
    max_size=14,
).map("".join)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(fragments)
def test_no_command_that_is_accepted_runs_its_line(template: str) -> None:
    try:
        shell = substituted(template).shell
    except UnsafePlaceholder:
        return
    if shell != template:
        assert "bad" not in run(shell, EVIL)[1]
        # And the quotes are right: with {} for its line the command is what it was.
        assert run(shell, "{}") == run(template, "{}")


SHORT = Inputs((Source((Column(Lines.of(["a", "b"]), "x"), Column(Lines.of(["c"])))),))
of_two = st.lists(
    st.sampled_from([*WORDS.replace("{}", "").split(), *2 * FAMILY, "bash -c ", "timeout ", "python ", " ", " ", "\n"]),
    min_size=2,
    max_size=14,
).map("".join)


@settings(max_examples=200, deadline=None)
@given(of_two, st.sampled_from([TWO, SHORT]), st.permutations([EVIL, "touch", "bad", "/dev/stdin", "-c", "eval"]))
def test_no_command_that_is_accepted_runs_one_of_its_values(template: str, inputs: Inputs, values: list[str]) -> None:
    try:
        found = substituted(template, Placeholders.of(inputs))
    except UnsafePlaceholder:
        return
    if found.shell != template:
        named = dict(zip((variable.name for variable in found.variables), 9 * values, strict=False))
        if inputs is SHORT:  # its last row has no second value
            named = {name: value for name, value in named.items() if not name.endswith("_2")}
        assert "bad" not in run(found.shell, EVIL, named)[1]


def test_words_without_a_shell_get_the_line_itself() -> None:
    command = Command(argv=("cat", "in/{}.txt", "{}"), inputs=one_column(Lines.of(["x"])))
    assert words_with(command, Row(0, [EVIL], EVIL)) == ("cat", f"in/{EVIL}.txt", EVIL)


@pytest.mark.parametrize(
    "argv",
    [
        ("bash", "-c", "echo {}"),
        ("env", "A=1", "sh", "-c", "echo {}"),
        ("python3", "-c", "print('{}')"),
        ("ssh", "host", "ls {}"),
        ("timeout", "5", "bash", "-c", "{}"),
        ("{}",),
        ("bash", "-c", 'eval "$1"', "_", "{}"),
        ("bash", "-c", "echo $(($1))", "_", "{}"),
    ],
)
def test_words_that_an_interpreter_reads_are_refused(argv: tuple[str, ...]) -> None:
    with pytest.raises(UnsafePlaceholder):
        check(Command(argv=argv, inputs=one_column(Lines.of(["x"]))))


@pytest.mark.parametrize(
    "command", [Command(argv=("python", "{}")), Command(shell="perl {}"), Command(shell="sed p {}")]
)
def test_a_line_that_would_be_an_option_of_an_interpreter_is_refused(command: Command) -> None:
    check(Command(command.argv, command.shell, inputs=one_column(Lines.of(["a.py", "b-c.py"]))))
    with pytest.raises(UserError, match="line 2 begins with '-'"):
        check(Command(command.argv, command.shell, inputs=one_column(Lines.of(["a.py", "-cimport os"]))))


def test_code_of_a_shell_may_use_values_as_data() -> None:
    check(
        Command(
            argv=("bash", "-c", 'x=$(basename "$1"); cp "$1" "out/$x"', "_", "{}"), inputs=one_column(Lines.of(["x"]))
        )
    )


def test_a_command_without_lines_may_hold_anything() -> None:
    check(Command(shell="bash -c 'echo {}'"))
    check(Command(argv=("{}",), script=Script("x.sh", "#!/bin/sh\n"), inputs=one_column(Lines.of(["-x"]))))


def test_the_line_is_not_run_by_the_words_that_the_issue_names(tmp_path: Path) -> None:
    printed, files = run(substituted('echo "file: {}"').shell, "$(touch x)")
    assert (printed, files) == (b"file: $(touch x)\n", [])


@pytest.mark.parametrize("shell", ["echo {} %s", "echo {} '%s'", 'echo {} "%s"'])
def test_a_long_command_is_read_in_few_steps(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    take = bash_reader.Reader._take

    def counted(reader: Any, *arguments: Any) -> None:
        nonlocal steps
        steps += 1
        take(reader, *arguments)

    monkeypatch.setattr(bash_reader.Reader, "_take", counted)
    assert substituted(shell % ("x" * 100_000)).shell.count("x") == 100_000
    assert steps < 20


def test_a_word_of_many_parts_is_not_copied_for_each() -> None:
    reader = bash_reader.Reader("\\a\\b{}")
    reader._step("\\")
    word = reader._command._word
    reader._step("\\")
    reader._step("{")
    assert reader._command._word is word
    assert word == ["a", "b", HOLE]
