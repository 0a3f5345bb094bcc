"""A docker engine and a registry as processes of ours: directories of their own, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cluster.processes import Program, free_port
from tests.hosts.mounts import unmount_below

PARENT = Path("/tmp")  # short: sockets are made below it


class Engine(NamedTuple):
    host: str  # for DOCKER_HOST


class RegistryServer(NamedTuple):
    address: str  # 127.0.0.1:PORT
    program: Program


@contextmanager
def docker_engine() -> Iterator[Engine]:
    """dockerd without a network. It sees nothing of an engine that this machine may have already."""
    with _directory() as directory:
        config, socket = directory / "daemon.json", directory / "docker.sock"
        config.write_text("{}")
        words = [f"--config-file={config}", f"--data-root={directory / 'data'}", f"--exec-root={directory / 'exec'}"]
        words += [f"--host=unix://{socket}", f"--pidfile={directory / 'pid'}"]
        words += ["--bridge=none", "--iptables=false", "--ip-forward=false"]
        program = Program(["/usr/sbin/dockerd", *words], directory / "dockerd.log")
        try:
            program.until_ready(lambda: _answers(f"unix://{socket}"))
            yield Engine(f"unix://{socket}")
        finally:
            program.stop()


@contextmanager
def registry_server(
    *, users: dict[str, str] | None = None, is_readonly: bool = False, host: str = "127.0.0.1"
) -> Iterator[RegistryServer]:
    """Debian's registry, on loopback or on `host`. With `users`, only they may come in, with names and passwords."""
    with _directory() as directory:
        address = f"{host}:{free_port(host)}"
        settings = {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {
                "filesystem": {"rootdirectory": str(directory / "data")},
                "maintenance": {"readonly": {"enabled": is_readonly}},
            },
            "http": {"addr": address},
        }
        if users:
            settings["auth"] = {"htpasswd": {"realm": "test", "path": str(_htpasswd(directory, users))}}
        config = directory / "config.yml"
        config.write_text(json.dumps(settings))  # JSON is YAML
        program = Program(["docker-registry", "serve", config], directory / "registry.log")
        try:
            program.until_it_answers(f"http://{address}/")
            yield RegistryServer(address, program)
        finally:
            program.stop()


def _answers(host: str) -> bool:
    return subprocess.run(["docker", "--host", host, "version"], capture_output=True).returncode == 0


def _htpasswd(directory: Path, users: dict[str, str]) -> Path:
    """bcrypt, which is all that the registry takes. Perl, which every Debian has, knows it from the C library."""
    path = directory / "htpasswd"
    path.write_text("".join(f"{user}:{_hashed(password)}\n" for user, password in users.items()))
    return path


def _hashed(password: str) -> str:
    words = ["perl", "-e", "print crypt($ARGV[0], $ARGV[1])", password, "$2y$05$abcdefghijklmnopqrstuu"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@contextmanager
def _directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="yi-", dir=PARENT))
    try:
        yield directory
    finally:
        unmount_below(directory)
        shutil.rmtree(directory, ignore_errors=True)
