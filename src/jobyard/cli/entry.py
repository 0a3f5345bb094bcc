"""Entry point of `yard`: Ctrl-C is handled before any slow import, so it never ends in a traceback."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    try:
        run = import_module("jobyard.cli.main").main
    except KeyboardInterrupt:
        sys.exit(130)
    run()
