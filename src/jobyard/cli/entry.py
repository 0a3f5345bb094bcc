"""Where `yard` begins: before anything slow is imported, Ctrl-C is already an answer and not a traceback."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    try:
        run = import_module("jobyard.cli.main").main
    except KeyboardInterrupt:
        sys.exit(130)
    run()
