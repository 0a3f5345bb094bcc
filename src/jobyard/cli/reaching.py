"""Task lookup: which pod or process is `JOB/TASK`, and by which kubeconfig or login does the caller reach it?"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple

import click

from jobyard.cli.session import Session
from jobyard.errors import UserError
from jobyard.kubernetes.kubeconfig import ClusterWords, config_here
from jobyard.wire.views import ProcessView, UnitView

NEEDS_EXTRA = "to reach a pod `yard` needs an extra; run: pip install 'jobyard[kubernetes]'"


class Target(NamedTuple):
    """A pod, and the kubeconfig by which it is reached; none: as the pod that we are in."""

    unit: UnitView
    kubeconfig: str
    context: str

    @property
    def name(self) -> str:
        return _name_of(self.unit)


class MachineTarget(NamedTuple):
    """A process on this machine, or on one that ssh leads to."""

    unit: UnitView
    process: ProcessView
    has_keys: bool  # the files of keys that the server names are on this machine

    @property
    def name(self) -> str:
        return _name_of(self.unit)


def _name_of(unit: UnitView) -> str:
    return f"task {unit.task} of job {unit.number or unit.job}"


def target_of(session: Session, text: str, identity: ClusterWords | None = None) -> Target | MachineTarget:
    """By `JOB`, or `JOB/TASK` as `yard show --tasks` names it. Raises UserError where it cannot be reached."""
    job, _, task = text.partition("/")
    unit = session.client.unit(job, task=task or None)
    is_said = identity is not None and bool(identity.kubeconfig or identity.context)
    if not unit.cluster:
        if is_said:
            raise UserError(f"{_name_of(unit)} is no pod; leave --kubeconfig and --context out")
        return _on_machine(session, unit)
    if not session.leaves_this_machine and not is_said:
        return Target(unit, unit.kubeconfig, unit.context)
    # A server elsewhere has its own files and rights, which the caller does not have.
    own = config_here(identity or ClusterWords(), os.environ)
    return Target(unit, own.kubeconfig, own.context)


def _on_machine(session: Session, unit: UnitView) -> MachineTarget:
    """Raises UserError where only the server's machine leads there."""
    if unit.process is None:
        raise UserError(f"the server is older than this `yard`, and does not say how {_name_of(unit)} is reached")
    if session.leaves_this_machine and not unit.process.host:
        raise UserError(
            f"{_name_of(unit)} runs on {unit.node}, the server's own machine, to which the yard knows no way by SSH; "
            f"log in there, and use `yard` there"
        )
    return MachineTarget(unit, unit.process, has_keys=not session.leaves_this_machine)


class NamespaceAccess(NamedTuple):
    """A namespace of a cluster, and the kubeconfig by which the caller reaches it."""

    cluster: str
    kubeconfig: str
    context: str
    namespace: str


def namespace_named(session: Session, on: str = "") -> NamespaceAccess:
    """The cluster that `on` names, or the first of the yard, or the one that kubectl would use. Raises UserError."""
    known = session.client.clusters()
    names = on.split(",")
    view = next((each for each in known if each.id in names), known[0] if known else None)
    if view is not None and not session.leaves_this_machine:
        return NamespaceAccess(view.id, view.kubeconfig, view.context, view.namespace)
    own = config_here(ClusterWords(), os.environ)
    if view is None:
        return NamespaceAccess(own.id, own.kubeconfig, own.context, own.namespace)
    return NamespaceAccess(view.id, own.kubeconfig, own.context, view.namespace or own.namespace)


def identity_flags(function: Callable[..., int]) -> Callable[..., int]:
    """Gives a verb `--kubeconfig` and `--context`; it gets them as one `identity`."""

    @click.option("--kubeconfig", default="", metavar="FILE", help="Default: that of the yard, or of your own.")
    @click.option("--context", default="", metavar="NAME", help="Of the kubeconfig; default: the current one.")
    @wraps(function)
    def with_identity(*args: Any, kubeconfig: str, context: str, **given: Any) -> int:
        return function(*args, identity=ClusterWords(kubeconfig=kubeconfig, context=context), **given)

    return with_identity


def pods_module(name: str) -> Any:
    """A module of `jobyard.cli.pods`. Raises UserError where the library is not installed."""
    try:
        return import_module(f"jobyard.cli.pods.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("jobyard"):
            raise
        raise UserError(NEEDS_EXTRA) from error


def finish(work: Coroutine[Any, Any, int]) -> int:
    return asyncio.run(work)
