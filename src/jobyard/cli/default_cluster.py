"""Default cluster: which one is meant if a job names Kubernetes and the yard has none? The one that kubectl uses."""

from __future__ import annotations

import os

from jobyard.cli.output.text import say
from jobyard.cli.session import Session
from jobyard.kubernetes.kubeconfig import DEFAULT, ClusterWords, config_elsewhere, config_here, config_of_known
from jobyard.model.job import JobSpec
from jobyard.model.node import ClusterConfig
from jobyard.wire.views import ClusterView


def add_default_cluster(session: Session, spec: JobSpec, *, quiet: bool = False) -> None:
    """Adds it where none is known; nothing for other jobs. Raises UserError where none can be found either."""
    if spec.on != DEFAULT or session.client.clusters():
        return
    if any(node.id == DEFAULT or DEFAULT in node.labels for node in session.client.nodes()):
        return  # a machine of that name is meant
    view = session.client.add_cluster(config_of(session, ClusterWords()))
    if not quiet:
        say(f"note: cluster {view.id} added: {where(view)}, namespace {view.namespace or 'of its own'}")


def config_of(session: Session, words: ClusterWords) -> ClusterConfig:
    """How the yard's server reaches it, wherever that is; of a cluster that the yard knows, what is to change."""
    if session.leaves_this_machine:
        return config_elsewhere(words)
    known = next((cluster for cluster in session.client.clusters() if cluster.id == words.name), None)
    return config_of_known(words, known.kubeconfig, os.environ) if known else config_here(words, os.environ)


def where(cluster: ClusterView) -> str:
    told = " ".join(part for part in (cluster.server, f"({cluster.context})" if cluster.context else "") if part)
    return told or "the pod's own cluster"
