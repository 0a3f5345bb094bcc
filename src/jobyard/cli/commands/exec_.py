"""`yard exec`: run a command beside a task, where it runs."""

from __future__ import annotations

import sys

import click

from jobyard.cli.machines.execution import execute
from jobyard.cli.reaching import MachineTarget, finish, identity_flags, pods_module, target_of
from jobyard.cli.session import Session, with_session
from jobyard.cli.submitting import COMMAND_WORDS, FileOrCommand
from jobyard.errors import UserError
from jobyard.kubernetes.kubeconfig import ClusterWords
from jobyard.quoting import quoted


class JobAndCommand(FileOrCommand):
    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "JOB[/TASK] -- CMD..."]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        click.Command.format_options(self, ctx, formatter)  # all of them: there are few


@click.command("exec", cls=JobAndCommand)
@with_session
@click.option("-i", "--stdin", "with_input", is_flag=True, help="Give it what comes on stdin.")
@click.option("-t", "--tty", "with_terminal", is_flag=True, help="Give it a terminal; -it for a shell.")
@click.argument("job", metavar="JOB[/TASK]")
@identity_flags
@click.pass_context
def command(
    ctx: click.Context, /, session: Session, job: str, with_input: bool, with_terminal: bool, identity: ClusterWords
) -> int:
    """Run a command beside a task, and exit with its code: in its pod, or in its directory and environment on its
    machine.

    With your own rights: those of your kubeconfig, your account or your ssh. It ends when the task does.

    \b
      yard exec last -- nvidia-smi
      yard exec -it train/worker/0 -- bash
    """
    command_words = ctx.meta.get(COMMAND_WORDS, ())
    if not command_words:
        raise UserError(f"nothing to run; write: yard exec {quoted(job)} -- CMD")
    target = target_of(session, job, identity)
    is_terminal = with_terminal and sys.stdin.isatty()
    if isinstance(target, MachineTarget):
        execute(target, command_words, with_input=with_input, with_terminal=is_terminal)
    work = pods_module("execution").execute(target, command_words, with_input=with_input, with_terminal=is_terminal)
    return finish(work)
