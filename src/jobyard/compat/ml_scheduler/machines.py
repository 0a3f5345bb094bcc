"""Machines of a command: how do they become nodes of the yard, for as long as the command runs?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from jobyard import settings
from jobyard.client.api import YardClient
from jobyard.compat.ml_scheduler.batch import SOURCE
from jobyard.compat.ml_scheduler.console import warn
from jobyard.compat.ml_scheduler.use import Use
from jobyard.console import Session
from jobyard.errors import Unreachable, UserError, YardError
from jobyard.manifests.targets import Looked, check_key, node_name, reached, sentence_about
from jobyard.model.node import NodeConfig, NodeState
from jobyard.wire.views import NodeView

LABEL = SOURCE  # of nodes that a command added; the last command removes them
AT_ONCE = 16


@dataclass(frozen=True)
class Machine:
    given: str  # as it stands on the command line
    node: NodeView | None  # None: it cannot be reached

    @property
    def is_usable(self) -> bool:
        return self.node is not None and self.node.state is NodeState.UP


@contextmanager
def machines_for_a_run(session: Session, names: Sequence[str]) -> Iterator[list[Machine]]:
    """Every machine as a node of the yard; one that cannot be used is a warning while another can.

    Raises UserError where none can.
    """
    if session.leaves_this_machine:
        raise UserError("YARD_URL points at a yard elsewhere, where these machine files and results are not; unset it")
    client = session.client
    with Use() as use:
        try:
            yield _machines(client, names)
        finally:
            if use.is_last():
                _let_go(client)


def _machines(client: YardClient, names: Sequence[str]) -> list[Machine]:
    known = {view.id: view for view in client.nodes()}
    configs = _configs(names, known)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        nodes = dict.fromkeys(configs.values())
        views = dict(zip(nodes, pool.map(lambda config: _node(client, config, known), nodes), strict=True))
    machines = [Machine(name, views[configs[name]] if name in configs else None) for name in names]
    if not any(machine.is_usable for machine in machines):
        raise UserError(f"no machine can be used: {', '.join(names)}")
    return machines


def _configs(names: Sequence[str], known: dict[str, NodeView]) -> dict[str, NodeConfig]:
    """How each is reached; one whose file is wrong is left out.

    Files with the same login are one node, that of the yard if it has one. A name that another machine has gets a
    number.
    """
    configs: dict[str, NodeConfig] = {}
    by_login = {(view.host, view.user, view.port): view.id for view in known.values() if view.host}
    looked = Looked(settings.machines_dir(), any_name=True)
    for name in names:
        try:
            config = reached(name, looked)
            check_key(config, name)
        except UserError as error:
            warn(str(error))
            continue
        first = next((other for other in configs.values() if other.login == config.login), None)
        taken = {*known, *(other.id for other in configs.values())}
        node = by_login.get(config.login) or _free_name(node_name(config.id), taken)
        configs[name] = first or replace(config, id=node, labels=(LABEL,), only_named=True)
    return configs


def _free_name(name: str, taken: set[str]) -> str:
    return next(free for free in (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3))) if free not in taken)


def _node(client: YardClient, config: NodeConfig, known: dict[str, NodeView]) -> NodeView | None:
    """As it was just measured; None, with a warning, where it cannot be reached."""
    there = known.get(config.id)
    try:
        if there is None or LABEL in there.labels:  # otherwise the user added the node, and it stays as it is
            client.add_node(config)
        node = client.probe_node(config.id)
    except Unreachable:
        raise
    except YardError as error:
        warn(sentence_about(config.id, error))
        return None
    if node.state is not NodeState.UP:
        warn(f"node {node.id} is {node.state.value}: {node.problem or 'nothing starts there'}")
    return node


def _let_go(client: YardClient) -> None:
    """Remove the nodes that commands like this one added, unless a job of theirs still runs.

    Best effort: only jobs that name such a node run there, so that one which stays does no harm.
    """
    with suppress(YardError):
        if any(job.source == SOURCE for job in client.jobs(unfinished=True)):
            return
        for view in client.nodes():
            if LABEL in view.labels:
                with suppress(YardError):
                    client.remove_node(view.id)
