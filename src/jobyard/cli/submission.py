"""Submission: how does a command with `--build` become a Job or a RayJob? An omitted amount counts as 0."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from jobyard.cli.build_flags import BuildWords
from jobyard.cli.mounted_secrets import MountedSecrets, read_secrets
from jobyard.cli.session import Session
from jobyard.cli.submitting import SubmitWords, spec_of, with_built_image
from jobyard.kubernetes.kubeconfig import DEFAULT
from jobyard.manifests.training import parse_span
from jobyard.model.job import JobSpec

TO_BE_BUILT = "to-be-built"  # stands for the image where nothing is submitted


@dataclass
class Submission:
    """One `run` or `submit`, from the flags to what is sent. Errors that need no build are raised before it."""

    asked: SubmitWords
    words: BuildWords
    is_built: bool
    mount_secret: tuple[str, ...] = ()
    is_planned: bool = False  # a dry run: nothing is built or created
    secrets: MountedSecrets = field(default_factory=MountedSecrets)

    def spec(self, session: Session, *, quiet: bool) -> JobSpec:
        """Raises UserError, and BuildFailed."""
        self.secrets.files = read_secrets(self.mount_secret)
        spec = spec_of(with_build_defaults(self.asked) if self.is_built else self.asked, session)
        if self.is_built:
            spec = with_idle_head(spec)
        self.secrets.refuse(session, spec)
        if self.is_planned:
            return _to_be_built(spec) if self.is_built else spec
        return with_built_image(session, spec, self.words, is_asked=self.is_built, quiet=quiet)


def _to_be_built(spec: JobSpec) -> JobSpec:
    return replace(spec, container=replace(spec.container, image=spec.container.image or TO_BE_BUILT))


def with_build_defaults(asked: SubmitWords) -> SubmitWords:
    """The defaults of `yard submit --build -- CMD`. A manifest, and a job in containers on machines, need none."""
    said = asked.overrides
    if asked.files or asked.command is None or said["container"]:
        return asked
    said = said.with_words(on=said["on"] or DEFAULT, cpus=said["cpus"] or "0")
    if "workers" in said and "array" not in said and "each_line" not in said:
        if parse_span(said["workers"], "--workers", least=1) == (1, 1):
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
