"""Kubernetes part of a job: as which object does it run on a cluster, and what do its pods mount?"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jobyard.model.limits import Line, Name, Path

SECRET_NAME = re.compile(r"yard-[0-9a-f]{16}")  # of a Secret that was made for one job


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint of Kubernetes nodes that does not keep tasks away. An empty key or effect means all of them."""

    key: Line = ""
    operator: Line = "Equal"  # or Exists
    value: Line = ""
    effect: Line = ""


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolumeClaim of a cluster, and where tasks find it."""

    claim: Name
    path: Path
    read_only: bool = False

    def __str__(self) -> str:
        """As it is written: `CLAIM:PATH:ro`."""
        return f"{self.claim}:{self.path}{':ro' if self.read_only else ''}"


@dataclass(frozen=True, slots=True)
class SecretMount:
    """A file in the pods of a job. Its content is in a Secret of the cluster, and nowhere in the yard."""

    name: Name  # of the Secret
    key: Name  # in it
    path: Path  # of the file, in every pod

    @property
    def is_made_for_a_job(self) -> bool:
        """Was this Secret made for one job? A submitter may not mount other Secrets of the namespace."""
        return bool(SECRET_NAME.fullmatch(self.name))


@dataclass(frozen=True, slots=True)
class KubernetesSpec:
    """What only a cluster does something with."""

    kind: Line = ""  # PyTorchJob, RayJob; empty: Job or JobSet, by its shape
    manifest: str = ""  # the object as the user wrote it, in JSON; then the groups only say what it amounts to
    volumes: tuple[Volume, ...] = ()
    secrets: tuple[SecretMount, ...] = ()  # the submitter creates them; they are deleted with the job's last object
