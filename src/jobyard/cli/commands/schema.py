"""`yard schema`: the JSON Schema of the manifest. Asks no server."""

from __future__ import annotations

import click

from jobyard.cli.output.json import print_json
from jobyard.cli.session import Session, with_session
from jobyard.manifests.native import schema


@click.command("schema")
@with_session
def command(session: Session) -> int:
    """Print the JSON Schema of the manifest, for editors and checkers."""
    print_json(schema())
    return 0
