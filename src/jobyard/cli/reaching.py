"""Pod lookup: which pod is `JOB/TASK`, and with which kubeconfig does the caller reach it?"""

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
from jobyard.quoting import quoted
from jobyard.wire.views import UnitView

NEEDS_EXTRA = "to reach a pod `yard` needs an extra; run: pip install 'jobyard[kubernetes]'"


class Target(NamedTuple):
    """A pod, and the kubeconfig by which it is reached; none: as the pod that we are in."""

    unit: UnitView
    kubeconfig: str
    context: str

    @property
    def name(self) -> str:
        return f"task {self.unit.task} of job {self.unit.number or self.unit.job}"


def target_of(session: Session, text: str, identity: ClusterWords | None = None) -> Target:
    """By `JOB`, or `JOB/TASK` as `yard show --tasks` names it. Raises UserError where there is no pod."""
    job, _, task = text.partition("/")
    unit = session.client.unit(job, task=task or None)
    if not unit.cluster:
        raise UserError(_way_to_machine(unit))
    is_said = identity is not None and bool(identity.kubeconfig or identity.context)
    if not session.leaves_this_machine and not is_said:
        return Target(unit, unit.kubeconfig, unit.context)
    # A server elsewhere has its own files and rights, which the caller does not have.
    own = config_here(identity or ClusterWords(), os.environ)
    return Target(unit, own.kubeconfig, own.context)


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


def _way_to_machine(unit: UnitView) -> str:
    there = f"task {unit.task} of job {unit.number or unit.job} is a process on {unit.node}, not a pod"
    if unit.host:
        return f"{there}; go there: ssh {quoted(unit.host)}"
    return f"{there}; go to its directory: cd {quoted(unit.workdir)}"


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
