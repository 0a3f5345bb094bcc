"""Image build for a job: which image do the flags of `build` and `submit --build`, and the manifest, ask for?"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from jobyard.cli.build_flags import BuildWords
from jobyard.cli.default_cluster import add_default_cluster
from jobyard.cli.interrupts import exit_on_hang_up
from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.text import echo, say
from jobyard.cli.reaching import namespace_named, pods_module
from jobyard.cli.session import Session
from jobyard.errors import BuildFailed, NotFound, UserError, WebhookRefused
from jobyard.images.build import BuildOptions, build_image
from jobyard.images.kaniko import GIT_IMAGE, KANIKO_IMAGE, KanikoBuilder
from jobyard.images.names import parse_registry, split_image
from jobyard.images.protocol import Builder, Built, Say
from jobyard.manifests.aichor import KUBERNETES, image_note
from jobyard.model.job import JobSpec
from jobyard.model.source import BuildRequest, GitState

KANIKO = "kaniko"
NO_DIGEST = f"sha256:{'0' * 64}"  # of an image that is not built yet


def options_of(session: Session, words: BuildWords, user: str, request: BuildRequest | None = None) -> BuildOptions:
    """Flags before the manifest, and the manifest before the environment. Raises UserError."""
    asked = request or BuildRequest()
    context = words.context or os.path.expanduser(asked.context)
    registry, pull_registry = _registries(session, words, asked)
    return BuildOptions(
        registry=registry,
        pull_registry=pull_registry,
        builder=words.builder,
        context=context,
        dockerfile=words.dockerfile or _beside(context, asked.dockerfile),
        target=words.target or asked.target,
        build_args={**asked.build_args, **_arguments(words.build_arg)},
        image=asked.image,
        user=user,
        allow_dirty=words.allow_dirty,
        allow_unpushed=words.allow_unpushed,
        rebuild=words.rebuild,
    )


def _registries(session: Session, words: BuildWords, asked: BuildRequest) -> tuple[str, str]:
    """Where it is pushed, and from where it is pulled; empty: the host in the image's name, and the same place.

    The environment's second address is for the registry of its first, and for no other.
    """
    knobs = session.knobs
    host = split_image(asked.image)[0]
    is_elsewhere = host and not (knobs.registry and parse_registry(knobs.registry, "YARD_REGISTRY").host == host)
    registry = words.registry or asked.registry or ("" if is_elsewhere else knobs.registry)
    is_the_knobs = bool(registry) and registry == knobs.registry
    return registry, words.pull_registry or (knobs.pull_registry if is_the_knobs else "")


def build_here(
    session: Session, options: BuildOptions, *, on: str = "", quiet: bool = False, approve: Say | None = None
) -> tuple[Built, GitState]:
    """Build, with the log on stderr as it comes; with `quiet` only its end, and only if the build fails.

    `on` names the cluster of a builder that needs one. `approve` is as `build_image` has it.
    """
    log = _drop if quiet else echo_line
    try:
        with exit_on_hang_up(), _builder(session, options, on) as builder:
            return build_image(options, say_sentence, log=log, builder=builder, approve=approve)
    except BuildFailed as error:
        for line in error.last_lines if quiet else ():
            echo_line(line)
        raise


def with_image(session: Session, spec: JobSpec, words: BuildWords, *, is_asked: bool, quiet: bool = False) -> JobSpec:
    """The job with the image that was built for it, by digest; as it is where none is wanted. Raises as build_image,
    and before the build what the yard would refuse after it."""
    request = spec.container.build
    spec = replace(spec, container=replace(spec.container, build=None))
    is_run = _runs_in_containers(session, spec)
    if not is_asked and not (is_run and request is not None and _says_so(request)):
        return spec
    if not is_run:
        raise UserError(_why_no_container(session, spec))
    if request is None and spec.container.image:
        raise UserError(f"--build and --image {spec.container.image!r} contradict each other; leave one of them out")
    if request is not None and request.is_skipped and not words.rebuild:
        earlier = _earlier_image(session, spec, request)
        if earlier:
            return _running(spec, earlier)
    options = options_of(session, words, spec.submitter.user, request)

    def approve(name: str) -> None:
        _ask_the_yard(session, _running(spec, f"{name}@{NO_DIGEST}"), quiet=quiet)

    built, git = build_here(session, options, on=spec.on, quiet=quiet, approve=approve)
    return _running(spec, built.pinned, git)


def check_cluster(session: Session, builder: str, on: str) -> None:
    """Raises UserError unless this builder can build there: a misspelt name must not mean another cluster."""
    if on and builder != KANIKO:
        raise UserError(
            f"--on {on}: {builder} builds on this machine, and {KANIKO} in a cluster; say --builder {KANIKO}"
        )
    if on and on not in (known := _clusters(session)):
        raise UserError(f"--on {on}: no cluster {on!r}; known: {', '.join(known)}")


def _ask_the_yard(session: Session, spec: JobSpec, *, quiet: bool) -> None:
    """A dry run before the build, so that no one waits for a build whose job is refused. Raises what the yard would."""
    add_default_cluster(session, spec, quiet=quiet)
    try:
        session.client.plan(spec)
    except WebhookRefused as error:
        # A cluster that checks images or their signatures cannot find this one yet.
        say_sentence(f"warning: {error}; it is built nevertheless, for a webhook may ask for the image itself")


@contextmanager
def _builder(session: Session, options: BuildOptions, on: str) -> Iterator[Builder | None]:
    """None: a builder that needs no cluster."""
    if options.builder != KANIKO:
        yield None
        return
    knobs = session.knobs
    with pods_module("cluster").reached_cluster(namespace_named(session, on)) as cluster:
        yield KanikoBuilder(
            cluster,
            {"jobyard.dev/submitted-by": f"{options.user}@{platform.node()}"},
            knobs.kaniko_image or KANIKO_IMAGE,
            knobs.git_image or GIT_IMAGE,
            warn=say_sentence,
        )


def say_sentence(sentence: str) -> None:
    say(sentence, **({"fg": "yellow"} if sentence.startswith("warning") else {}))


def echo_line(line: str) -> None:
    echo(line, err=True)


def _drop(line: str) -> None:
    pass


def _says_so(request: BuildRequest) -> bool:
    """A manifest that names both a Dockerfile and a registry wants to be built, wherever it runs in containers."""
    return request.is_skipped or bool(request.dockerfile and request.registry)


def _runs_in_containers(session: Session, spec: JobSpec) -> bool:
    names = spec.on.split(",") if spec.on else []
    return (
        spec.container.on_machines
        or KUBERNETES in names
        or (bool(names) and any(cluster.id in names for cluster in session.client.clusters()))
    )


def _why_no_container(session: Session, spec: JobSpec) -> str:
    if not spec.on:
        return "--build makes an image, and this job runs as plain processes; add --container or --on kubernetes"
    return (
        f"--build makes an image, and --on {spec.on} is no cluster; name one ({', '.join(_clusters(session))}), "
        "or add --container for machines"
    )


def _clusters(session: Session) -> list[str]:
    """Those that `--on` can name; KUBERNETES is the first of the yard, or the one that kubectl uses."""
    return sorted({KUBERNETES, *(cluster.id for cluster in session.client.clusters())})


def _running(spec: JobSpec, image: str, git: GitState | None = None) -> JobSpec:
    """The job with this image, and without the notes that it is not built."""
    unbuilt = {image_note(spec.container.image, is_for_pods=is_for_pods) for is_for_pods in (True, False)}
    told = spec.submitter
    notes = tuple(note for note in told.notes if note not in unbuilt)
    cluster_notes = told.cluster_notes and tuple(note for note in told.cluster_notes if note not in unbuilt)
    return replace(
        spec,
        container=replace(spec.container, image=image, git=git or spec.container.git),
        submitter=replace(told, notes=notes, cluster_notes=cluster_notes),
    )


def _earlier_image(session: Session, spec: JobSpec, request: BuildRequest) -> str:
    """Empty: there is none, and one is built."""
    if not request.earlier_job:
        return spec.container.image
    try:
        image = session.client.job(request.earlier_job).image
    except NotFound:
        image = ""
    if not image and request.must_find:
        raise UserError(
            f"builder.skipBuild: there is no job {request.earlier_job!r} with an image; "
            "name another, or leave failIfNotFound out to build one"
        )
    if not image:
        say(f"job {harmless(request.earlier_job)} has no image to use again; one is built")
    return image


def _beside(context: str, dockerfile: str) -> str:
    """A manifest's Dockerfile is relative to the context, or to where the job is submitted."""
    if not dockerfile:
        return ""
    inside = os.path.join(context, dockerfile)
    return inside if os.path.isfile(inside) or not os.path.isfile(dockerfile) else dockerfile


def _arguments(entries: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for entry in entries:
        name, is_given, value = entry.partition("=")
        if not name or (not is_given and name not in os.environ):
            raise UserError(f"--build-arg: {entry!r} has no value; write K=V, or K alone for a variable of this shell")
        found[name] = value if is_given else os.environ[name]
    return found
