"""Verb table: which verbs are there, and how is one found without importing the others (lazy loading)?"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from os.path import isfile
from typing import NamedTuple

import click

from jobyard import __version__
from jobyard.cli.other_words import OTHER_WORDS, OTHERS_VERBS
from jobyard.quoting import quoted


class Verb(NamedTuple):
    help: str
    module: str = ""  # in `commands`; empty: as the verb


VERBS = {
    "run": Verb("Submit a job and follow it to its end."),
    "submit": Verb("Submit a job and return at once."),
    "ls": Verb("List jobs."),
    "top": Verb("Watch all jobs, nodes and GPUs."),
    "show": Verb("Show one job."),
    "logs": Verb("Show what a job's tasks wrote."),
    "cat": Verb("Print what all tasks wrote, one after another."),
    "joblog": Verb("Print how each task ended, in GNU parallel's columns."),
    "cancel": Verb("Stop jobs or some of their tasks."),
    "priority": Verb("Let a job go earlier or later."),
    "scale": Verb("Give a training job more or fewer GPUs or workers."),
    "attach": Verb("Open the live view of a job again."),
    "wait": Verb("Wait until jobs have ended."),
    "retry": Verb("Run what failed once more."),
    "why": Verb("Say why a job waits, or why it ended as it did."),
    "tensorboard": Verb("Show a job's training in TensorBoard."),
    "fetch": Verb("Bring the results of a job here."),
    "rm": Verb("Remove jobs that have ended, with all that is kept of them."),
    "gc": Verb("Remove now what is older, or more, than is kept."),
    "build": Verb("Build an image of this directory and push it."),
    "exec": Verb("Run a command beside a task, where it runs.", "exec_"),
    "port-forward": Verb("Reach a port of a task from here.", "port_forward"),
    "nodes": Verb("Add, list, drain and remove machines."),
    "clusters": Verb("Add, list and remove Kubernetes clusters."),
    "completion": Verb("Let Tab complete jobs, nodes and flags in your shell."),
    "schema": Verb("Print the JSON Schema of the manifest."),
    "doctor": Verb("Check that everything works, and say what to do."),
    "server": Verb("Start, stop or look at this yard's background server."),
    "serve": Verb("Run the server on TCP for a team."),
    "token": Verb("Make, list and revoke tokens for TCP."),
}


DELETING = frozenset({"rm", "gc"})  # never suggested for a word that is misspelt


class LazyGroup(click.Group):
    """The verbs of the table. Help is printed from the table alone; a verb's module is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command_of(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            rows = [(name, verb.help) for name, verb in VERBS.items()]
            formatter.write_dl([*rows, ("help", "Show this, or with a verb how it is used.")])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`help VERB` is `VERB --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[1] if args[0] in OTHERS_VERBS and args[1:2] and args[1] in OTHER_WORDS else args[0]
        if word not in VERBS and not ctx.resilient_parsing:
            raise click.UsageError(unknown_verb(word), ctx)
        return super().resolve_command(ctx, args)


def command_of(verb: str) -> click.Command:
    command = import_module(f"jobyard.cli.commands.{VERBS[verb].module or verb}").command
    assert isinstance(command, click.Command)
    return command


def unknown_verb(word: str) -> str:
    if word in OTHER_WORDS:
        return f"no verb {word!r}; {OTHER_WORDS[word]}"
    near = get_close_matches(word, [verb for verb in VERBS if verb not in DELETING], n=1)
    if near:
        return f"no verb {word!r}; did you mean `yard {near[0]}`?"
    if isfile(word):
        return f"no verb {word!r}; to run the file write: yard run {quoted(word)}"
    return f"no verb {word!r}; known: {', '.join(VERBS)}"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="yard", message="%(prog)s %(version)s")
@click.option("--yard", metavar="DIR", help="The yard's directory.  [env: YARD_DIR; default: ~/.local/share/jobyard]")
def yard(yard: str | None) -> None:
    """One yard for all your jobs: run them on this machine, keep them through anything.

    \b
      yard run -- python train.py    run a command
      yard run jobs.txt              run each line of a file
      yard run -a 0-99 -- ./step.sh  run an array of 100 tasks
      yard run 'wc {}' ::: *.txt     run it once for each file
    """
