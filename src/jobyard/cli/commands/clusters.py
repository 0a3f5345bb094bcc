"""`yard clusters`: which Kubernetes clusters are there, and which of them may be used?"""

from __future__ import annotations

from typing import Any

import click

from jobyard.cli.commands.nodes import ListsByDefault
from jobyard.cli.default_cluster import config_of, where
from jobyard.cli.output.json import print_json
from jobyard.cli.output.table import print_table
from jobyard.cli.output.text import Painted, echo, say
from jobyard.cli.session import Session, with_session
from jobyard.kubernetes.kubeconfig import DEFAULT, ClusterWords
from jobyard.wire.views import ClusterView

HEADERS = ("CLUSTER", "STATE", "NODES", "GPUS FREE", "JOBS", "NAMESPACE", "QUEUE", "STORAGE", "SERVER")


@click.group("clusters", cls=ListsByDefault)
def command() -> None:
    """Add, list and remove Kubernetes clusters. Without a verb they are listed."""


@command.command("ls")
@with_session
def ls(session: Session) -> int:
    """List clusters.

    With what they have, and what keeps the yard from using them.
    """
    clusters = session.client.clusters()
    if session.is_json:
        print_json(clusters)
    elif clusters:
        print_table(HEADERS, [_row(cluster) for cluster in clusters])
        for cluster in clusters:
            if cluster.problem:
                echo(f"{cluster.id}: {cluster.problem}")
    else:
        say("no clusters; `yard clusters add` adds the one that kubectl uses")
    return 0


@command.command("add")
@with_session
@click.argument("name", default=DEFAULT, metavar="[NAME]")
@click.option("--kubeconfig", default="", metavar="FILE", help="Default: as kubectl, KUBECONFIG or ~/.kube/config.")
@click.option("--context", default="", metavar="NAME", help="Default: the current one.")
@click.option("-n", "--namespace", default="", metavar="NAME", help="Where jobs go; default: the context's.")
@click.option("--storage", default="", metavar="CLAIM", help="A PersistentVolumeClaim for checkpoints and results.")
@click.option("--queue", default="", metavar="QUEUE", help="A LocalQueue of Kueue, which then decides who runs.")
@click.option("--allow-host-path", is_flag=True, help="Manifests may use hostPath and the like; off unless said.")
@click.option("--force", is_flag=True, help="Also if it does not answer: it is used once it does.")
def add(session: Session, force: bool, **words: Any) -> int:
    """Use a Kubernetes cluster, for `yard run --on NAME`. Default name: kubernetes.

    The same name again changes what is said. Jobs run with the rights of this kubeconfig.
    """
    view = session.client.add_cluster(config_of(session, ClusterWords(**words)), force=force)
    if session.is_json:
        print_json(view)
    else:
        echo(f"{view.id} added: {_has(view)}")
    return 0


@command.command("rm")
@with_session
@click.argument("name", metavar="NAME")
@click.option("--force", is_flag=True, help="Also while jobs of it have not ended: they are cancelled.")
def rm(session: Session, name: str, force: bool) -> int:
    """Let a cluster go."""
    session.client.remove_cluster(name, force=force)
    if session.is_json:
        print_json({"removed": name})
    else:
        echo(f"{name} removed")
    return 0


def _row(cluster: ClusterView) -> tuple[str, ...]:
    return (
        cluster.id,
        _state(cluster),
        f"{cluster.nodes_up}/{cluster.nodes}",
        f"{cluster.gpus_free}/{cluster.gpus}",
        str(cluster.jobs or "-"),
        cluster.namespace or "-",
        cluster.queue or "-",
        cluster.storage or "-",
        where(cluster),
    )


def _state(cluster: ClusterView) -> str:
    if cluster.is_connected and not cluster.problem:
        return Painted("connected", "green")
    return Painted("problem", "red") if cluster.problem else Painted("connecting", "yellow")


def _has(cluster: ClusterView) -> str:
    if cluster.problem or not cluster.is_connected:
        return f"it cannot be used yet: {cluster.problem or 'it does not answer'}"
    nodes = "1 node" if cluster.nodes_up == 1 else f"{cluster.nodes_up} nodes"
    namespace = f"namespace {cluster.namespace}" if cluster.namespace else "its own namespace"
    return f"{nodes}, {cluster.gpus_free} of {cluster.gpus} GPUs free, {namespace}"
