"""An API server that only plays: on loopback, in a thread of its own. It answers what a test tells it to."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from jobyard.model.node import ClusterConfig

Object = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: Object | list[Object] | bytes = field(default_factory=dict)  # a list: as lines, one after another
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


Answer = Reply | Callable[[web.Request], Awaitable[web.StreamResponse]]


class PlayedServer:
    """Answers by `METHOD /path`, one reply after another; the last one stays. What it does not know is a 404."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._replies: dict[str, list[Answer]] = {}
        self.asked: list[Question] = []
        self.url = ""

    def on(self, call: str, *replies: Answer) -> None:
        self._replies[call] = list(replies)

    @property
    def calls(self) -> list[str]:
        return [str(each) for each in self.asked]

    def config(self, namespace: str = "ml") -> ClusterConfig:
        """By which it is reached, as it would be behind `kubectl proxy`."""
        path = self._directory / "config"
        context = {"cluster": "x", "namespace": "of-the-context"}
        content: Object = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
        content["clusters"] = [{"name": "x", "cluster": {"server": self.url}}]
        content["contexts"] = [{"name": "x", "context": context}]
        path.write_text(json.dumps(content))
        return ClusterConfig("lab", str(path), "", namespace)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        said = json.loads(body) if body else None
        asked = Question(request.method, request.path, dict(request.query), dict(request.headers), said)
        self.asked.append(asked)
        left = self._replies.get(str(asked)) or [Reply(404, {"reason": "NotFound", "message": f"no {asked.path}"})]
        reply = left.pop(0) if len(left) > 1 else left[0]
        if not isinstance(reply, Reply):
            return await reply(request)
        if isinstance(reply.body, bytes):
            return web.Response(status=reply.status, body=reply.body, headers=reply.headers)
        lines = reply.body if isinstance(reply.body, list) else [reply.body]
        text = "\n".join(map(json.dumps, lines)) + "\n"
        return web.Response(status=reply.status, text=text, headers=reply.headers)

    async def serve(self, opened: Future[Callable[[], object]]) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        loop, is_over = asyncio.get_running_loop(), asyncio.Event()
        opened.set_result(lambda: loop.call_soon_threadsafe(is_over.set))
        await is_over.wait()
        await runner.cleanup()


@contextmanager
def played_server(directory: Path) -> Iterator[PlayedServer]:
    server = PlayedServer(directory)
    opened: Future[Callable[[], object]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(opened)), daemon=True)
    thread.start()
    close = opened.result(30)
    try:
        yield server
    finally:
        close()
        thread.join()
