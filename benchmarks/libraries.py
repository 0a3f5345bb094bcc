"""Would a library do it better? Ignore rules by pathspec, reading and writing of nouns by msgspec and pydantic.

`python benchmarks/libraries.py`. Seconds of CPU, because others use these machines
too. git itself says which names a rule leaves out. What follows from it: docs/decisions/0014.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import msgspec
import pathspec
import pydantic

from jobyard.model import codec
from jobyard.model.events import AttemptsFinished, Finished
from jobyard.model.task import AttemptId, Outcome
from jobyard.staging.ignore import Rules

RULES = 3000  # random ones, each asked of git
PIECES = [
    b"a",
    b"b",
    b"*",
    b"**",
    b"?",
    b"/",
    b"[ab]",
    b"[!a]",
    b"[[:alpha:]]",
    b"\\",
    b"\\*",
    b" ",
    b".",
    b"\xff",
    b"!",
]
NAMES = [b"a", b"b", b"ab", b"ba", b"a.b", b".a", b"*", b"a ", b"\xff", b"A"]
USUAL = (
    b"*.pyc\n__pycache__/\n/build\ndist/\n.venv\n*.egg-info\nnode_modules\n*.log\ndata/**/raw\n!keep.log\n.DS_Store\n"
)


def main() -> None:
    warnings.simplefilter("ignore")  # pathspec's, about its own regular expressions
    dice = random.Random(1)
    ignoring(dice)
    reading()


def ignoring(dice: random.Random) -> None:
    rules = [b"".join(dice.choices(PIECES, k=dice.randint(1, 5))) for _ in range(RULES)]
    wrong = {"ours": 0, "pathspec": 0, "pathspec gave up": 0}
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["git", "init", "-q", directory], check=True)
        for rule in rules:
            truth = by_git(directory, rule)
            ours = Rules(rule + b"\n", 0)
            wrong["ours"] += {name for name in NAMES if ours.verdict(name, name)} != truth
            try:
                theirs = pathspec.GitIgnoreSpec.from_lines([rule.decode("latin-1")])
                wrong["pathspec"] += {name for name in NAMES if theirs.match_file(name.decode("latin-1"))} != truth
            except (ValueError, pathspec.patterns.gitignore.GitIgnorePatternError):
                wrong["pathspec gave up"] += 1
    print(f"ignore rules, of {RULES} random ones: another answer than git: {wrong}")
    names = [f"{dice.choice('abcdefgh')}/file{i}.{dice.choice(['py', 'pyc', 'log', 'npz'])}" for i in range(50_000)]
    ours, theirs = Rules(USUAL, 0), pathspec.GitIgnoreSpec.from_lines(USUAL.decode().splitlines())
    asked = [(name.encode(), name.rpartition("/")[2].encode()) for name in names]
    told(
        "50,000 names",
        ours=lambda: [ours.verdict(*each) for each in asked],
        pathspec=lambda: list(theirs.match_files(names)),
    )


def by_git(directory: str, rule: bytes) -> set[bytes]:
    with open(f"{directory}/.gitignore", "wb") as file:
        file.write(rule + b"\n")
    asked = ["git", "-C", directory, "check-ignore", "--no-index", "-z", "--stdin"]
    said = subprocess.run(asked, input=b"\0".join(NAMES), stdout=subprocess.PIPE)
    return set(said.stdout.split(b"\0")) - {b""}


def reading() -> None:
    """The event that a journal has most of, as the codec stores it: tuples as lists, defaults left out."""
    events = [
        AttemptsFinished(
            tuple(Finished(AttemptId("7", n, 1), Outcome(1.0, 2.0, exit_code=0)) for n in range(20)), at=1.0
        )
        for _ in range(500)
    ]
    stored = [json.dumps(codec.encode(event)).encode() for event in events]
    adapter = pydantic.TypeAdapter(AttemptsFinished)
    strict = msgspec.json.Decoder(AttemptsFinished)
    told(
        "read 10,000 ends of tasks",
        ours=lambda: [codec.decode(AttemptsFinished, json.loads(text)) for text in stored],
        msgspec=lambda: [strict.decode(text) for text in stored],
        pydantic=lambda: [adapter.validate_json(text) for text in stored],
    )
    told(
        "write 10,000 ends of tasks",
        ours=lambda: [json.dumps(codec.encode(event)) for event in events],
        msgspec=lambda: [msgspec.json.encode(event) for event in events],
        pydantic=lambda: [adapter.dump_json(event, exclude_defaults=True) for event in events],
    )
    odd = b'{"items": [], "at": 1.0, "unknown": 1}'
    print(
        "a field that nobody knows:",
        {"msgspec": outcome(strict.decode, odd), "pydantic": outcome(adapter.validate_json, odd)},
    )
    for module in ("jobyard.model.codec", "msgspec", "pydantic"):
        code = f"import time; begin = time.process_time(); import {module}; print(time.process_time() - begin)"
        said = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
        print(f"import {module}: {min(said):.3f} s")


def told(what: str, **contestants: Callable[[], Any]) -> None:
    seconds = {name: min(cpu(each) for _ in range(5)) for name, each in contestants.items()}
    print(f"{what}:", {name: f"{found:.3f} s ({found / seconds['ours']:.2f})" for name, found in seconds.items()})


def cpu(do: Callable[[], Any]) -> float:
    begin = time.process_time()
    do()
    return time.process_time() - begin


def outcome(read: Callable[[bytes], Any], text: bytes) -> str:
    try:
        read(text)
    except Exception as error:
        return f"refused: {type(error).__name__}"
    return "taken without a word"


if __name__ == "__main__":
    main()
