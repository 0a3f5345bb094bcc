"""`yard build`: from this directory to an image with a digest."""

from __future__ import annotations

from dataclasses import replace

import click

from jobyard.cli.build_flags import BuildWords, build_flags
from jobyard.cli.building import build_here, check_cluster, options_of
from jobyard.cli.output.json import print_json
from jobyard.cli.output.text import echo
from jobyard.cli.session import Session, with_session
from jobyard.manifests.context import user_here


@click.command("build")
@with_session
@build_flags
@click.option(
    "--on", default="", metavar="CLUSTER", help="Where kaniko builds; default: the yard's first, or kubectl's."
)
@click.option("-q", "--quiet", is_flag=True, help="No log, but for the last lines of a build that fails.")
def command(session: Session, words: BuildWords, on: str, quiet: bool) -> int:
    """Build an image of this directory, push it, and print its name with its digest.

    The image is named after the directory and tagged with the git commit; where the registry has it already, nothing is
    built. The log goes to stderr. Starts no job: `yard submit --build` does both.

    Exit codes: 0 built or found, 1 the build or the push failed, 2 bad request.
    """
    options = options_of(session, words, user_here())
    check_cluster(session, options.builder, on)
    built, git = build_here(session, options, on=on, quiet=quiet)
    if session.is_json:
        data = {"image": built.pinned, "name": built.name, "digest": built.digest, "tag": built.tag}
        print_json({**data, "is_reused": built.is_reused, "git": replace(git, diff="")})
    else:
        echo(built.pinned)
    return 0
