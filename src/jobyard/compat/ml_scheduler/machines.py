"""How do the machines that a command names become nodes of the yard, for as long as it runs?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from jobyard.cli.session import Session
from jobyard.cli.targets import Looked, check_key, config_of
from jobyard.client.api import YardClient
from jobyard.compat.ml_scheduler.batch import SOURCE
from jobyard.compat.ml_scheduler.console import warn
from jobyard.errors import Unreachable, UserError, YardError
from jobyard.model.node import NodeConfig, NodeState
from jobyard.wire.views import NodeView

LABEL = SOURCE  # of nodes that a command added, and the last command that uses them takes away
UNFINISHED = "pending,starting,running,stopping,suspended"
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
    known = {view.id: view for view in client.nodes()}
    configs = _configs(names, known)
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            machines = list(pool.map(lambda name: _machine(client, name, configs.get(name), known), names))
        if not any(machine.is_usable for machine in machines):
            raise UserError(f"no machine can be used: {', '.join(names)}")
        yield machines
    finally:
        _let_go(client, {config.id for config in configs.values()})


def _configs(names: Sequence[str], known: dict[str, NodeView]) -> dict[str, NodeConfig]:
    """How each is reached; one whose file is wrong is left out. A name that another machine has gets a number."""
    configs: dict[str, NodeConfig] = {}
    for name in names:
        try:
            config = config_of(name, labels=(LABEL,), looked=Looked(any_name=True))
            check_key(config, name)
        except UserError as error:
            warn(str(error))
            continue
        taken = {view.id: view.host for view in known.values()} | {other.id: "" for other in configs.values()}
        node, number = config.id, 2
        while taken.get(node, config.host) != config.host:
            node, number = f"{config.id}-{number}", number + 1
        configs[name] = replace(config, id=node)
    return configs


def _machine(client: YardClient, name: str, config: NodeConfig | None, known: dict[str, NodeView]) -> Machine:
    if config is None:
        return Machine(name, None)
    there = known.get(config.id)
    try:
        if there is None or LABEL in there.labels:  # otherwise it is the user's own node, and used as it is
            client.add_node(config)
        machine = Machine(name, client.probe_node(config.id))
    except Unreachable:
        raise
    except YardError as error:
        warn(str(error) if config.id in str(error) else f"{name}: {error}")
        return Machine(name, None)
    if machine.node is not None and not machine.is_usable:
        warn(f"node {machine.node.id} is {machine.node.state.value}: {machine.node.problem or 'nothing starts there'}")
    return machine


def _let_go(client: YardClient, nodes: set[str]) -> None:
    """Take away what commands like this one added, unless another one still runs. Best effort: it harms nobody."""
    with suppress(YardError):
        if any(job.source == SOURCE for job in client.jobs(state=UNFINISHED, limit=1000)):
            return
        for view in client.nodes():
            if view.id in nodes and LABEL in view.labels:
                with suppress(YardError):
                    client.remove_node(view.id)
