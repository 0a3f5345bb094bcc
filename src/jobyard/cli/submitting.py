"""Submit flags: which job do the words after `yard run` and `yard submit` describe?"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from jobyard.cli.build_flags import BuildWords
from jobyard.cli.default_cluster import add_default_cluster
from jobyard.cli.output.asked import asked_rows
from jobyard.cli.output.json import print_json
from jobyard.cli.output.table import print_fields
from jobyard.cli.output.text import echo, echo_text, say
from jobyard.cli.session import Session, user_here
from jobyard.errors import UserError
from jobyard.manifests.command import spec_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.declarations import JobField, spellings
from jobyard.manifests.job_fields import FLAGGED
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.manifests.written import Written
from jobyard.model import codec
from jobyard.model.job import JobSpec
from jobyard.model.own_command import own_command
from jobyard.wire.views import JobView, PlanView

COMMAND_WORDS = "jobyard.command_words"


class FileOrCommand(click.Command):
    """`[FLAGS] FILE [FLAGS]` or `[FLAGS] -- CMD...`: what follows the first `--` is the command, or a script's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta[COMMAND_WORDS] = tuple(args[cut + 1 :])
            args = args[:cut]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            near = f" (did you mean {', '.join(sorted(error.possibilities))}?)" if error.possibilities else ""
            raise UserError(
                f"no such option {error.option_name}{near}; what a script shall have goes after --, "
                f"as in `{ctx.command_path} FILE -- {error.option_name}`"
            ) from error

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "FILE [ARGS] | -- CMD..."]


@dataclass(frozen=True)
class SubmitWords:
    """One submit as it was typed."""

    files: tuple[str, ...]
    command: tuple[str, ...] | None  # None: no `--`
    overrides: Overrides
    verb: str
    is_list: bool = False

    @contextmanager
    def refused_as_written(self, spec: JobSpec) -> Iterator[None]:
        """The server's refusals of the job name what was written: flags and words, or a file's line and key."""
        file = self.files[0] if self.files and self.files[0] != "-" else ""
        try:
            yield
        except UserError as error:
            written = Written(self.overrides, file, SubmitContext(_here()))
            raise type(error)(written.sentence(str(error), spec)) from error


def submit_flags(function: Callable[..., int]) -> Callable[..., int]:
    """The flags of `run` and `submit`; the verb gets them as one SubmitWords."""

    @click.argument("files", nargs=-1, metavar="FILE")
    @job_options
    @click.option("--lines", "is_list", is_flag=True, help="FILE is a list of commands, though it looks like a script.")
    @click.pass_context
    @wraps(function)
    def with_flags(ctx: click.Context, /, session: Session, files: tuple[str, ...], **given: Any) -> int:
        overrides = Overrides(**{name: given.pop(name) for name in FLAGGED})
        verb, is_list = f"yard {ctx.info_name}", given.pop("is_list")
        asked = SubmitWords(files, ctx.meta.get(COMMAND_WORDS), overrides, verb, is_list)
        return function(session, asked, **given)

    return with_flags


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """An option for each field of a job that has a flag."""
    for name, field in reversed(FLAGGED.items()):
        function = job_option(name, field)(function)
    return function


def job_option(name: str, field: JobField) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    option = field.option
    assert option is not None
    how: dict[str, Any] = {"multiple": True} if option.is_repeated else {}
    if field.is_switch:
        how = {"is_flag": True, "default": None}
    return click.option(*spellings(name, option), name, metavar=option.metavar, help=option.help, **how)


def spec_of(asked: SubmitWords, session: Session) -> JobSpec:
    """The job, complete. Raises UserError that names the way out. The shell's variables never go to another machine."""
    context = SubmitContext(workdir=_here(), environ=dict(os.environ), user=user_here())
    spec = _spec_from_words(asked, context)
    spec = replace(spec, submitter=replace(spec.submitter, host=platform.node()))
    if session.leaves_this_machine:
        return spec.with_shell({})
    if not os.access(spec.workdir, os.R_OK | os.X_OK):
        raise UserError(f"the directory {spec.workdir} cannot be entered by you; name another with --workdir DIR")
    return spec


def _spec_from_words(asked: SubmitWords, context: SubmitContext) -> JobSpec:
    if asked.files:
        return _spec_from_file(asked, context)
    if asked.is_list:
        raise UserError(f"--lines: it is for a file of commands; write `{asked.verb} --lines FILE`")
    if asked.command is None:
        raise UserError(f"nothing to run; write `{asked.verb} FILE` or `{asked.verb} -- CMD`")
    return spec_from_command(asked.command, asked.overrides, context)


def _spec_from_file(asked: SubmitWords, context: SubmitContext) -> JobSpec:
    file, *words = asked.files
    if file == "-":
        file = "/dev/stdin"
    elif not os.path.lexists(os.path.expanduser(file)):
        if asked.command is not None:
            raise UserError(f"{file!r} before --: there is no such file; give either FILE or -- CMD, not both")
        raise UserError(f"no file {file!r}; to run a command write: {asked.verb} -- {' '.join(asked.files)}")
    arguments = (*words, *(asked.command or ()))
    return spec_from_file(Path(file), asked.overrides, context, arguments=arguments, is_list=asked.is_list)


def _here() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise UserError(f"the current directory cannot be used ({error.strerror}); cd to another one") from None


def with_built_image(session: Session, spec: JobSpec, words: BuildWords, *, is_asked: bool, quiet: bool) -> JobSpec:
    """The job with the image that is built for it, if `--build` or its manifest wants one. Raises YardError."""
    if spec.container.build is None and not is_asked:
        return spec
    from jobyard.cli.building import with_image  # on first use: it imports registry clients, which cost start-up time

    return with_image(session, spec, words, is_asked=is_asked, quiet=quiet)


def show_plan(session: Session, asked: SubmitWords, spec: JobSpec, *, render: bool, verbose: bool = False) -> int:
    if not render:  # `--render` needs no cluster
        add_default_cluster(session, spec)
    with asked.refused_as_written(spec):
        plan = session.client.plan(spec, render=render)
    if session.is_json and not verbose:
        print_json(plan)
    elif session.is_json:
        tasks = [{"label": label, "command": command} for label, command in _commands(spec)]
        print_json({**codec.encode(plan, defaults=True), "tasks": tasks})
    elif render:
        echo_text(plan.rendered if plan.rendered.endswith("\n") else f"{plan.rendered}\n")
        say_notes(plan.job)
    else:
        print_plan(plan, _commands(spec) if verbose else ())
    return 0


def _commands(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Of each task: its label, and what it runs."""
    return ((spec.label_of(number), own_command(spec, number)) for number in range(spec.size))


def print_plan(plan: PlanView, commands: Iterable[tuple[str, str]] = ()) -> None:
    job = plan.job
    rows = [
        ("job", job.name),
        ("tasks", str(job.counts.total)),
        ("each", "; ".join(f"{group.name or 'task'}: {group.resources}" for group in job.groups)),
        ("size", f"may be {job.training.sizes}" if job.training and job.training.sizes else ""),
        ("command", job.command),
        ("workdir", job.workdir),
        ("env", ", ".join(f"{name}={value}" for name, value in job.env.items())),
        ("after", ", ".join(job.after)),
    ]
    print_fields([*rows, *asked_rows(job)])
    for sentence in (*plan.placements, *job.notes):
        echo(f"- {sentence}")
    for label, command in commands:
        echo(f"task {label}  {command}")
    echo("nothing was submitted (--dry-run)")


def say_notes(view: JobView) -> None:
    for note in view.notes:
        say(f"note: {note}")
