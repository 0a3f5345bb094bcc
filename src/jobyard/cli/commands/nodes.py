"""`yard nodes`: which machines are there, what do they have, and which of them may be used?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import click

from jobyard import settings
from jobyard.cli.help_sections import VerbGroup
from jobyard.cli.output.json import print_json
from jobyard.cli.output.node_rows import (
    DEVICE_HEADERS,
    NODE_HEADERS,
    SPARE_DEVICE_HEADERS,
    SPARE_NODE_HEADERS,
    device_rows,
    is_taken,
    node_row,
)
from jobyard.cli.output.table import print_table
from jobyard.cli.output.text import echo, say
from jobyard.cli.session import Session, with_session
from jobyard.errors import Unreachable, UserError, YardError
from jobyard.manifests.targets import Looked, check_key, config_of, sentence_about
from jobyard.model.node import NodeConfig, NodeState, place_of
from jobyard.model.units import show_cpus, show_mib
from jobyard.wire.views import NodeView

T = TypeVar("T")
CLUSTER_MOST = 20  # nodes of a cluster that are listed one by one
AT_ONCE = 16  # machines that are added or asked at the same time
SOME_FAILED, ALL_FAILED = 1, 2


class ListsByDefault(VerbGroup):
    """Without a verb, `ls`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_bare = not args or (args[0].startswith("-") and args[0] not in self.get_help_option_names(ctx))
        if is_bare and not ctx.resilient_parsing:  # a shell that completes wants all its verbs
            args = ["ls", *args]
        return super().parse_args(ctx, args)


@click.group("nodes", cls=ListsByDefault)
def command() -> None:
    """Add, list, drain and remove machines. Without a verb they are listed."""


@command.command("ls")
@with_session
@click.option("--all", "show_all", is_flag=True, help="Also each node of a large cluster.")
def ls(session: Session, show_all: bool) -> int:
    """List machines and their GPUs.

    With what is reserved of what there is, what others hold, and what was measured.
    """
    nodes = session.client.nodes()
    if session.is_json:
        print_json(nodes)
    elif nodes:
        large = {} if show_all else _large_clusters(nodes)
        _print([node for node in nodes if place_of(node.id) not in large])
        for cluster, own in large.items():
            echo(_summary(cluster, own))
    else:
        say("no nodes yet; `yard doctor` says why")
    return 0


@command.command("add")
@with_session
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option("--label", "labels", multiple=True, metavar="LABEL", help="For `yard run --on LABEL`; may be repeated.")
@click.option("--name", metavar="NODE", help="What a single machine is called; default: its host's name.")
@click.option("--force", is_flag=True, help="Also if it does not answer: it is used once it does.")
def add(session: Session, targets: tuple[str, ...], labels: tuple[str, ...], name: str | None, force: bool) -> int:
    """Use machines over SSH. Nothing is installed there: sshd and python3 are enough.

    TARGET is a name of ~/.ssh/config, USER@HOST:PORT, or a machine file (username, ip, port, ssh_key_path).
    Exit codes: 0 all were added, 1 some were not, 2 none was.
    """
    if name is not None and len(targets) > 1:
        raise UserError("--name: it names one machine; add the others by themselves")
    _check_labels(labels)
    taken: dict[str, str] = {}
    looked = Looked(settings.machines_dir())

    def config(target: str) -> NodeConfig:
        found = config_of(target, looked, name=name, labels=labels)
        if not session.leaves_this_machine:
            check_key(found, target)
        if (first := taken.setdefault(found.id, target)) != target:
            raise UserError(f"{target}: it would be called {found.id}, as {first} is; add it by itself with --name")
        return found

    configs = _each(targets, config, at_once=1)
    added = _each(configs.done, lambda target: session.client.add_node(configs.done[target], force=force))
    if session.is_json:
        print_json(list(added.done.values()))
    for view in () if session.is_json else added.done.values():
        echo(f"{view.id} added: {_has(view)}")
    return _exit_code(len(added.done), configs.failures + added.failures)


@command.command("probe")
@with_session
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
def probe(session: Session, nodes: tuple[str, ...]) -> int:
    """Measure machines anew and list them; default: all. Clusters tell by themselves."""
    names = nodes or tuple(view.id for view in session.client.nodes() if place_of(view.id) == view.id)
    probed = _each(names, session.client.probe_node)
    if session.is_json:
        print_json(list(probed.done.values()))
    elif probed.done:
        _print(list(probed.done.values()))
    return _exit_code(len(probed.done), probed.failures)


@command.command("drain")
@with_session
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
def drain(session: Session, nodes: tuple[str, ...]) -> int:
    """Let machines finish what they run and give them nothing new."""

    def sentence(view: NodeView) -> str:
        running = "1 task still runs" if view.tasks == 1 else f"{view.tasks or 'no'} tasks still run"
        return f"{view.id} is draining: {running} there"

    return _change(session, nodes, session.client.drain_node, sentence)


@command.command("resume")
@with_session
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
def resume(session: Session, nodes: tuple[str, ...]) -> int:
    """Use drained machines again."""
    return _change(session, nodes, session.client.resume_node, lambda view: f"{view.id} is {view.state.value}")


@command.command("rm")
@with_session
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option("--force", is_flag=True, help="Also while tasks run there: they run elsewhere as their next attempt.")
def rm(session: Session, nodes: tuple[str, ...], force: bool) -> int:
    """Let machines go."""
    gone = _each(nodes, lambda node: session.client.remove_node(node, force=force))
    if session.is_json:
        print_json({"removed": list(gone.done)})
    for node in () if session.is_json else gone.done:
        echo(f"{node} removed")
    return _exit_code(len(gone.done), gone.failures)


@dataclass
class NodeResults(Generic[T]):
    """The result for each node, and how many failed: their errors are printed already."""

    done: dict[str, T] = field(default_factory=dict)
    failures: int = 0


def _each(names: Iterable[str], act: Callable[[str], T], at_once: int = AT_ONCE) -> NodeResults[T]:
    """Do it to each by itself: one that fails gets its sentence, the others go on. Raises only Unreachable."""
    outcome: NodeResults[T] = NodeResults()
    with ThreadPoolExecutor(at_once) as pool:
        asked = {name: pool.submit(act, name) for name in dict.fromkeys(names)}
        for name, answer in asked.items():
            try:
                outcome.done[name] = answer.result()
            except Unreachable:
                raise
            except YardError as error:
                say(sentence_about(name, error), fg="red")
                outcome.failures += 1
    return outcome


def _exit_code(done: int, failures: int) -> int:
    return 0 if not failures else SOME_FAILED if done else ALL_FAILED


def _change(
    session: Session, nodes: Sequence[str], act: Callable[[str], NodeView], sentence: Callable[[NodeView], str]
) -> int:
    changed = _each(nodes, act)
    if session.is_json:
        print_json(list(changed.done.values()))
    for view in () if session.is_json else changed.done.values():
        echo(sentence(view))
    return _exit_code(len(changed.done), changed.failures)


def _check_labels(labels: Sequence[str]) -> None:
    for label in labels:
        if not label or not label.isprintable() or any(character in label for character in ", "):
            raise UserError(f"--label: {label!r} is not a label; write one word without commas")


def _large_clusters(nodes: Sequence[NodeView]) -> dict[str, list[NodeView]]:
    of_cluster: defaultdict[str, list[NodeView]] = defaultdict(list)
    for node in nodes:
        if place_of(node.id) != node.id:
            of_cluster[place_of(node.id)].append(node)
    return {cluster: own for cluster, own in of_cluster.items() if len(own) > CLUSTER_MOST}


def _summary(cluster: str, nodes: Sequence[NodeView]) -> str:
    up = [node for node in nodes if node.state is NodeState.UP]
    gpus = sum(len(node.devices) for node in up)
    taken = sum(is_taken(device) for node in up for device in node.devices)
    tasks = sum(node.tasks for node in nodes)
    return (
        f"{cluster}: {len(up)} of {len(nodes)} nodes are up, {taken} of {gpus} GPUs are taken, "
        f"{tasks} task{'' if tasks == 1 else 's'} of this yard; `yard nodes ls --all` lists them"
    )


def _print(nodes: Sequence[NodeView]) -> None:
    if nodes:
        print_table(NODE_HEADERS, [node_row(node) for node in nodes], spare=SPARE_NODE_HEADERS)
    devices = [row for node in nodes for row in device_rows(node)]
    if devices:
        echo()
        print_table(DEVICE_HEADERS, devices, spare=SPARE_DEVICE_HEADERS)
    for node in nodes:
        if node.holders:
            echo(f"{node.id}: also used by {', '.join(node.holders)}")
        for doubt in node.doubts:
            echo(f"{node.id}: {doubt}")
        if node.problem:
            echo(_problem(node))


def _problem(node: NodeView) -> str:
    text = node.problem
    return text if text.startswith(f"node {node.id}:") else f"node {node.id}: {text}"


def _has(node: NodeView) -> str:
    if node.state is NodeState.DOWN:
        return "it does not answer yet"
    gpus = f", {len(node.devices)} GPU{'s' if len(node.devices) > 1 else ''}" if node.devices else ", no GPU"
    return f"{show_cpus(node.cpu_millis)} cpus, {show_mib(node.memory_mib)} memory{gpus}"
