"""What a registry has of an image that was pushed."""

from __future__ import annotations

import re
from urllib.request import Request, urlopen

from tests.images.servers import RegistryServer

PINNED = re.compile(r"(?P<name>\S+)@(?P<digest>sha256:[0-9a-f]{64})\n")


def digest_in(registry: RegistryServer, repository: str, tag: str) -> str:
    with urlopen(manifest_request(registry, repository, tag, "HEAD")) as answer:
        return str(answer.headers["Docker-Content-Digest"])


def manifest_request(registry: RegistryServer, repository: str, tag: str, method: str) -> Request:
    kinds = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
    url = f"http://{registry.address}/v2/{repository}/manifests/{tag}"
    return Request(url, headers={"Accept": kinds}, method=method)
