"""Identity: as whom is a cluster asked? By a kubeconfig, or by the service account of the pod that we run in.

The official client reads both, and runs the programs that a kubeconfig names to get tokens.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, NamedTuple

from kubernetes.aio import config as kube_config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException

from jobyard.errors import UserError
from jobyard.kubernetes.refusals import sentence
from jobyard.model.node import ClusterConfig
from jobyard.yaml_text import check_files

IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Identity(NamedTuple):
    configuration: Configuration
    namespace: str  # the default namespace
    loader: Any = None  # of a kubeconfig

    async def keep(self) -> None:
        """Until cancelled: tokens from programs of the kubeconfig are renewed before they expire."""
        if getattr(self.loader, "token", None):  # others have certificates, or nothing at all (behind a proxy)
            await kube_config.refresh_token(self.loader, self.configuration)


async def identity_for(config: ClusterConfig) -> Identity:
    """Nothing is asked yet. Raises UserError where there is no way to the cluster."""
    configuration = Configuration()
    configuration.connection_pool_maxsize = 0  # any number: watches and logs hold theirs for long
    loader = None
    try:
        if config.kubeconfig:
            await asyncio.to_thread(_check_paths, config.kubeconfig.split(os.pathsep))
            loader = await kube_config.load_kube_config(
                config.kubeconfig, config.context or None, configuration, persist_config=False
            )
            own = (loader.current_context.get("context") or {}).get("namespace")
        else:
            kube_config.load_incluster_config(client_configuration=configuration)
            own = await asyncio.to_thread(IN_POD.read_text)
    except (ConfigException, OSError) as error:
        raise UserError(
            f"cluster {config.id} cannot be reached from here: {sentence(error)};"
            f" name a kubeconfig: yard clusters add {config.id} --kubeconfig FILE"
        ) from error
    return Identity(configuration, config.namespace or (own or "").strip() or "default", loader)


def _check_paths(paths: list[str]) -> None:
    if not any(map(os.path.exists, paths)):  # the library would only warn
        raise ConfigException(f"there is no {', '.join(paths)}")
    check_files(paths)
