"""Container: of which image do tasks run, how was it built, and what do containers on machines mount and publish?"""

from __future__ import annotations

from dataclasses import dataclass

from jobyard.model.limits import Line, Path, Port
from jobyard.model.source import BuildRequest, GitState


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory of a machine, and where tasks in containers find it."""

    source: Path
    target: Path
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class PortMapping:
    """What listens on a port in a container is reached on a port of its machine."""

    outside: Port
    inside: Port


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """On a cluster every task runs in a container of the image; on machines only where the submitter says so."""

    image: Line = ""
    git: GitState | None = None  # what the image was made from, if it was made for this job
    build: BuildRequest | None = None  # how to build the image; the submitter builds first, and sends none
    on_machines: bool = False  # tasks on machines run in containers too; otherwise as plain processes
    mounts: tuple[Mount, ...] = ()  # on machines: beside the working directory and what every attempt has
    ports: tuple[PortMapping, ...] = ()  # on machines: with any, its containers have a network of their own
