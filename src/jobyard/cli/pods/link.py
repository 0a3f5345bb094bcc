"""How is an API server asked with the caller's own rights? By the official client's reading of a kubeconfig."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException

from jobyard.errors import Unavailable, UserError
from jobyard.yaml_text import check_files

Query = Sequence[tuple[str, str]]
IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
CONNECT_SECONDS = 30


class Link:
    """One identity at one cluster. Nothing is asked by making it."""

    def __init__(self, client: ApiClient, http: aiohttp.ClientSession, namespace: str) -> None:
        self._client = client
        self.http = http
        self.namespace = namespace

    def url(self, path: str, query: Query = ()) -> str:
        return f"{self._client.configuration.host}{path}{f'?{urlencode(query)}' if query else ''}"

    async def headers(self, path: str) -> dict[str, str]:
        headers: dict[str, str] = {}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
        return headers

    def silent(self, error: Exception) -> Unavailable:
        return Unavailable(f"the API server {self._client.configuration.host} does not answer ({error}); try again")


def _own_namespace() -> str:
    return IN_POD.read_text().strip()


@asynccontextmanager
async def linked(cluster: str, kubeconfig: str, context: str, namespace: str) -> AsyncIterator[Link]:
    """Without a kubeconfig: as the pod that we are in. Without a namespace: the context's own."""
    configuration = Configuration()
    paths = kubeconfig.split(os.pathsep)
    if kubeconfig and not any(map(os.path.exists, paths)):  # the library would only warn
        raise UserError(f"cluster {cluster} cannot be reached from here: there is no {', '.join(paths)}")
    try:
        if kubeconfig:
            check_files(paths)
            loader = await kube_config.load_kube_config(
                kubeconfig, context or None, configuration, persist_config=False
            )
            own = (loader.current_context.get("context") or {}).get("namespace")
        else:
            kube_config.load_incluster_config(client_configuration=configuration)
            own = _own_namespace()
    except (ConfigException, OSError) as error:
        raise UserError(f"cluster {cluster} cannot be reached from here: {error}") from error
    client = ApiClient(configuration)
    connector = aiohttp.TCPConnector(ssl=client.rest_client.ssl_context, limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, proxy=configuration.proxy) as http:
            yield Link(client, http, namespace or own or "default")
    finally:
        await client.close()
