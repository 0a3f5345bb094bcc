"""Image names: how is an image named, and in which registry is it? Rules of the OCI distribution specification."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from jobyard.errors import UserError
from jobyard.model.source import GitState

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_PART}(?:/{_PART})*")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?")
HUB_HOSTS = ("docker.io", "index.docker.io")
PATH_LONGEST = 255  # host and path together, as registries and engines have it
HASH_CHARACTERS = 12


class Registry(NamedTuple):
    """`host` may have a port. Over plain HTTP where it was written with http://, and on this machine."""

    host: str
    path: str = ""
    is_plain: bool = False

    def __str__(self) -> str:
        return f"{self.host}/{self.path}" if self.path else self.host

    @property
    def url(self) -> str:
        """Where it is asked: Docker Hub's name is not its address."""
        host = "registry-1.docker.io" if self.host in HUB_HOSTS else self.host
        return f"{'http' if self.is_plain else 'https'}://{host}"


@dataclass(frozen=True, slots=True)
class ImageName:
    registry: Registry
    repository: str  # below the registry's path
    tag: str

    def __str__(self) -> str:
        return f"{self.untagged}:{self.tag}"

    @property
    def untagged(self) -> str:
        return f"{self.registry.host}/{self.path}"

    @property
    def familiar(self) -> str:
        """As Docker's engine notes it: without a tag, and without a host where that is Docker Hub."""
        return self.path if self.registry.host in HUB_HOSTS else self.untagged

    @property
    def path(self) -> str:
        """What stands between /v2/ and /manifests/."""
        return "/".join(part for part in (self.registry.path, self.repository) if part)


def parse_registry(text: str, field: str) -> Registry:
    """`HOST[:PORT][/PATH]`, with http:// before it where it speaks no TLS. Raises UserError."""
    scheme, _, rest = text.rpartition("://")
    host, _, path = rest.rstrip("/").partition("/")
    found = _HOST.fullmatch(host)
    is_address = found is not None and int(found["port"] or 1) in range(1, 65536)
    if scheme not in ("", "http", "https") or not is_address or (path and not _PATH.fullmatch(path)):
        raise UserError(
            f"{field}: {text!r} is not a registry; write HOST[:PORT][/PATH] in lower case, as in registry.lab:5000/team"
        )
    return Registry(host, path, is_plain=scheme == "http" or (not scheme and is_loopback(host)))


def is_loopback(host: str) -> bool:
    """On this machine, where engines do without TLS too."""
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) and not host.endswith("]") else host
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return name == "localhost"


def repository_of(name: str, field: str) -> str:
    """A directory's or a manifest's name as a path in a registry: in lower case, with hyphens for what may not be."""
    parts = [re.sub(r"[^a-z0-9._-]+", "-", part).strip("-._") for part in name.lower().split("/")]
    path = "/".join(re.sub(r"[._-]{2,}", "-", part) for part in parts if part)
    if not _PATH.fullmatch(path) or len(path) > PATH_LONGEST:
        raise UserError(f"{field}: no image can be named after {name!r}; use letters a to z and digits in its name")
    return path


def commit_tag(git: GitState, words: Mapping[str, object]) -> str:
    """The commit, if it says what is in the image; otherwise with a hash of what else does.

    `words` are the target, the build arguments and the like, the defaults left out.
    """
    said = {name: value for name, value in {**words, "subdir": git.subdir}.items() if value}
    if not said:
        return git.commit
    text = json.dumps(
        {name: dict(value) if isinstance(value, Mapping) else value for name, value in said.items()}, sort_keys=True
    )
    return f"{git.commit}-{hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARACTERS]}"


def personal_tag(user: str, token: str) -> str:
    """For a tree that is in no commit: unique for this user and this tree."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", user).strip("-.")[:60] or "unknown-user"
    return f"{name}-{token}"


def split_image(image: str) -> tuple[str, str]:
    """The registry's host, if the name has one, and the path below it. A tag is dropped: the build chooses it."""
    path = re.sub(r":[^/:]*$", "", image.partition("@")[0])
    first, slash, rest = path.partition("/")
    is_host = bool(slash) and (first == "localhost" or "." in first or ":" in first)
    return (first, rest) if is_host else ("", path)
