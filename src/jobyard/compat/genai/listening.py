"""Listening address: where does `monitor` listen? MHOST:MPORT, and FLASK_PORT too; without a token on loopback only."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

import uvicorn

from jobyard.compat.genai.app import make_app
from jobyard.compat.genai.configuration import service_here
from jobyard.compat.genai.token_check import TOKEN, is_loopback
from jobyard.errors import UserError
from jobyard.model.units import whole_number

HOST, PORT = "127.0.0.1", 6000


def serve() -> None:
    """Until it is stopped. Raises UserError before it serves."""
    host, ports = address_of(os.environ)
    service = service_here()
    sockets = [_bound(host, port) for port in ports]
    app = make_app(lambda: service, os.environ.get(TOKEN, ""))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets)


def address_of(environ: Mapping[str, str]) -> tuple[str, list[int]]:
    """Raises UserError where it would be open to everybody without a token."""
    host = environ.get("MHOST") or HOST
    if not environ.get(TOKEN) and not is_loopback(host):
        raise UserError(f"MHOST: {host} can be reached from elsewhere; set {TOKEN}, or leave MHOST at {HOST}")
    ports = [_port(environ, "MPORT", PORT)]
    if environ.get("FLASK_PORT"):
        ports.append(_port(environ, "FLASK_PORT", PORT))
    return host, list(dict.fromkeys(ports))


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    number = whole_number(text)
    if number is None or not 1 <= number <= 65535:
        raise UserError(f"{name}: {text!r} is not a port; write a number from 1 to 65535")
    return number


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UserError(f"{host}:{port} cannot be listened on: {error.strerror or error}; set MHOST or MPORT") from None
