"""Function runner: what does a task do with a function that was sent to it? It is `__main__` of the file of the calls.

It runs under whatever Python the task finds, before that is known to be the right one: standard library only, and
nothing that Python 3.6 cannot read. Nothing else of ours is there.
"""

import array
import hashlib
import importlib.machinery
import json
import marshal
import os
import pickle
import sys
import traceback
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Tuple

Outcome = Tuple[str, bytes, str]  # ("value", PICKLE, ""), ("error", PICKLE, TRACEBACK) or ("unsendable", b"", SENTENCE)
RESULT = "result.pickle"  # in YARD_OUTPUT_DIR
REFUSED = 2  # exit codes
FAILED = 1
_WRONG = (
    "the function was sent by Python {wanted}, and {path} is Python {here}: functions do not cross minor versions; "
    "install Python {wanted} there, name one with python='/path/to/python', or choose other machines with on="
)


def check_python(wanted: List[int]) -> str:
    """The sentence that refuses this interpreter, if it is not the right one."""
    here = list(sys.version_info[:2])
    if here == wanted:
        return ""
    told = {"wanted": "%d.%d" % tuple(wanted), "here": "%d.%d" % tuple(here), "path": sys.executable}
    return _WRONG.format(**told)


class Changed(Exception):
    """The file is not as it was written."""


class Calls:
    """The file: the arguments of all calls, of which a task reads its own, and behind them an archive with the rest."""

    def __init__(self, file: BinaryIO, member: Callable[[str], bytes]) -> None:
        """`member` reads one of the archive, which is known to be the one that was written."""
        self._file = file
        self._member = member
        self.about: Dict[str, Any] = json.loads(member("about.json").decode())
        self._hashes = member("hashes")
        self._last = (-1, b"")  # block that was read: arguments are small, and stand beside each other

    def function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = pickle.loads(self._member("function.pickle"))
        return function

    def arguments(self, first: int, last: int) -> Iterator[bytes]:
        """The pickles of these calls. Raises Changed."""
        ends = array.array("Q", self._read(self.about["index_at"] + 8 * first, 8 * (last - first + 1)))
        for at in range(last - first):
            yield self._read(self.about["arguments_at"] + ends[at], ends[at + 1] - ends[at])

    def _read(self, at: int, size: int) -> bytes:
        block = self.about["block"]
        first = at // block
        found = b"".join(self._block(number) for number in range(first, -(-(at + size) // block)))
        return found[at - first * block :][:size]

    def _block(self, number: int) -> bytes:
        if self._last[0] != number:
            begin, size = number * self.about["block"], self.about["block"]
            self._file.seek(begin)
            content = self._file.read(min(size, self.about["archive_at"] - begin))
            if hashlib.sha256(content).digest() != self._hashes[32 * number : 32 * number + 32]:
                raise Changed("the arguments are not those that the job was submitted with; submit the job again")
            self._last = (number, content)
        return self._last[1]


class Packed:
    """Finds cloudpickle in the archive, for `import`: from memory, as the file may be another one by now."""

    def __init__(self, member: Callable[[str], bytes]) -> None:
        self._member = member

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] != "cloudpickle":
            return None
        is_package = "." not in name
        place = "cloudpickle/%s.pyc" % ("__init__" if is_package else name.partition(".")[2])
        try:
            compiled = self._member(place)
        except KeyError:
            return None
        loader: Any = self
        spec = importlib.machinery.ModuleSpec(name, loader, origin=place, is_package=is_package)
        spec.loader_state = marshal.loads(compiled[16:])
        return spec

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        exec(module.__spec__.loader_state, module.__dict__)


def add_paths(about: Dict[str, Any], here: str) -> None:
    """What the submitting program could import, as far as it is here too."""
    for path in about["paths"]:
        place = os.path.normpath(os.path.join(here, path))
        if place not in sys.path:
            sys.path.append(place)


def dumps(value: object) -> bytes:
    """By cloudpickle what pickle cannot: it is not imported for plain values."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        import cloudpickle

        return bytes(cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def outcome(function: Callable[..., Any], pickled: bytes, limit: int) -> Outcome:
    """The pickle is empty where an error has none."""
    try:
        arguments, keywords = pickle.loads(pickled)
        value = function(*arguments, **keywords)
    except BaseException as error:  # sys.exit() too: the other calls of the task are still made
        return _failure(error)
    try:
        result = dumps(value)
    except BaseException as error:
        sentence = (
            "the result of %s, a %s, cannot be sent back: %s; return something that can be pickled, "
            "or write it to a file in the directory YARD_OUTPUT_DIR"
        )
        return _unsendable(sentence % (_name(function), type(value).__name__, error))
    if len(result) > limit:
        sentence = "the result of %s has %d MiB pickled, more than %d; write it to a file in YARD_OUTPUT_DIR"
        return _unsendable(sentence % (_name(function), len(result) >> 20, limit >> 20))
    return ("value", result, "")


def _unsendable(sentence: str) -> Outcome:
    return ("unsendable", b"", sentence)


def _failure(error: BaseException) -> Outcome:
    trace = traceback.format_exception(type(error), error, _own(error.__traceback__))
    try:
        pickled = dumps(error)
        pickle.loads(pickled)  # many an error can be pickled, and cannot be made again
    except BaseException:
        pickled = b""
    return ("error", pickled, "".join(trace))


def _own(trace: Any) -> Any:
    """Without the line of this file that called the function."""
    while (
        trace is not None
        and trace.tb_frame.f_code.co_filename == _own.__code__.co_filename
        and trace.tb_next is not None
    ):
        trace = trace.tb_next
    return trace


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


def tell(found: List[Outcome]) -> bool:
    """The first failure, for people: on stderr, and in a line for `yard why`. Whether there was one."""
    failures = [text for kind, _, text in found if kind != "value"]
    if not failures:
        return False
    sys.stderr.write(failures[0] if failures[0].endswith("\n") else failures[0] + "\n")
    with open(os.environ["YARD_ERROR_FILE"], "w") as file:
        file.write(failures[0].strip().splitlines()[-1])
    return True


def write(found: List[Outcome]) -> None:
    """All of it, or nothing."""
    path = os.path.join(os.environ["YARD_OUTPUT_DIR"], RESULT)
    with open(path + ".part", "wb") as file:
        pickle.dump(found, file, pickle.HIGHEST_PROTOCOL)
    os.rename(path + ".part", path)


def refuse(why: str) -> int:
    sys.stderr.write(why + "\n")
    with open(os.environ["YARD_ERROR_FILE"], "w") as file:
        file.write(why)
    return REFUSED


def main(file: BinaryIO, member: Callable[[str], bytes]) -> int:
    calls = Calls(file, member)
    about = calls.about
    refusal = check_python(about["python"])
    if refusal:
        return refuse(refusal)
    sys.meta_path.insert(0, Packed(member))
    add_paths(about, os.getcwd())
    first = int(os.environ["YARD_TASK"]) * about["chunk"]
    last = min(first + about["chunk"], about["count"])
    try:
        function = calls.function()
    except BaseException as error:  # a module that calls sys.exit() as it is imported
        found = [_failure(error)] * (last - first)
    else:
        try:
            found = [outcome(function, pickled, about["result_limit"]) for pickled in calls.arguments(first, last)]
        except Changed as error:
            return refuse(str(error))
    has_failed = tell(found)
    sys.stdout.flush()
    write(found)
    return FAILED if has_failed else 0


if __name__ == "__main__":
    sys.exit(main(calls, member))  # type: ignore[name-defined]  # noqa: F821  # names of `call_command._OPENER`
