"""Submission: what do `run` and `submit` send to the yard? With `--build` an omitted amount counts as 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobyard.cli.build_flags import BuildWords
from jobyard.cli.mounted_secrets import MountedSecret, read_secrets, refuse_without_pods
from jobyard.cli.resuming import Resuming, is_same_file
from jobyard.cli.session import Session
from jobyard.cli.submitting import SubmitWords, spec_of, with_built_image
from jobyard.cli.unread_pipe import warn_of_unread_pipe
from jobyard.errors import UserError
from jobyard.kubernetes.kubeconfig import DEFAULT
from jobyard.manifests.spreading import SPREADING
from jobyard.manifests.training import parse_span
from jobyard.model.job import JobSpec
from jobyard.model.limits import Workers, range_of
from jobyard.wire.views import JobView

TO_BE_BUILT = "to-be-built"  # stands for the image where nothing is submitted


@dataclass(frozen=True)
class Submission:
    """A job as it is sent to the yard: what is asked for, and the Secret that its pods mount, if any."""

    asked: SubmitWords
    spec: JobSpec
    secret: MountedSecret | None = None
    seqs: Sequence[int] = ()  # of a list of which `--resume` left tasks out: the numbers of the others, from 1

    def send(self, session: Session) -> JobView:
        with self.asked.refused_as_written(self.spec):
            if self.secret is None:
                return session.client.submit(self.spec)
            return self.secret.submit_with(session, self.spec)

    def tidy(self, session: Session) -> None:
        """After the job's end."""
        if self.secret is not None:
            self.secret.tidy(session, self.spec.on)


@dataclass(frozen=True)
class SubmissionFlags:
    """One `run` or `submit` as it was typed."""

    asked: SubmitWords
    build: BuildWords
    is_built: bool
    mount_secret: tuple[str, ...] = ()
    is_planned: bool = False  # a dry run: nothing is built or created
    resume: str | None = None  # a job log: what succeeded by it is left out
    joblog: str | None = None

    def submission(self, session: Session, *, quiet: bool) -> Submission:
        """Raises UserError, NothingLeft and BuildFailed. Errors that need no build are raised before it."""
        files = read_secrets(self.mount_secret)
        asked = with_build_defaults(self.asked) if self.is_built else self.asked
        resuming = self._resuming()
        spec = spec_of(asked, session, () if resuming is None else (resuming.without_done,))
        if self.build.typed and not self.is_built and spec.container.build is None:
            flag = self.build.typed[0]
            raise UserError(f"{flag}: it is for an image that is built first; add --build, or leave {flag} out")
        if not quiet:
            warn_of_unread_pipe()
        if self.is_built:
            spec = with_idle_head(spec)
        if files:
            refuse_without_pods(session, spec)
        with self.asked.refused_as_written(spec):
            spec = self._with_image(session, spec, quiet)
        seqs = () if resuming is None else resuming.seqs
        return Submission(self.asked, spec, MountedSecret(files) if files else None, seqs)

    def _resuming(self) -> Resuming | None:
        if self.resume is None:
            return None
        return Resuming(self.resume, may_miss=is_same_file(self.resume, self.joblog))

    def _with_image(self, session: Session, spec: JobSpec, quiet: bool) -> JobSpec:
        if self.is_planned:
            return _to_be_built(spec) if self.is_built else spec
        return with_built_image(session, spec, self.build, is_asked=self.is_built, quiet=quiet)


def _to_be_built(spec: JobSpec) -> JobSpec:
    return replace(spec, container=replace(spec.container, image=spec.container.image or TO_BE_BUILT))


def with_build_defaults(asked: SubmitWords) -> SubmitWords:
    """The defaults of `yard submit --build -- CMD`. A manifest, and a job in containers on machines, need none."""
    said = asked.overrides
    if asked.files or asked.command is None or said["container"]:
        return asked
    said = said.with_words(on=said["on"] or DEFAULT, cpus=said["cpus"] or "0")
    if "workers" in said and said.keys().isdisjoint(SPREADING):
        if parse_span(said["workers"], "--workers", range_of(Workers)) == (1, 1):
            said = said.with_words(workers=None)
        else:
            said = said.with_words(kind=said["kind"] or "rayjob")
    return replace(asked, overrides=said)


def with_idle_head(spec: JobSpec) -> JobSpec:
    """The command of a RayJob runs on the head, and asks for nothing there: Ray places no work beside it."""
    if spec.kubernetes.kind != "RayJob" or spec.kubernetes.manifest:
        return spec
    groups = (
        replace(group, resources=replace(group.resources, cpu_millis=0)) if group.name == "head" else group
        for group in spec.groups
    )
    return replace(spec, groups=tuple(groups))
