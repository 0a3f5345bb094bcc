"""JSON output: how do programs read an answer? Every field written out, times as unix seconds."""

from __future__ import annotations

import json
from typing import Any

import click

from jobyard.model import codec


def print_json(value: Any) -> None:
    """One JSON document on stdout: a noun of `wire`, or plain data that holds some.

    In ASCII: JSON's own escapes keep whatever a name holds, and no terminal acts on it.
    """
    click.echo(json.dumps(codec.encode(value, defaults=True), indent=2))


def print_json_line(value: Any) -> None:
    """One of many JSON objects, each on its own line."""
    click.echo(json.dumps(codec.encode(value, defaults=True)))
