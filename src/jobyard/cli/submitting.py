"""Submit flags: which job do the words after `yard run` and `yard submit` describe?"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click

from jobyard.cli.build_flags import BuildWords
from jobyard.cli.default_cluster import add_default_cluster
from jobyard.cli.help_sections import help_all, write_sections
from jobyard.cli.other_flags import unknown_flag
from jobyard.cli.output.asked import asked_rows
from jobyard.cli.output.json import print_json
from jobyard.cli.output.table import print_fields
from jobyard.cli.output.text import echo, echo_text, say
from jobyard.cli.session import FORMATS, Session
from jobyard.cli.typed_words import TypedWords, typed_words
from jobyard.cli.unread_pipe import is_piped_to
from jobyard.errors import UserError
from jobyard.manifests.command import spec_from_command
from jobyard.manifests.context import SubmitContext, user_here
from jobyard.manifests.declarations import JobField, spellings
from jobyard.manifests.input_words import split_inputs
from jobyard.manifests.job_fields import FLAGGED
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.manifests.written import Written
from jobyard.model import codec
from jobyard.model.job import JobSpec
from jobyard.model.own_command import own_command
from jobyard.wire.views import JobView, PlanView

COMMAND_WORDS = "jobyard.command_words"
INPUT_WORDS = "jobyard.input_words"
TYPED = "jobyard.typed"


class FileOrCommand(click.Command):
    """`[FLAGS] FILE [FLAGS]` or `[FLAGS] -- CMD...`: what follows the first `--` is the command, or a script's.

    With `::: VALUES` after it, a command needs no `--`: as with parallel, flags end where it begins.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words, ctx.meta[INPUT_WORDS] = split_inputs(args)
        args = list(words)
        if "--" in args:
            cut = args.index("--")
            ctx.meta[COMMAND_WORDS] = tuple(args[cut + 1 :])
            args = args[:cut]
        elif ctx.meta[INPUT_WORDS]:
            ctx.allow_interspersed_args = False
        if ctx.meta[INPUT_WORDS]:
            args = _without_colon(args)
        args = _with_format(args)
        try:
            left = super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            known = [word for each in self.get_params(ctx) for word in each.opts]
            raise UserError(unknown_flag(error.option_name, known, ctx.command_path)) from error
        ctx.meta[TYPED] = typed_words(ctx, self, args)
        return left

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "FILE [ARGS] | -- CMD...", "[::: VALUES...]"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_sections(ctx, self.get_params(ctx), formatter)


def _without_colon(args: list[str]) -> list[str]:
    """Parallel's `--header :` means the first line, as our `--header` does."""
    return [word for index, word in enumerate(args) if not (word == ":" and args[index - 1 : index] == ["--header"])]


def _is_job_file(word: str) -> bool:
    """Before `:::`, is it a file that describes a job or is a script, and not a program?"""
    path = os.path.expanduser(word)
    if word == "-" or not os.path.isfile(path):
        return word == "-"
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!" or not os.access(path, os.X_OK)
    except OSError:
        return True  # whoever reads it says what is wrong


def _with_format(args: list[str]) -> list[str]:
    """`--output json` is meant as with every other verb: `-o json`. A file of that name is written `./json`."""
    pairs = zip_longest(args, args[1:], fillvalue="")
    words = ["-o" if word == "--output" and after in FORMATS else word for word, after in pairs]
    return [
        f"-o{name}" if (name := word.removeprefix("--output=")) in FORMATS and name != word else word for word in words
    ]


@dataclass(frozen=True)
class SubmitWords:
    """One submit as it was typed."""

    files: tuple[str, ...]
    command: tuple[str, ...] | None  # None: no `--`
    overrides: Overrides
    typed: TypedWords
    is_list: bool = False

    @contextmanager
    def refused_as_written(self, spec: JobSpec) -> Iterator[None]:
        """The server's refusals of the job name what was written: flags and words, or a file's line and key."""
        file = self.files[0] if self.files and self.files[0] != "-" else ""
        try:
            yield
        except UserError as error:
            written = Written(self.overrides, file, SubmitContext(_here()))
            raise type(error)(written.sentence(error, spec)) from error


def submit_flags(function: Callable[..., int]) -> Callable[..., int]:
    """The flags of `run` and `submit`; the verb gets them as one SubmitWords."""

    @click.argument("files", nargs=-1, metavar="FILE")
    @job_options
    @click.option("--lines", "is_list", is_flag=True, help="FILE is a list of commands, though it looks like a script.")
    @help_all
    @click.pass_context
    @wraps(function)
    def with_flags(ctx: click.Context, /, session: Session, files: tuple[str, ...], **given: Any) -> int:
        inputs = ctx.meta[INPUT_WORDS]
        overrides = Overrides(**{name: given.pop(name) for name in FLAGGED}, inputs=inputs)
        is_list, command = given.pop("is_list"), ctx.meta.get(COMMAND_WORDS)
        if inputs and command is None and files and not _is_job_file(files[0]):
            files, command = (), files
        asked = SubmitWords(files, command, overrides, ctx.meta[TYPED], is_list)
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


def spec_of(asked: SubmitWords, session: Session, leave_out: tuple[Callable[[JobSpec], JobSpec], ...] = ()) -> JobSpec:
    """The job, complete. Raises UserError that names the way out. The shell's variables never go to another machine."""
    context = SubmitContext(_here(), dict(os.environ), user_here(), leave_out)
    spec = _spec_from_words(asked, context)
    spec = replace(spec, submitter=replace(spec.submitter, host=platform.node()))
    if session.leaves_this_machine:
        return spec.with_shell({})
    if not os.access(spec.workdir, os.R_OK | os.X_OK):
        raise UserError(f"the directory {spec.workdir} cannot be entered by you; name another with --workdir DIR")
    return spec


def _spec_from_words(asked: SubmitWords, context: SubmitContext) -> JobSpec:
    typed = asked.typed
    if asked.files:
        return _spec_from_file(asked, context)
    if asked.is_list:
        raise UserError(f"--lines: it is for a file of commands; write `{typed.line('FILE')}`")
    if asked.command is None and "inputs" in asked.overrides:
        values, file = typed.line("'CMD {}' ::: VALUES"), typed.line("FILE")
        raise UserError(f"nothing to run before :::; write `{values}`, or a list of commands as `{file}`")
    if asked.command is None:
        raise UserError(f"nothing to run; write `{typed.line('FILE')}` or `{typed.line('-- CMD')}`")
    with typed.kept_in_suggestions():
        return spec_from_command(asked.command, asked.overrides, context)


def _spec_from_file(asked: SubmitWords, context: SubmitContext) -> JobSpec:
    file, *words = asked.files
    if file == "-":
        file = "/dev/stdin"
    elif not os.path.lexists(os.path.expanduser(file)):
        if asked.command is not None:
            raise UserError(f"{file!r} before --: there is no such file; give either FILE or -- CMD, not both")
        line = asked.typed.command_line()
        lines = f"; for a task of each line that is piped to it: {line} :::: -" if is_piped_to() else ""
        raise UserError(f"no file {file!r}; to run a command write: {line}{lines}")
    arguments = (*words, *(asked.command or ()))
    with asked.typed.kept_in_suggestions():
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
