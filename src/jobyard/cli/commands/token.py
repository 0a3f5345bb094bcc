"""`yard token`: make, list and revoke tokens for TCP."""

from __future__ import annotations

import click

from jobyard.cli.help_sections import VerbGroup
from jobyard.cli.output.json import print_json
from jobyard.cli.output.table import print_table
from jobyard.cli.output.text import age, echo, say
from jobyard.cli.session import Session, with_session

HEADERS = ("ID", "KIND", "AGE", "LAST USED", "NAME")


@click.group("token", cls=VerbGroup)
def command() -> None:
    """Make, list and revoke tokens for a server on TCP (`yard serve`)."""


@command.command("create")
@with_session
@click.argument("name")
@click.option("--admin", is_flag=True, help="It may also make tokens, change nodes and clusters, and stop the server.")
def create(session: Session, name: str, admin: bool) -> int:
    """Make a token and print its secret: this once and never again."""
    token = session.client.create_token(name, admin=admin)
    if session.is_json:
        print_json(token)
        return 0
    echo(token.secret)
    say(f"{token.kind} token {token.id} ({name}): set it as YARD_TOKEN; it is not shown again")
    return 0


@command.command("ls")
@with_session
def ls(session: Session) -> int:
    """List tokens, without their secrets."""
    tokens = session.client.tokens()
    if session.is_json:
        print_json(tokens)
    elif tokens:
        print_table(HEADERS, [(t.id, t.kind, age(t.created_at), age(t.last_used_at), t.name) for t in tokens])
    else:
        say("no tokens; `yard token create NAME` makes one")
    return 0


@command.command("revoke")
@with_session
@click.argument("token", metavar="ID")
def revoke(session: Session, token: str) -> int:
    """Revoke a token: whoever has it is a stranger from now on."""
    session.client.revoke_token(token)
    if session.is_json:
        print_json({"revoked": token})
    else:
        say(f"token {token} is revoked")
    return 0
