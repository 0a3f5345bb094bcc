"""Remote program: which command runs the agent's program under another account, wherever that is?"""

from __future__ import annotations

import shlex
from typing import Sequence, Union

_RUN = """
import os, sys
sys.version_info >= (3, 8) or sys.exit({old!r})
path = os.path.expanduser({path!r})
os.path.exists(path) or sys.exit({missing!r})
sys.argv = [path] + {arguments!r}
import runpy
runpy.run_path(path, run_name="__main__")
"""


def path_of(build: str) -> str:
    """Where a server puts its agent's program, below the account's home."""
    return "~/.cache/jobyard/agent-%s.pyz" % build


def command(build: str, arguments: Sequence[str], missing: Union[int, str], old: Union[int, str]) -> str:
    """One quoted word for any shell. `missing` and `old` are for `sys.exit`: a code, or a sentence for stderr."""
    script = _RUN.format(path=path_of(build), arguments=list(arguments), missing=missing, old=old)
    return "python3 -c %s" % shlex.quote(script)
