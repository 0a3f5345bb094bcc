"""`yard doctor`: does everything work, and what is to be done where it does not?"""

from __future__ import annotations

import os
import platform
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import click

from jobyard import settings
from jobyard.cli.disk import free_mib
from jobyard.cli.option_values import WholeNumber
from jobyard.cli.output.json import print_json
from jobyard.cli.output.text import Painted, echo
from jobyard.cli.session import Session, with_session
from jobyard.client.api import YardClient
from jobyard.errors import YardError
from jobyard.model import codec
from jobyard.model.node import place_of
from jobyard.model.units import show_bytes, show_cpus, show_mib, show_seconds
from jobyard.wire.kept import KeptView
from jobyard.wire.views import ClusterView, NodeView, ServerView

OK, WARN, FAIL = "ok", "warn", "fail"
COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}
AGENTS_SECONDS = 15.0  # a server that has just started gets so long to meet its agents
NOT_REACHABLE = 3
LEAVING_SHOWN = 5


@dataclass(frozen=True)
class Check:
    name: str
    status: str
    message: str
    way_out: str = ""


@click.command("doctor")
@click.option("--accept", type=WholeNumber(min=1), metavar="ROW", help="Go on without this damaged journal row.")
@with_session
def command(session: Session, accept: int | None) -> int:
    """Check that everything works, and say what to do where it does not. Starts the server if none runs."""
    if accept is not None:
        session.client.accept_row(accept)
    checks = [] if session.is_remote else local_checks(settings.yard_dir(session.yard))
    server: ServerView | None = None
    nodes: tuple[NodeView, ...] = ()
    clusters: tuple[ClusterView, ...] = ()
    try:
        server = _server_with_agents(session.client)
        nodes, clusters = session.client.nodes(), session.client.clusters()
    except YardError as error:
        checks.append(Check("server", FAIL, str(error), "see `yard server logs`"))
    if server is not None:
        machines = tuple(node for node in nodes if place_of(node.id) == node.id)
        checks += [*server_checks(server, str(session.client.address)), *node_checks(machines)]
        checks += [cluster_check(cluster) for cluster in clusters]
    _show(session, checks, server, nodes)
    if server is None:
        return NOT_REACHABLE
    return 1 if any(check.status == FAIL for check in checks) else 0


def local_checks(yard: Path) -> list[Check]:
    """Of this machine, before any server."""
    bash = shutil.which("bash")
    return [
        Check("python", OK, f"{platform.python_version()} on {platform.system()}"),
        Check("bash", OK, bash) if bash else Check("bash", FAIL, "no bash in PATH", "install bash: it runs every task"),
        *_directory_checks(yard),
    ]


def _directory_checks(yard: Path) -> list[Check]:
    existing = next(path for path in (yard, *yard.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return [Check("yard", FAIL, f"{existing} cannot be written", "choose another with --yard DIR or YARD_DIR")]
    free, is_little = free_mib(yard)
    way_out = "journal and logs are written there; `yard gc` and `yard rm JOB` make room" if is_little else ""
    disk = Check("disk", WARN if is_little else OK, f"{show_mib(free)} free", way_out)
    return [Check("yard", OK, str(yard)), disk]


def server_checks(server: ServerView, address: str) -> list[Check]:
    checks = [Check("server", OK, f"pid {server.pid} answers on {address}")]
    if server.build == settings.build_id():
        checks.append(Check("build", OK, server.build))
    else:
        message = f"the server runs {server.build}, this `yard` is {settings.build_id()}"
        checks.append(Check("build", WARN, message, "`yard server stop` once it is idle"))
    checks += [*damage_checks(server), *trouble_checks(server), *kept_checks(server.kept)]
    if server.read_only:
        return checks  # no agent is asked
    if not server.agents:
        checks.append(Check("agent", FAIL, "no agent: nothing can run", "see `yard server logs`"))
    for agent in server.agents:
        if agent.connected:
            checks.append(Check("agent", OK, f"{agent.node}: pid {agent.pid}"))
        else:
            checks.append(Check("agent", FAIL, f"{agent.node}: not connected", "see `yard server logs`"))
    return checks


def damage_checks(server: ServerView) -> list[Check]:
    checks = [Check("journal", FAIL, server.read_only)] if server.read_only else []
    for each in server.damages:
        if each.jobs:
            told, way_out = f"holds {', '.join(each.jobs)}", f"`yard cancel {each.jobs[0]}` gives such a job up"
        else:
            told = "was accepted" if each.is_accepted else "concerns jobs that are not known"
            way_out = "" if each.is_accepted else f"`yard doctor --accept {each.row}` goes on without it"
        checks.append(Check("journal", WARN, f"{each.sentence}; it {told}", way_out))
    return checks


def trouble_checks(server: ServerView) -> list[Check]:
    return [
        Check(each.what, WARN, f"{each.count} failed; the last: {each.last}", "see `yard server logs`")
        for each in server.troubles
        if each.what != "journal"  # its rows are named
    ]


def kept_checks(kept: KeptView | None) -> list[Check]:
    if kept is None:
        return []
    jobs = "1 job that has ended takes" if kept.jobs == 1 else f"{kept.jobs} jobs that have ended take"
    size, most = show_bytes(kept.bytes), show_bytes(kept.bytes_most)
    checks = [Check("kept", OK, f"{jobs} {size} on the server's disk; from {most} on the oldest go")]
    for each in kept.leaving[:LEAVING_SHOWN]:
        days = show_seconds(max(0.0, each.goes_at - time.time()))
        told = f"job {each.number} ({each.name}) goes in {days}, with results that are only in the yard"
        checks.append(Check("kept", WARN, told, "fetch or copy them before"))
    if (more := len(kept.leaving) - LEAVING_SHOWN) > 0:
        checks.append(Check("kept", WARN, f"{more} more jobs go soon with results that are only in the yard"))
    return checks


def node_checks(nodes: tuple[NodeView, ...]) -> list[Check]:
    if not nodes:
        return [Check("node", FAIL, "no node: nothing can run", "see `yard server logs`")]
    checks = []
    for node in nodes:
        is_up = node.state.value == "UP"
        room = f"{show_cpus(node.cpu_millis)} cpus, {show_mib(node.memory_mib)} memory"
        way_out = "" if is_up else "nothing new starts there; see `yard server logs`"
        checks.append(Check("node", OK if is_up else WARN, f"{node.id} is {node.state.value}: {room}", way_out))
        if node.problem:
            checks.append(Check("node", WARN, f"{node.id}: {node.problem}", "see `yard server logs`"))
        for device in node.devices:
            name = f"{device.name} (fake)" if device.fake else device.name
            checks.append(Check("gpu", OK, f"{node.id} {device.index}: {name}, {show_mib(device.memory_mib)}"))
    return checks


def cluster_check(cluster: ClusterView) -> Check:
    if cluster.is_connected and not cluster.problem:
        room = f"{cluster.nodes_up} of {cluster.nodes} nodes are up, {cluster.gpus_free} of {cluster.gpus} GPUs free"
        return Check("cluster", OK, f"{cluster.id}: {room}")
    way_out = f"`yard clusters add {cluster.id}` changes how it is reached"
    return Check("cluster", WARN, f"{cluster.id}: {cluster.problem or 'it does not answer'}", way_out)


def _server_with_agents(client: YardClient) -> ServerView:
    deadline = time.monotonic() + AGENTS_SECONDS
    while True:
        view = client.server()
        is_complete = view.agents and all(agent.connected and agent.pid for agent in view.agents)
        if is_complete or view.read_only or time.monotonic() >= deadline:
            return view
        time.sleep(0.1)


def _show(session: Session, checks: list[Check], server: ServerView | None, nodes: tuple[NodeView, ...]) -> None:
    if session.is_json:
        data = codec.encode(server, defaults=True) if server else None
        agents = data["agents"] if data else []
        print_json({"server": data, "agents": agents, "nodes": nodes, "checks": checks})
        return
    for check in checks:
        mark = Painted(check.status.ljust(4), COLOURS[check.status])
        way_out = f"; {check.way_out}" if check.way_out else ""
        echo(mark, f"  {check.name.ljust(7)}  {check.message}{way_out}")
