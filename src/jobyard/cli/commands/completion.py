"""`yard completion`: what a shell reads, so that Tab completes verbs, flags, jobs and nodes. Asks no server."""

from __future__ import annotations

import click

from jobyard.cli.completion import SHELLS, script
from jobyard.cli.option_values import OneOf
from jobyard.cli.output.json import print_json
from jobyard.cli.output.text import echo_text
from jobyard.cli.session import Session, with_session


@click.command("completion")
@with_session
@click.argument("shell", type=OneOf(sorted(SHELLS)), metavar="bash|zsh|fish")
def command(session: Session, shell: str) -> int:
    """Print what a shell reads to complete `yard` with Tab: verbs, flags, jobs, nodes and files.

    \b
      # in ~/.bashrc
      eval "$(yard completion bash)"
      # in ~/.zshrc, after compinit
      eval "$(yard completion zsh)"
      # in ~/.config/fish/config.fish
      yard completion fish | source

    Tab asks the server if one runs; it never starts one.
    """
    text = script(shell)
    if session.is_json:
        print_json({"shell": shell, "script": text})
    else:
        echo_text(text if text.endswith("\n") else f"{text}\n")
    return 0
