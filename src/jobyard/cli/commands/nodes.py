"""`yard nodes`: which machines are there, and what do they have?"""

from __future__ import annotations

from collections.abc import Callable

import click

from jobyard.cli.output.json import print_json
from jobyard.cli.output.table import print_table
from jobyard.cli.output.text import harmless, say
from jobyard.cli.session import Session, with_session
from jobyard.model.units import show_cpus, show_mib
from jobyard.wire.views import DeviceView, NodeView

HEADERS = ("NODE", "STATE", "EXECUTOR", "CPUS", "MEMORY", "TASKS", "LOAD", "LABELS")
DEVICE_HEADERS = ("NODE", "GPU", "MEMORY", "RESERVED", "OTHERS", "NAME")


@click.command("nodes")
@with_session
def command(session: Session) -> int:
    """List machines and their GPUs: what is reserved of what there is, and what others hold."""
    nodes = session.client.nodes()
    if session.is_json:
        print_json(nodes)
        return 0
    if not nodes:
        say("no nodes yet; `yard doctor` says why")
        return 0
    print_table(HEADERS, [_row(node) for node in nodes])
    devices = [_device_row(node, device) for node in nodes for device in node.devices]
    if devices:
        click.echo()
        print_table(DEVICE_HEADERS, devices)
    for node in nodes:
        if node.holders:
            click.echo(f"{node.id}: also used by {harmless(', '.join(node.holders))}")
    return 0


def _row(node: NodeView) -> tuple[str, ...]:
    return (
        node.id,
        click.style(node.state.value, fg="green" if node.state.value == "UP" else "yellow"),
        node.executor,
        _of(node.cpu_millis_reserved, node.cpu_millis, node.cpu_millis_foreign, show_cpus),
        _of(node.memory_mib_reserved, node.memory_mib, node.memory_mib_foreign, show_mib),
        str(node.tasks),
        "-" if node.load is None else f"{node.load:.2f}",
        ",".join(node.labels) or "-",
    )


def _of(reserved: int, total: int, foreign: int, show: Callable[[int], str]) -> str:
    others = f" (+{show(foreign)} others)" if foreign else ""
    return f"{show(reserved)} of {show(total)}{others}"


def _device_row(node: NodeView, device: DeviceView) -> tuple[str, ...]:
    return (
        node.id,
        str(device.index),
        show_mib(device.memory_mib),
        show_mib(device.reserved_mib),
        show_mib(device.foreign_mib),
        f"{device.name} (fake)" if device.fake else device.name,
    )
