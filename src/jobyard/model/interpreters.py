"""Interpreters: which words of a command would a program run as code (injection), and not read as data?

`model/substitution.py` asks this of every simple command that contains a line of data. What is not certainly data is
code. A word is what a program would get, without quotes: HOLE stands for the line, UNKNOWN for what only bash can tell.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import dropwhile, pairwise
from typing import NamedTuple

from jobyard.model.unsafe_placeholder import CALCULATING, IS_CALCULATED, OTHER_NAME

HOLE = "\0"  # no command holds a NUL character
UNKNOWN = "\x01"  # the value of a variable, the output of a command


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Verdict(NamedTuple):
    """Empty: the line is data here, whatever it is."""

    refusal: str = ""  # where the line would be code
    no_dash: str = ""  # the program for which a line that begins with a dash would be an option
    code: str = ""  # what a shell or Python is given as its code, where the line stands in that
    is_python: bool = False
    inner: str = ""  # code of a shell that has the line as an argument
    way_out: str = ""  # what can be written instead, where that is known


class _Family(NamedTuple):
    """Interpreters that read alike `PROGRAM OPTIONS SCRIPT ARGUMENTS`: after the script, all words are data."""

    code: re.Pattern[str]  # an option whose value is code, and ends the options
    plain: re.Pattern[str]  # options without a value
    valued: re.Pattern[str]  # options whose value is the next word


_SHELL = _Family(
    re.compile(r"-[A-Za-z]*c[A-Za-z]*|--command|-C"),
    re.compile(r"[-+][abefhiklmnprtuvxBDEHPT]+|--(?:norc|noprofile|posix|login|verbose|restricted)"),
    re.compile(r"[-+][oO]|--rcfile|--init-file"),
)
_PYTHON = _Family(
    re.compile(r"-[bBdEiIOPqsSuvx]*c"), re.compile(r"-[bBdEiIOPqsSuvx]+|-[WX].+"), re.compile(r"-[WX]|--check-hash-.*")
)
_NAMES_OF_SHELLS = "sh bash dash zsh ksh mksh ash rbash fish csh tcsh"
_FAMILIES = {**dict.fromkeys(_NAMES_OF_SHELLS.split(), _SHELL), **dict.fromkeys(("python", "pypy", "ipython"), _PYTHON)}
# Understood only as `PROGRAM SCRIPT ARGUMENTS`, without options before the script.
_SCRIPTED = _names("perl ruby node nodejs deno bun php lua luajit Rscript R julia groovy tclsh expect ocaml")
# `PROGRAM CODE FILES`, after options that have no value, or have it in the same word.
_FILTERS = {
    **dict.fromkeys(("sed", "gsed"), re.compile(r"-[nirEsuz]+|-i.+|--(?:quiet|silent|in-place|regexp-extended)")),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), re.compile(r"-F.+")),
    **dict.fromkeys(("jq", "yq"), re.compile(r"-[rcnsSejaRMC]+")),
}
_REMOTE = _names("ssh slogin mosh autossh rsh pdsh pssh clush xargs parallel sem rush")
_OTHERS = _names(
    "watch make gmake su at batch tmux screen psql mysql mariadb sqlite3 duckdb vim vi nvim ex emacs gdb "
    "osascript powershell pwsh crontab"
)
_BUILTINS = _names(
    "eval trap let unset read mapfile readarray getopts alias bind complete compgen coproc hash enable jobs fc wait"
)
DECLARING = _names("declare typeset local readonly export")
BEFORE_BUILTINS = _names("command builtin exec")
# They run the command that follows their options.
_RUNNERS = BEFORE_BUILTINS | _names(
    "env sudo doas nohup nice ionice timeout time stdbuf setsid chrt taskset numactl strace xvfb-run chroot srun flock"
)
_OPERANDS = {"chroot": 1, "flock": 1}  # words of a runner that come before its command and are no option
_WRAPPERS = _RUNNERS | _names(
    "docker podman kubectl singularity apptainer uv poetry conda pixi nsenter unshare systemd-run"
)
# Options of programs that are no interpreters, whose value is a command.
_COMMAND_OPTIONS = {
    **dict.fromkeys(("flock", "script"), re.compile(r"-[A-Za-z]*c|--command")),
    **dict.fromkeys(("tar", "gtar"), re.compile(r"-[A-Za-z]*[IF]|--(?:use-compress-program|to-command|[\w-]*-script)")),
    "rsync": re.compile(r"-[A-Za-z]*e|--rsh|--rsync-path"),
    # A setting may be an alias or a pager, which are commands.
    "git": re.compile(r"-[cxuO]|--(?:config|exec|upload-pack|receive-pack|extcmd|open-files-in-pager)"),
    "sort": re.compile(r"--compress-program"),
    "man": re.compile(r"-P|--pager"),
    "curl": re.compile(r"-K|--config"),
    "wget": re.compile(r"--use-askpass|-e|--execute"),
}
# Variables that a shell or a language runs, or finds code by.
_RUNNING = _names(
    "PS0 PS1 PS2 PS3 PS4 BASH_ENV ENV PROMPT_COMMAND LD_PRELOAD LD_AUDIT PERL5OPT RUBYOPT NODE_OPTIONS "
    "PYTHONSTARTUP GIT_SSH_COMMAND GIT_EDITOR EDITOR VISUAL PAGER SHELLOPTS BASHOPTS"
)
_READERS = _REMOTE | _OTHERS | {"find"} | set().union(_COMMAND_OPTIONS, _FAMILIES, _SCRIPTED, _FILTERS)
INTEGERS = _names("RANDOM SRANDOM SECONDS LINENO HISTCMD OPTIND BASHPID EPOCHSECONDS UID EUID PPID")
RESERVED = _names("if then else elif do while until ! { time")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?\+?=")
_CODE_FLAG = re.compile(r"-[a-zA-Z]?[ce]|--?(?:command|eval|exec|expression)")
_SOME_CODE = re.compile(r"[\s;|&$`()<>]")
_CALL = re.compile(r"(?:^|[\s/;|&(])(?:(?:ba|da|z|k)?sh\s+-\w*c|python[\d.]*\s+-\w*c|perl\s+-\w*[eE]|ssh\s|eval\s)")
_NO_PROGRAM = re.compile(r"-|[\d.]+\w?$|[A-Za-z_]\w*=")  # an option, a time or number, a variable
_STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


def judge(words: Sequence[str]) -> Verdict:
    """Of the words of one simple command: is a line data in each word that it stands in?"""
    if not any(HOLE in word for word in words):
        return Verdict()
    arguments, refusal = _without_assignments(words)
    if refusal or not any(HOLE in word for word in arguments):
        return _refused(refusal)
    program = arguments[0]
    if program.startswith(HOLE):
        return Verdict("is the program itself")
    name = name_of(program)
    if UNKNOWN in name and any(HOLE in word for word in arguments[1:]):
        return Verdict("is given to a program whose name only bash knows")
    return _of_builtin(arguments) or _of_programs(arguments)


def reads_code(words: Sequence[str]) -> bool:
    """Would it run what it reads from its standard input?"""
    arguments, _ = _without_assignments(words)
    for index, word in enumerate(arguments):
        if index and arguments[0] not in _WRAPPERS:
            return False
        name = name_of(word)
        if name in _REMOTE or name in _OTHERS or UNKNOWN in name:
            return True
        if name in _FAMILIES or name in _SCRIPTED:
            rest = arguments[index + 1 :]
            has_code = any(_FAMILIES.get(name, _PYTHON).code.fullmatch(each) or each == "-e" for each in rest)
            script = next((each for each in rest if not each.startswith("-") or each == "-"), "-")
            return not has_code and (script in _STDIN or HOLE in script)
        if name in ("source", "."):
            return any(each in _STDIN or HOLE in each for each in arguments[index + 1 :])
    return False


def name_of(word: str) -> str:
    """A program's own name: `/usr/bin/python3.11` is python."""
    name = os.path.basename(word)
    is_numbered = name.startswith(("python", "pypy", "perl", "ruby", "lua", "tclsh"))
    return re.sub(r"(?<=[A-Za-z])[\d.]+$", "", name) if is_numbered else name


def _without_assignments(words: Sequence[str]) -> tuple[list[str], str]:
    """The command's own words; and why a line may not be what a variable before them is set to."""
    rest = list(words)
    if rest[0] == "function":
        rest = rest[2:]
    while rest:
        match = ASSIGNMENT.match(rest[0])
        if match is None and rest[0] not in RESERVED:
            break
        if match and HOLE in rest[0] and (refusal := _of_assignment(match)):
            return rest, refusal
        if rest.pop(0) == "time":
            rest = list(dropwhile(lambda word: word.startswith("-") and HOLE not in word, rest))
    return rest, ""


def _of_assignment(match: re.Match[str]) -> str:
    if HOLE in match[0]:
        return "is the index of an array"
    if match[1] in INTEGERS:
        return f"is the value of {match[1]}, {IS_CALCULATED}"
    return f"is the value of {match[1]}, which is run" if match[1] in _RUNNING else ""


def _refused(refusal: str) -> Verdict:
    """Of an assignment, or of none where it is empty."""
    return Verdict(refusal, way_out=OTHER_NAME if refusal.endswith(IS_CALCULATED) else "")


def _of_builtin(words: list[str]) -> Verdict | None:
    """What only the shell itself reads as code; None: it is no such builtin."""
    name = words[0]
    if name in BEFORE_BUILTINS:
        rest = [word for index, word in enumerate(words[1:]) if index or not word.startswith("-")]
        return _of_builtin(rest) if rest and HOLE not in rest[0] else None
    if name in _BUILTINS:
        return Verdict(f"is an argument of {name}, which reads it as code", way_out=CALCULATING * (name == "let"))
    if name in DECLARING:
        for word in words[1:]:
            match = ASSIGNMENT.match(word)
            if HOLE in word and (match is None or any(each.startswith("-") for each in words[1:])):
                return Verdict(f"is an argument of {name}, which reads it as code")
            if match and HOLE in word and (refusal := _of_assignment(match)):
                return _refused(refusal)
        return Verdict()
    if name in ("printf", "test", "[") and any(word.startswith(("-v", "-R")) for word in words):
        return Verdict(f"is an argument of {name} -v, which reads it as a variable")
    if name in ("test", "[") and any(HOLE in word and _may_be_option(before) for before, word in pairwise(words)):
        return Verdict(f"comes after another value in {name}, which may be -v")
    if name in ("source", "."):
        return Verdict(no_dash=name)
    return None


def _may_be_option(word: str) -> bool:
    return word.startswith((HOLE, UNKNOWN))


def _of_programs(words: list[str]) -> Verdict:
    """Of a program, and of what it may start in turn: `sudo -u ben bash -c ...`, `timeout 5 ssh host ...`."""
    no_dash = inner = ""
    is_wrapper = words[0] in _WRAPPERS or name_of(words[0]) in _WRAPPERS
    for index, word in enumerate(words):
        if HOLE in word:
            assignment = ASSIGNMENT.match(word)  # for `env`, `sudo` and others that take variables as arguments
            if assignment and (refusal := _of_assignment(assignment)):
                return Verdict(refusal)
            if _CALL.search(word) or (index and _CODE_FLAG.fullmatch(words[index - 1]) and _SOME_CODE.search(word)):
                return Verdict("is in a word that looks like code")
            if word.startswith(HOLE) and _is_next(words, index):
                return Verdict("is the program itself")
            continue
        verdict = _of_program(words, index, is_sure=index == 0 or is_wrapper)
        if verdict.refusal:
            return verdict
        no_dash, inner = no_dash or verdict.no_dash, inner or verdict.inner
    return Verdict(no_dash=no_dash, inner=inner)


def _is_next(words: list[str], index: int) -> bool:
    """Is this word the program that a runner starts?"""
    runner = name_of(words[0])
    if runner not in _RUNNERS:
        return False
    before = [word for word in words[1:index] if _NO_PROGRAM.match(word) is None]
    missing = _OPERANDS.get(runner, 0) - sum(not _may_vanish(word) for word in before)
    return missing == 0 or (missing > 0 and any(map(_may_vanish, before)))


def _may_vanish(word: str) -> bool:
    """It may expand to an option, several words, or nothing at all: then the next word takes its place."""
    return not word.strip(UNKNOWN)


def _of_program(words: list[str], index: int, *, is_sure: bool) -> Verdict:
    """`is_sure`: this word is probably a program. Elsewhere only names that are hardly ever anything else count."""
    name = name_of(words[index])
    if name not in _READERS:  # before all words after it are looked at: there may be many
        return Verdict()
    rest = words[index + 1 :]
    if not any(HOLE in word for word in rest):
        return Verdict()
    if name in _REMOTE or (is_sure and name in _OTHERS):
        return Verdict(f"is in a word that {name} reads as code")
    if name == "find" and is_sure and any(re.fullmatch(r"-(exec|ok)(dir)?", word) for word in rest):
        return Verdict("is in a command of find, which has a {} of its own")
    if is_sure and name in _COMMAND_OPTIONS and _is_command(rest, _COMMAND_OPTIONS[name]):
        return Verdict(f"is in a command that {name} runs")
    if name in _FAMILIES:
        return _of_family(name, rest, _FAMILIES[name])
    if name in _SCRIPTED and (is_sure or name in ("perl", "ruby")):
        return _of_scripted(name, rest)
    if name in _FILTERS and (is_sure or name in ("sed", "awk")):
        return _of_filter(name, rest)
    return Verdict()


def _is_command(rest: list[str], option: re.Pattern[str]) -> bool:
    pairs = zip(["", *rest], rest, strict=False)
    return any(HOLE in word and (option.fullmatch(before) or option.match(word)) for before, word in pairs)


def _of_family(name: str, rest: list[str], family: _Family) -> Verdict:
    index, unsure = 0, Verdict(f"is given to {name} after words that only bash can expand")
    while index < len(rest):
        word = rest[index]
        if not word.startswith(("-", "+")) or word in ("-", "--"):
            if _may_vanish(word):
                return unsure
            return Verdict(no_dash=name if word.startswith(HOLE) else "")
        if family.code.fullmatch(word):
            code = next((each for each in rest[index + 1 :] if not each.startswith(("-", "+"))), "")
            if _may_vanish(code):
                return unsure
            before = rest[: rest.index(code, index + 1)] if code else rest
            is_data = HOLE not in code and not any(HOLE in each for each in before)
            refusal = f"is in a word that {name} reads as code"
            if is_data:
                return Verdict(inner="" if family is _PYTHON else code)
            return Verdict(refusal, code=code, is_python=family is _PYTHON)
        if name == "ipython" or not (family.plain.fullmatch(word) or family.valued.fullmatch(word)):
            if family is _PYTHON and re.fullmatch(r"-[bBdEiIOPqsSuvx]*m", word) and index + 1 < len(rest):
                module = rest[index + 1]
                return unsure if _may_vanish(module) else Verdict("names the module" if HOLE in module else "")
            return Verdict(f"is in a word that {name} may read as code")
        value = rest[index + 1 : index + 2] if family.valued.fullmatch(word) else []
        if HOLE in word or any(HOLE in each for each in value):
            return Verdict(f"is in an option of {name}")
        if any(map(_may_vanish, value)):
            return unsure
        index += 1 + len(value)
    return Verdict()


def _of_scripted(name: str, rest: list[str]) -> Verdict:
    if rest[0].startswith("-") or _may_vanish(rest[0]):
        return Verdict(f"is in a word that {name} may read as code")
    return Verdict(no_dash=name if rest[0].startswith(HOLE) else "")


def _of_filter(name: str, rest: list[str]) -> Verdict:
    code = next((index for index, word in enumerate(rest) if not _FILTERS[name].fullmatch(word)), 0)
    for index, word in enumerate(rest):
        is_file = index > code and not rest[index - 1].startswith("-") and not word.startswith("-")
        if HOLE in word and not (is_file and not _may_vanish(rest[code]) and not rest[code].startswith("-")):
            return Verdict(f"is in a word that {name} reads as code")
    return Verdict(no_dash=name if any(word.startswith(HOLE) for word in rest) else "")
