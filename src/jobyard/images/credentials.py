"""Registry credentials: which user and password reach a registry? As `docker login` or `podman login` stored them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from jobyard.images.names import HUB_HOSTS

DOCKER_HUB = "https://index.docker.io/v1/"
HELPER_SECONDS = 20.0
_IDENTITY = "<token>"  # what a credential helper names the user when it has a token in place of a password


class Credentials(NamedTuple):
    user: str
    password: str
    identity_token: str = ""  # for the registry's token service, in place of both

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def credentials_for(host: str) -> Credentials | None:
    """The first that knows the registry: docker's own file, then podman's. None: nobody logged in."""
    for config in _configs():
        if found := _from_helper(config, host) or _from_file(config, host):
            return found
    return None


def _configs() -> Iterator[Mapping[str, Any]]:
    docker = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    podman = os.environ.get("REGISTRY_AUTH_FILE") or f"{runtime}/containers/auth.json"
    for path in (Path(docker, "config.json"), Path(podman), Path("~/.config/containers/auth.json").expanduser()):
        with suppress(OSError, ValueError, RecursionError):  # docker or podman itself reports a broken file
            config = json.loads(path.read_bytes())
            if isinstance(config, dict):
                yield config


def _keys(host: str) -> tuple[str, ...]:
    return (
        host,
        f"https://{host}",
        f"http://{host}",
        *((DOCKER_HUB,) if host in HUB_HOSTS else ()),
    )


def _from_file(config: Mapping[str, Any], host: str) -> Credentials | None:
    auths = config.get("auths")
    entries: Mapping[str, Any] = auths if isinstance(auths, dict) else {}
    for key in _keys(host):
        entry = entries.get(key)
        if not isinstance(entry, dict):
            continue
        token = str(entry.get("identitytoken") or "")
        user, password = str(entry.get("username") or ""), str(entry.get("password") or "")
        with suppress(ValueError):
            if auth := entry.get("auth"):
                user, _, password = base64.b64decode(str(auth)).decode().partition(":")
        if user or token:
            return Credentials(user, password.rstrip("\0"), token)
    return None


def _from_helper(config: Mapping[str, Any], host: str) -> Credentials | None:
    helpers = config.get("credHelpers")
    name = (helpers.get(host) if isinstance(helpers, dict) else None) or config.get("credsStore")
    for key in _keys(host) if name else ():
        with suppress(OSError, ValueError, RecursionError, subprocess.SubprocessError, KeyError):
            done = subprocess.run(
                [f"docker-credential-{name}", "get"],
                input=key.encode(),
                capture_output=True,
                check=True,
                timeout=HELPER_SECONDS,
            )
            said = json.loads(done.stdout)
            if said["Username"] == _IDENTITY:
                return Credentials("", "", said["Secret"])
            return Credentials(said["Username"], said["Secret"])
    return None
