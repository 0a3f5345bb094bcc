"""`yard run`: submit and follow to the end."""

from __future__ import annotations

from contextlib import ExitStack

import click

from jobyard.cli.build_flags import BuildWords, build_flags
from jobyard.cli.commands.submit import submit_and_follow, submit_detached
from jobyard.cli.disk import tell_if_filling
from jobyard.cli.follow import FollowOptions
from jobyard.cli.mounted_secrets import mount_secret_flag
from jobyard.cli.output.joblog import JoblogFile
from jobyard.cli.results_directory import ResultsDirectory
from jobyard.cli.resuming import is_same_file, resume_flag
from jobyard.cli.session import Session, with_session
from jobyard.cli.submission import SubmissionFlags
from jobyard.cli.submitting import FileOrCommand, SubmitWords, show_plan, submit_flags
from jobyard.errors import UserError


@click.command("run", cls=FileOrCommand)
@with_session
@submit_flags
@build_flags
@click.option("--build", "is_built", is_flag=True, help="First build an image of this directory, as `yard build`.")
@mount_secret_flag
@click.option("--dry-run", is_flag=True, help="Show what would be submitted and where it would go.")
@click.option("-v", "--verbose", is_flag=True, help="With --dry-run: also the command of each task.")
@click.option("--render", is_flag=True, help="Show what would be sent to the executor.")
@click.option("--exit-code", "pass_exit_code", is_flag=True, help="Exit with a single task's own code.")
@click.option(
    "-k", "--keep-order", "--cat", "is_cat", is_flag=True, help="Print the output of all tasks, one after another."
)
@click.option("--bar", "--eta", "has_bar", is_flag=True, help="Show how far it is on stderr, with --cat too.")
@click.option("--joblog", metavar="FILE", help="Write a line to FILE as each task ends, in GNU parallel's columns.")
@resume_flag
@click.option("--results", metavar="DIR", help="Write DIR/TASK/stdout, stderr and seq as each task ends.")
@click.option("-d", "--detach", is_flag=True, help="Do not follow: as `yard submit`.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the number.")
def command(
    session: Session,
    asked: SubmitWords,
    words: BuildWords,
    is_built: bool,
    mount_secret: tuple[str, ...],
    dry_run: bool,
    render: bool,
    verbose: bool,
    pass_exit_code: bool,
    is_cat: bool,
    has_bar: bool,
    joblog: str | None,
    resume: str | None,
    results: str | None,
    detach: bool,
    quiet: bool,
) -> int:
    """Submit a job and follow it to its end.

    \b
      yard run -- python train.py
      yard run -c 2 jobs.txt
      yard run 'gzip -k {}' ::: *.log
      yard run -j 4 './fit {1} {2}' ::: a b ::: 1 2 3

    FILE is a script (it begins with #!, and has ARGS), a batch file (one bash command per line), a manifest, or - for
    stdin. The output of a job of one task is shown as if it ran here; a job of several has the live view, or with --cat
    plain output to pipe on. Ctrl-C cancels the job, twice kills it; in the live view q leaves, and `yard attach` opens
    it again. Whoever closes the pipe of --cat cancels the job.

    Words after ::: are values, as in GNU parallel: a task for each, which {} stands for. Several ::: multiply, and {1}
    and {2} stand for theirs.

    Exit codes: 0 all succeeded, 1 something failed, 2 bad request, 3 yard not reachable, 130 interrupted.
    """
    tell_if_filling(session)
    if detach:
        _refuse_what_needs_following(is_cat, joblog, results)
    is_planned = dry_run or render
    flags = SubmissionFlags(asked, words, is_built, mount_secret, is_planned, resume, joblog)
    submission = flags.submission(session, quiet=quiet)
    if is_planned:
        return show_plan(session, asked, submission.spec, render=render, verbose=verbose)
    if detach:
        return submit_detached(session, submission, quiet=quiet)
    goes_on, seqs = is_same_file(joblog, resume), submission.seqs
    with ExitStack() as open_files:
        options = FollowOptions(
            quiet,
            pass_exit_code,
            is_merged=is_built,
            joblog=open_files.enter_context(JoblogFile(joblog, goes_on=goes_on, seqs=seqs))
            if joblog is not None
            else None,
            results=ResultsDirectory(results, seqs) if results is not None else None,
            is_cat=is_cat,
            has_bar=has_bar,
            needs_image_soon=is_built,
        )
        return submit_and_follow(session, submission, options)


def _refuse_what_needs_following(is_cat: bool, joblog: str | None, results: str | None) -> None:
    """Raises UserError."""
    if is_cat:
        raise UserError("--cat: nothing is printed with --detach; leave one of them out, or use `yard cat JOB` later")
    if joblog is not None:
        raise UserError(
            f"--joblog {joblog}: it is written by the `yard run` that follows the job; leave --detach out, "
            "or use `yard joblog JOB` later"
        )
    if results is not None:
        raise UserError(
            f"--results {results}: it is written by the `yard run` that follows the job; leave --detach out, "
            "or use `yard fetch JOB` later"
        )
