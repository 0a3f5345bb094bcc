"""Call command: what does a task run, so that it is the call file that was submitted? It is in the job, with a seal.

Until a task begins, others who may write to the working directory can put another folder in the place of ours. So no
file there is run: the command, which the server has, reads the end of the call file once and compares its hash.
"""

from __future__ import annotations

import shlex
import sys

from jobyard.model.job import Command, Script

# Under whatever Python the task finds, as `in_task` is. A pipe is not waited for: it has no end to look at.
_OPENER = """import sys
if sys.path[:1] == [""]: del sys.path[0]
import hashlib, json, os, zlib
path, seal = sys.argv[1:]
sys.argv[:] = [path]
start, _, digest = seal.partition("-")
try:
    calls = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    calls.seek(int(start))
    packed = calls.read()
except OSError as error:
    packed = str(error).encode()
if hashlib.sha256(packed).hexdigest() != digest:
    why = path + ": it is missing, or is not the file that the job was submitted with; submit the job again"
    with open(os.environ["YARD_ERROR_FILE"], "w") as file:
        file.write(why)
    sys.exit(why)
head, _, body = packed.partition(b"\\n")
places = json.loads(head.decode())
def member(name):
    at, size = places[name]
    return zlib.decompress(body[at:at + size])
exec(compile(member("__main__.py"), os.path.join(path, "__main__.py"), "exec"))"""
_SHELL = """#!/bin/sh
for python in {candidates}; do
  command -v "$python" >/dev/null 2>&1 && exec "$python" -c {opener} "$@"
done
echo {refusal} >&2
exit 127
"""
_SHOWN = "call"  # as the program of the command, for people; its text is long


def command_of(path: str, seal: str, python: str, *, in_container: bool) -> Command:
    """Its path is a word of it, by which `functions.calls_of_job` finds the file again.

    Elsewhere the path of our own interpreter may be another one, so it is looked for in no container.
    """
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    own = () if in_container else (sys.executable,)
    candidates = (python,) if python else (*own, f"python{version}", "python3", "python")
    refusal = (
        f"no Python is here under any of these names: {', '.join(candidates)}; install Python {version}, "
        "or name one with python='/path/to/python'"
    )
    text = _SHELL.format(candidates=shlex.join(candidates), opener=shlex.quote(_OPENER), refusal=shlex.quote(refusal))
    return Command(argv=(path, seal), script=Script(_SHOWN, text))
