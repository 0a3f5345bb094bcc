"""One image build: from a directory to an image with a digest. Which steps, in which order?"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobyard.errors import UserError
from jobyard.images import git_state
from jobyard.images.builders import DEFAULT, builder_class
from jobyard.images.names import (
    ImageName,
    Registry,
    commit_tag,
    parse_registry,
    personal_tag,
    repository_of,
    split_image,
)
from jobyard.images.protocol import Builder, BuildPlan, Built, Say
from jobyard.images.registry import digest_of
from jobyard.model.source import GitState

COMMIT_ARGUMENT = "COMMIT_HASH"  # a build argument that every Dockerfile may ask for
REVISION, SOURCE, DIRTY = "org.opencontainers.image.revision", "org.opencontainers.image.source", "dev.jobyard.dirty"


@dataclass(frozen=True)
class BuildOptions:
    registry: str = ""  # HOST[:PORT][/PATH], as the builder reaches it
    pull_registry: str = ""  # as who runs the image reaches it; empty: the same
    builder: str = DEFAULT
    context: str = "."
    dockerfile: str = ""  # empty: the builder's own choice in the context
    target: str = ""
    build_args: Mapping[str, str] = field(default_factory=dict)
    image: str = ""  # its name in the registry; empty: the directory's
    user: str = ""
    allow_dirty: bool = False
    allow_unpushed: bool = False
    rebuild: bool = False  # also where the registry has an image of the commit


def build_image(
    options: BuildOptions,
    say: Say,
    *,
    log: Say | None = None,
    builder: Builder | None = None,
    approve: Say | None = None,
) -> tuple[Built, GitState]:
    """The image of this directory, built and pushed, or found. `say` gets sentences, `log` the builder's lines.

    Raises UserError before anything is built, BuildFailed after. Starts no job. Where it is built, `approve` is called
    before that with the image's name, without tag and digest; an error from it ends the build.
    """
    # 1. What can be said without looking: names, files.
    builder = builder or builder_class(options.builder)()
    push, pull = _registries(options)
    context = _context(options)
    dockerfile = _dockerfile(options, context, builder)
    # 2. The source, and whether it may be built.
    git = git_state.look(context)
    judge(git, options, say, is_remote=builder.is_remote)
    is_in_commit = _is_in_commit(dockerfile, git_state.root_of(context))
    if builder.is_remote and not is_in_commit:
        raise UserError(f"{dockerfile} is not in the commit, and {options.builder} builds that; add it, and commit")
    is_of_commit = builder.is_remote or (is_in_commit and not git.is_dirty)
    plan = _plan(options, context, dockerfile, git, push, pull, is_of_commit=is_of_commit)
    # 3. Nothing is built twice. Asking also tells whether the registry is there, before the long part.
    digest = _existing(plan, say, is_remote=builder.is_remote)
    if digest and not options.rebuild:
        say(f"{plan.push} is there already for commit {git.commit[:12]} and is used again; --rebuild builds it anew")
        return Built(plan.pull.untagged, digest, plan.pull.tag, is_reused=True), git
    # 4. The build.
    builder.check()
    if approve is not None:
        approve(plan.pull.untagged)
    return builder.build(plan, log or say), git


def judge(git: GitState, options: BuildOptions, say: Say, *, is_remote: bool) -> None:
    """A local builder builds a dirty tree, with a warning; a remote one needs a pushed commit. Raises UserError."""
    short = git.commit[:12]
    where = git.remote or "a remote, of which it has none"
    dirty = "the tree has changes that no commit has"
    unpushed = {
        True: "",
        False: f"commit {short} is not pushed to {where}",
        None: f"whether {where} has commit {short} cannot be known, for it does not answer",
    }[git.is_pushed]
    if is_remote:
        if git.is_dirty and not options.allow_dirty:
            raise UserError(f"{dirty}, and {options.builder} builds the commit; commit them, or say --allow-dirty")
        if unpushed and not options.allow_unpushed:
            raise UserError(f"{unpushed}, and {options.builder} fetches it there; push it, or say --allow-unpushed")
        if git.is_dirty:
            say(f"warning: {dirty}: they are not in the image")
        return
    if git.is_dirty and not options.allow_dirty:
        say(f"warning: {dirty}: others cannot rebuild the image from git alone (--allow-dirty: no warning)")
    if unpushed and not options.allow_unpushed:
        say(f"warning: {unpushed}: others cannot rebuild the image (--allow-unpushed: no warning)")


def _registries(options: BuildOptions) -> tuple[Registry, Registry]:
    host, _ = split_image(options.image)
    if not options.registry and not host:
        raise UserError(
            "no registry to push to; name one with --registry HOST[:PORT][/PATH], or set YARD_REGISTRY in your shell"
        )
    push = parse_registry(options.registry or host, "--registry" if options.registry else "image")
    return push, parse_registry(options.pull_registry, "--pull-registry") if options.pull_registry else push


def _context(options: BuildOptions) -> Path:
    context = Path(os.path.realpath(os.path.expanduser(options.context)))
    if not context.is_dir():
        raise UserError(f"--context: {options.context!r} is not a directory; name the one that is to be built")
    return context


def _dockerfile(options: BuildOptions, context: Path, builder: Builder) -> Path:
    if not options.dockerfile:
        found = builder.default_dockerfile(context)
        if found is None:
            raise UserError(f"there is no Dockerfile in {context}; write one, or name it with --file")
        return found
    path = Path(os.path.expanduser(options.dockerfile))
    if not path.is_file():
        raise UserError(f"there is no Dockerfile {options.dockerfile!r}; write it, or name another with --file")
    return Path(os.path.realpath(path.parent), path.name)  # relative to the context, which has no links either


def _is_in_commit(dockerfile: Path, root: Path) -> bool:
    """Both the file and the target of its link: a commit does not contain other places, or files that git ignores."""
    return all(
        path.is_relative_to(root) and git_state.tracks(root, path)
        for path in (dockerfile, Path(os.path.realpath(dockerfile)))
    )


def _plan(
    options: BuildOptions,
    context: Path,
    dockerfile: Path,
    git: GitState,
    push: Registry,
    pull: Registry,
    *,
    is_of_commit: bool,
) -> BuildPlan:
    host, path = split_image(options.image)
    if host == push.host:  # the host is named twice, perhaps with the path behind it
        path = path.removeprefix(f"{push.path}/")
    repository = repository_of(path or context.name, "image" if options.image else "--context")
    below = os.path.relpath(dockerfile, context)
    words = {
        "dockerfile": "" if below == "Dockerfile" else below,
        "target": options.target,
        "build_args": options.build_args,
    }
    tag = commit_tag(git, words) if is_of_commit else personal_tag(options.user, secrets.token_hex(4))
    labels = {REVISION: git.commit, SOURCE: git.remote, DIRTY: "" if is_of_commit else "true"}
    return BuildPlan(
        context=context,
        dockerfile=dockerfile,
        push=ImageName(push, repository, tag),
        pull=ImageName(pull, repository, tag),
        git=git,
        target=options.target,
        build_args={COMMIT_ARGUMENT: git.commit, **options.build_args},
        labels={name: value for name, value in labels.items() if value},
    )


def _existing(plan: BuildPlan, say: Say, *, is_remote: bool) -> str | None:
    """A remote builder may reach a registry that we cannot: then the pull address is asked, or none."""
    try:
        return digest_of(plan.push)
    except UserError as error:
        if not is_remote:
            raise
        no_answer = error
    if plan.pull != plan.push:
        try:
            return digest_of(plan.pull)
        except UserError:
            pass
    say(f"whether the image is there already cannot be known: {no_answer}")
    return None
