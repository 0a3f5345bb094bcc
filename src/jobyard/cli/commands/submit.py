"""`yard submit`: submit and return."""

from __future__ import annotations

import click

from jobyard.cli.build_flags import BuildWords, build_flags
from jobyard.cli.default_cluster import add_default_cluster
from jobyard.cli.follow import FollowOptions, run_to_end
from jobyard.cli.mounted_secrets import mount_secret_flag
from jobyard.cli.output.json import print_json
from jobyard.cli.output.text import echo
from jobyard.cli.resuming import resume_flag
from jobyard.cli.session import Session, with_session
from jobyard.cli.submission import Submission, SubmissionFlags
from jobyard.cli.submitting import FileOrCommand, SubmitWords, say_notes, show_plan, submit_flags
from jobyard.wire.views import JobView


@click.command("submit", cls=FileOrCommand)
@with_session
@submit_flags
@build_flags
@click.option("--build", "is_built", is_flag=True, help="First build an image of this directory, as `yard build`.")
@mount_secret_flag
@resume_flag
@click.option("-d", "--detach", is_flag=True, help="With --build: do not follow.")
@click.option("--dry-run", is_flag=True, help="Show what would be submitted and where it would go.")
@click.option("-v", "--verbose", is_flag=True, help="With --dry-run: also the command of each task.")
@click.option("--render", is_flag=True, help="Show what would be sent to the executor.")
@click.option("--exit-code", "pass_exit_code", is_flag=True, hidden=True, help="Means something to `yard run` only.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the number, no notes.")
def command(
    session: Session,
    asked: SubmitWords,
    words: BuildWords,
    is_built: bool,
    mount_secret: tuple[str, ...],
    resume: str | None,
    detach: bool,
    dry_run: bool,
    render: bool,
    verbose: bool,
    pass_exit_code: bool,
    quiet: bool,
) -> int:
    """Submit a job, print its number and return.

    FILE is a script (it begins with #!, and has ARGS), a batch file (one bash command per line), a manifest, or - for
    stdin. Words after ::: are values, a task for each: yard submit 'gzip -k {}' ::: *.log. The job is on disk when this
    returns.

    With --build an image of this directory is built and pushed first, and the job is run by its digest and followed to
    its end: one worker as a Kubernetes Job, several as a RayJob. Cores and GPUs that are not asked for are 0 then.
    """
    flags = SubmissionFlags(asked, words, is_built, mount_secret, dry_run or render, resume)
    submission = flags.submission(session, quiet=quiet)
    if dry_run or render:
        return show_plan(session, asked, submission.spec, render=render, verbose=verbose)
    if is_built and not detach:
        options = FollowOptions(is_quiet=quiet, is_merged=True, needs_image_soon=True)
        return submit_and_follow(session, submission, options)
    return submit_detached(session, submission, quiet=quiet)


def submit_detached(session: Session, submission: Submission, *, quiet: bool) -> int:
    add_default_cluster(session, submission.spec, quiet=quiet)
    job = submission.send(session)
    if session.is_json:
        print_json(job)
        return 0
    echo(str(job.number))
    if not quiet:
        say_notes(job)
    return 0


def submit_and_follow(session: Session, submission: Submission, options: FollowOptions) -> int:
    """To its end; the exit code is by the job's result."""
    code = run_to_end(session, lambda: _submit_now(session, submission, options), options)
    submission.tidy(session)
    return code


def _submit_now(session: Session, submission: Submission, options: FollowOptions) -> JobView:
    """For `run`: print the number alone with --quiet, else the notes. With --cat stdout has nothing but output."""
    add_default_cluster(session, submission.spec, quiet=options.is_quiet)
    job = submission.send(session)
    if not options.is_quiet:
        say_notes(job)
    elif not (session.is_json or options.is_cat):
        echo(str(job.number))
    return job
