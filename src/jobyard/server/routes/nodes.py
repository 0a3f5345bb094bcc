"""/nodes: the machines, what they have and which jobs hold it; adding, draining and removing them."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.errors import Unavailable, UserError
from jobyard.model.node import NodeConfig, place_of
from jobyard.server import commands
from jobyard.server.clusters import find_cluster
from jobyard.server.declarations import answers, takes
from jobyard.server.limits import VIEWS_AT_ONCE
from jobyard.server.node_queries import listed_nodes, shown_node
from jobyard.server.problems import problem
from jobyard.server.queries import machine_config
from jobyard.server.rights import admin_of, check_owner
from jobyard.server.rounds import Command
from jobyard.server.routes.answers import Selector, answer, yard_of
from jobyard.server.yard import Yard
from jobyard.wire.requests import AddNode
from jobyard.wire.views import NodeRemoved, NodeView

router = APIRouter()
NODE_SECONDS = 10.0
JOIN_SECONDS = 30.0
NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@router.get("/nodes")
@answers(list[NodeView])
async def list_nodes(request: Request) -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        await yard.loop.has_node(NODE_SECONDS)
        names, shown = listed_nodes(yard.loop)
        views = []
        for index, name in enumerate(names, 1):
            views.append(shown(name))
            if index % VIEWS_AT_ONCE == 0:
                await asyncio.sleep(0)  # with a thousand nodes, let other requests run in between
        return await asyncio.to_thread(answer, views)


@router.post("/nodes", status_code=201)
@answers(NodeView, 201)
async def add_node(request: Request, asked: Annotated[AddNode, takes(AddNode)]) -> Response:
    """Recorded only once the machine has answered: a wrong name leaves nothing behind.

    A machine that is known by the same link is shared: its present users notice nothing.
    """
    by = admin_of(request, "add nodes")
    yard = yard_of(request)
    config = asked.config
    check_owner(by, "key", config.key_path, "name the key in the ssh configuration of who runs the server")
    if not NODE_ID.fullmatch(config.id) or config.id in (yard.machines.this_machine, "local", "ssh"):
        raise UserError(f"node name {config.id!r}: use letters, digits, `_`, `.` and `-`, and not this machine's name")
    if config.odd_login or not config.host:
        raise UserError(
            f"node {config.id}: {config.odd_login!r} is neither a host's name nor a user's; write plain names"
        )
    if find_cluster(yard.loop.state, config.id):
        raise UserError(f"node name {config.id!r}: a cluster has that name; choose another with --name")
    with yard.lifetime.request():
        if taken := _why_taken(yard, config):
            return problem("bad_request", taken, 409)
        if not asked.force and not yard.machines.is_linked(config):
            try:
                _, writer = await yard.machines.agent(config).connect()
            except Unavailable as error:
                raise UserError(str(error)) from error
            writer.close()
        await yard.loop.ask(commands.add_node(config, by.name))
        yard.machines.add(config)
        if not asked.force and not await yard.loop.has_joined(config.id, JOIN_SECONDS):
            raise Unavailable(
                f"node {config.id} was added but does not answer: {shown_node(yard.loop, config.id).problem}"
            )
        return answer(shown_node(yard.loop, config.id), 201)


def _why_taken(yard: Yard, config: NodeConfig) -> str:
    """A name must not move to another machine while tasks run: they would be started again there."""
    known = machine_config(yard.loop, config.id)
    if known is None or known.login == config.login or not shown_node(yard.loop, config.id).tasks:
        return ""
    return (
        f"node {config.id} is {known.shown_login}, and tasks run there; choose another name, "
        f"or drain it first (`yard nodes drain {config.id}`) and wait"
    )


@router.delete("/nodes/{node:path}")
@answers(NodeRemoved)
async def remove_node(request: Request, node: Selector, force: bool = False) -> Response:
    by = admin_of(request, "remove nodes")
    yard = yard_of(request)
    with yard.lifetime.request():
        _known(yard, node)
        if shown_node(yard.loop, node).tasks and not force:
            title = f"node {node} runs tasks; drain it and wait (`yard nodes drain {node}`), or remove it with --force"
            return problem("bad_request", title, 409)
        await yard.loop.ask(commands.remove_node(node, by.name))
        yard.machines.remove(node)
        return answer(NodeRemoved(node))


@router.post("/nodes/{node:path}/drain")
@answers(NodeView)
async def drain_node(request: Request, node: Selector) -> Response:
    by = admin_of(request, "drain nodes")
    return await _changed(request, node, commands.drain_node(node, by.name))


@router.post("/nodes/{node:path}/resume")
@answers(NodeView)
async def resume_node(request: Request, node: Selector) -> Response:
    by = admin_of(request, "resume nodes")
    return await _changed(request, node, commands.resume_node(node, by.name))


@router.post("/nodes/{node:path}/probe")
@answers(NodeView)
async def probe_node(request: Request, node: Selector) -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        commands.known_node(yard.loop.state, node)
        if executor := yard.loop.executor_of(node):
            await executor.probe()
            await yard.loop.heard()
        return answer(shown_node(yard.loop, node))


async def _changed(request: Request, node: Selector, command: Command[str]) -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        await yard.loop.ask(command)
        return answer(shown_node(yard.loop, node))


def _known(yard: Yard, node: str) -> None:
    commands.known_node(yard.loop.state, node)
    if find_cluster(yard.loop.state, cluster := place_of(node)):
        raise UserError(
            f"node {node} belongs to cluster {cluster}; drain it, or let the cluster go: yard clusters rm {cluster}"
        )
    if machine_config(yard.loop, node) is None:
        raise UserError(f"node {node} is this machine; drain it (`yard nodes drain {node}`) to run nothing here")
