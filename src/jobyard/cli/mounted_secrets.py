"""Mounted Secret: how does a local file get into a job's pods? As a Kubernetes Secret that the caller creates.

The yard is told the Secret's name, and never what is in it.
"""

from __future__ import annotations

import base64
import os
import posixpath
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from jobyard.cli.output.text import warn
from jobyard.cli.reaching import namespace_named, pods_module
from jobyard.cli.session import Session
from jobyard.errors import Unreachable, UserError, YardError
from jobyard.kubernetes.kubeconfig import DEFAULT
from jobyard.model.job import JobSpec, State
from jobyard.model.kubernetes import SecretMount
from jobyard.wire.views import JobView

FLAG = "--mount-secret"
BYTES_MOST = 1 << 20  # what Kubernetes allows in one Secret


class SecretFile(NamedTuple):
    """The content of a file, and where pods find it. Never shown: its repr hides the content."""

    content: bytes
    path: str

    def __repr__(self) -> str:
        return f"SecretFile({self.path})"


def mount_secret_flag(function: Callable[..., int]) -> Callable[..., int]:
    return click.option(
        FLAG,
        multiple=True,
        metavar="FILE=PATH",
        help="A file of this machine that is a Secret in the cluster, and a file in the pods.",
    )(function)


def read_secrets(entries: tuple[str, ...]) -> list[SecretFile]:
    """Of `FILE=PATH`, one each. Raises UserError; before anything is built or made."""
    found: list[SecretFile] = []
    for entry in entries:
        file, equals, path = entry.rpartition("=")
        if not equals or not file or not _is_good(path):
            raise UserError(
                f"{FLAG}: {entry!r} is not FILE=PATH; write a file of this machine, and its path in the pods"
            )
        if any(each.path == path for each in found):
            raise UserError(f"{FLAG}: {path} is named twice; give each file a path of its own")
        found.append(SecretFile(_read(file), path))
    size = sum(len(each.content) for each in found)
    if size > BYTES_MOST:
        raise UserError(f"{FLAG}: {size} bytes are more than a Secret holds ({BYTES_MOST}); use a volume instead")
    return found


def refuse_without_pods(session: Session, spec: JobSpec) -> None:
    """Raises UserError where the job has no pods that the yard makes."""
    names = spec.on.split(",")
    is_there = DEFAULT in names or any(cluster.id in names for cluster in session.client.clusters())
    if spec.container.on_machines or not spec.on or not is_there:
        raise UserError(f"{FLAG}: a Secret is for pods, and this job runs on machines; add --on kubernetes")
    if spec.kubernetes.manifest:
        raise UserError(f"{FLAG}: a manifest that is a Kubernetes object names its own Secrets; write it there")


@dataclass
class MountedSecret:
    """The Secret of one job, from before its submit until after its end."""

    files: list[SecretFile]
    name: str = field(default_factory=lambda: f"yard-{secrets.token_hex(8)}")
    _job: str = ""

    def submit_with(self, session: Session, spec: JobSpec) -> JobView:
        """Create the Secret, then submit the job. It is removed again where the yard does not take the job.

        Where it is not known whether the job was accepted, its pods may need the Secret: it stays, and is named.
        """
        mounts = tuple(SecretMount(self.name, f"file-{index}", each.path) for index, each in enumerate(self.files))
        with pods_module("cluster").reached_cluster(namespace_named(session, spec.on)) as cluster:
            cluster.create_secret(_object(self.name, spec, self.files))
            try:
                job = session.client.submit(replace(spec, kubernetes=replace(spec.kubernetes, secrets=mounts)))
            except Unreachable as error:
                raise Unreachable(f"{error}; {self._unclear(cluster.namespace)}") from error
            except KeyboardInterrupt:
                warn(self._unclear(cluster.namespace))
                raise
            except BaseException:
                cluster.remove_secret(self.name)
                raise
        self._job = job.id
        return job

    def tidy(self, session: Session, on: str) -> None:
        """Delete it after the end: if the job was cancelled before it had any object, no object owns the Secret."""
        try:
            if self._job and session.client.job(self._job).state is State.CANCELLED:
                with pods_module("cluster").reached_cluster(namespace_named(session, on)) as cluster:
                    cluster.remove_secret(self.name)
        except YardError as error:  # the job has ended, and its exit code is the caller's
            warn(f"Secret {self.name} may be left behind: {error}")

    def _unclear(self, namespace: str) -> str:
        remove = f"kubectl -n {namespace} delete configmap {self.name}"
        return f"Secret {self.name} stays, because its job may have been submitted; if it was not, remove it: {remove}"


def _object(name: str, spec: JobSpec, mounted: list[SecretFile]) -> dict[str, Any]:
    who = f"{spec.submitter.user}@{spec.submitter.host}"
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": "yard-secret", "app.kubernetes.io/managed-by": "jobyard"},
            "annotations": {"jobyard.dev/submitted-by": who, "jobyard.dev/name": spec.name},
        },
        "immutable": True,
        "type": "Opaque",
        "data": {f"file-{index}": base64.b64encode(each.content).decode() for index, each in enumerate(mounted)},
    }


def _is_good(path: str) -> bool:
    """Absolute, of a file, and nothing that Kubernetes would read otherwise."""
    return path.startswith("/") and path == posixpath.normpath(path) and path != "/" and ":" not in path


def _read(file: str) -> bytes:
    path = Path(os.path.expanduser(file))
    try:
        if path.stat().st_size > BYTES_MOST:
            raise UserError(
                f"{FLAG}: {file!r} is larger than a Secret may be ({BYTES_MOST} bytes); use a volume instead"
            )
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{FLAG}: {file!r} cannot be read: {error.strerror}; name a file of this machine") from error
