"""Command name: what is a job called that has no name? As its script or program, not as what runs it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import dropwhile

from jobyard.model.job import Command
from jobyard.model.selectors import other_meaning


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_INTERPRETER = re.compile(r"(?:python|pypy|ipython)[\d.]*|(?:ba|da|z|k|fi)?sh|Rscript|julia|node|perl|ruby|lua|php")
_SHELL = re.compile(r"(?:ba|da|z|k|fi)?sh")
_OPTION_WITH_VALUE = re.compile(r"-[WXoOI]")  # of an interpreter
_OPTION_WITH_CODE = re.compile(r"-[a-zA-Z]*[ce]|--eval")
_SCRIPT = re.compile(r".*\.(?:py|sh|bash|R|r|jl|js|pl|rb|lua|php|ipynb)")
# They run the command behind their options: which of these have a value, and how many words come before the command.
_RUNNERS = {
    "env": ("-u -C", 0),
    "nohup": ("", 0),
    "nice": ("-n", 0),
    "ionice": ("-c -n", 0),
    "time": ("-f -o", 0),
    "timeout": ("-k -s", 1),
    "stdbuf": ("-i -o -e", 0),
    "setsid": ("", 0),
    "taskset": ("", 1),
    "chrt": ("", 1),
    "sudo": ("-u -g", 0),
    "exec": ("-a", 0),
    "command": ("", 0),
    "numactl": ("-N -m -C -i -p", 0),
    "xvfb-run": ("-s -n -f -e -w", 0),
}
# As these, with more options than are listed here: a word behind one of those is its value, unless it is a script.
_LAUNCHERS = frozenset({"torchrun", "deepspeed", "horovodrun", "mpirun", "mpiexec", "srun"})
_LAUNCHING_VERBS = {
    "accelerate": "launch",
    **dict.fromkeys(_names("uv poetry pdm pipenv pixi conda mamba hatch rye"), "run"),
}
_LAUNCHING_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"})
# Of bash: words before a command, and commands before the one that matters.
_RESERVED = _names("do then else { ! time")
_PREPARATIONS = _names(
    "cd source . export set module ulimit umask mkdir for while until if case select [ [[ test fi done esac }"
)
_DEPTH_MOST = 8  # of runners that run runners


def name_from_command(command: Command) -> str:
    """The file name of its script or program: `train.py` of `python train.py`."""
    program = _program(command.argv) if command.argv else _program_of_line(command.shell)
    match = re.search(r"[\w.+-]+", os.path.basename(program))
    name = match[0][:200] if match else "command"
    return f"{name[:190]}-command" if other_meaning(name) else name


def _program_of_line(line: str) -> str:
    """Of a line of bash: of its first command that does more than prepare."""
    commands = list(_simple_commands(line))
    return _program(
        next((words for words in commands if words[0] not in _PREPARATIONS), (commands or [line.split()])[0])
    )


def _simple_commands(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line.replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "", True
    words: list[str] = []
    try:
        for word in lexer:
            if not word.strip("();<>|&"):
                if words:
                    yield words
                words = []
            elif words or word not in _RESERVED:
                words.append(word)
    except ValueError:  # a quote that is open
        pass
    if words:
        yield words


def _program(words: Sequence[str], depth: int = 0) -> str:
    words = list(dropwhile(_ASSIGNMENT.match, words)) or list(words)
    if not words or depth == _DEPTH_MOST:
        return words[0] if words else ""
    name = os.path.basename(words[0])
    if _INTERPRETER.fullmatch(name):
        return _of_interpreter(words, name, depth)
    rest = _behind_runner(name, words[1:])
    return _program(rest, depth + 1) if rest else words[0]


def _of_interpreter(words: Sequence[str], name: str, depth: int) -> str:
    """Its script or module; where it has neither, itself."""
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "-m" and rest:
            is_launcher = rest[0] in _LAUNCHING_MODULES
            return (_program(_behind_options(rest[1:]), depth + 1) if is_launcher else "") or rest[0]
        if _OPTION_WITH_CODE.fullmatch(option) and not _is_plain(option, name):
            return (_program_of_line(rest[0]) if rest and _SHELL.fullmatch(name) else "") or words[0]
        if _OPTION_WITH_VALUE.fullmatch(option) and rest:
            rest.pop(0)
    return rest[0] if rest and re.search(r"\w", rest[0]) else words[0]


def _is_plain(option: str, name: str) -> bool:
    """`bash -e x.sh` has no code; `perl -e CODE` has."""
    return bool(_SHELL.fullmatch(name)) and "c" not in option


def _behind_runner(name: str, rest: Sequence[str]) -> Sequence[str]:
    """The command that it runs; empty where it is no runner, or runs nothing."""
    if name in _LAUNCHERS:
        return _behind_options(rest)
    if rest and rest[0] == _LAUNCHING_VERBS.get(name):
        return _behind_options(rest[1:])
    if name not in _RUNNERS:
        return ()
    valued, operands = _RUNNERS[name]
    words = list(rest)
    while words and (words[0].startswith("-") or _ASSIGNMENT.match(words[0])):
        if words.pop(0) in valued.split() and words:
            words.pop(0)
    return words[operands:]


def _behind_options(rest: Sequence[str]) -> Sequence[str]:
    """What comes behind options that are not known; where that leaves nothing, from the first word that is none."""
    words = list(rest)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in ("-m", "--module") and words:
            return words[:1]
        if "=" not in option and option != "--" and words and not (words[0].startswith("-") or _is_command(words[0])):
            words.pop(0)
    return words or [word for word in rest if not word.startswith("-")]


def _is_command(word: str) -> bool:
    name = os.path.basename(word)
    return bool(_SCRIPT.fullmatch(name) or _INTERPRETER.fullmatch(name))
