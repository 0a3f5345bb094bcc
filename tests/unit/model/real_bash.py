"""A real bash, and values that would do harm in it if they were code."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from types import MappingProxyType

from jobyard.model.inputs import Column, Inputs, Source
from jobyard.model.lines import Lines
from jobyard.model.placeholders import Placeholders

EVIL = "$(touch bad)`touch bad`;touch bad;\"';touch bad'\";a[$(touch bad)]\n|touch bad&${x:=$(touch bad)}*"


def run(shell: str, line: str, values: Mapping[str, str] = MappingProxyType({})) -> tuple[bytes, list[str]]:
    """What bash prints, and the files that it made."""
    with tempfile.TemporaryDirectory() as directory:
        env = {"PATH": os.environ["PATH"], "YARD_LINE": line, "HOME": "/nowhere", "LC_ALL": "C.UTF-8", **values}
        ran = subprocess.run(
            ["bash", "-c", shell],
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return ran.stdout, sorted(os.listdir(directory))


ONE_COLUMN = Placeholders.of(Inputs((Source((Column(Lines.of(["c"])),)),)))
TWO_COLUMNS = Placeholders.of(Inputs((Source((Column(Lines.of(["d/a.b"]), "x"), Column(Lines.of(["c"])))),)))
