"""Kubeconfig: which cluster do a caller's files and variables mean?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jobyard.errors import UserError
from jobyard.model.node import ClusterConfig
from jobyard.yaml_text import UnreadableYaml, value_of

DEFAULT = "kubernetes"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
NOWHERE = (
    "no kubeconfig: neither KUBECONFIG nor ~/.kube/config names a file, and this is no pod; "
    "name one with: yard clusters add --kubeconfig FILE"
)


@dataclass(frozen=True)
class ClusterWords:
    """The flags; empty: as in the environment."""

    name: str = DEFAULT
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    storage: str = ""
    queue: str = ""
    allow_host_path: bool = False


def config_here(words: ClusterWords, environ: Mapping[str, str]) -> ClusterConfig:
    """For a server on this machine: paths are absolute and the context is named, so that a later `kubectl config
    use-context` moves no jobs. Raises UserError."""
    said = config_elsewhere(words)
    paths = kubeconfig_paths(words.kubeconfig, environ)
    if not paths:
        if not is_pod(environ):
            raise UserError(NOWHERE)
        return replace(said, kubeconfig="", context="")
    context, namespace = _context_of(paths, words.context)
    kubeconfig = os.pathsep.join(map(str, paths))
    return replace(said, kubeconfig=kubeconfig, context=context, namespace=words.namespace or namespace)


def config_of_known(words: ClusterWords, kubeconfig: str, environ: Mapping[str, str]) -> ClusterConfig:
    """What is to change of a cluster that the yard reaches by `kubeconfig`; empty: stays. Raises UserError."""
    if words.kubeconfig and str(Path(words.kubeconfig).expanduser().absolute()) != kubeconfig:
        return config_here(words, environ)
    if words.context and kubeconfig:
        _context_of([Path(path) for path in kubeconfig.split(os.pathsep)], words.context)  # raises where it is misspelt
    return config_elsewhere(replace(words, kubeconfig=""))


def config_elsewhere(words: ClusterWords) -> ClusterConfig:
    """For a server on another machine: what is said, as it is there; nothing said: the pod that it runs in."""
    place = (words.kubeconfig, words.context, words.namespace)
    return ClusterConfig(words.name, *place, words.storage, words.queue, words.allow_host_path)


def is_pod(environ: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environ and SERVICE_ACCOUNT.exists()


def kubeconfig_paths(said: str, environ: Mapping[str, str]) -> list[Path]:
    """Those of KUBECONFIG that are there, as kubectl takes them, or ~/.kube/config. One that is named must be there."""
    if said:
        path = Path(said).expanduser().absolute()
        if not path.is_file():
            raise UserError(f"--kubeconfig: {said!r} is not a file; name another (looked for {path})")
        return [path]
    listed = environ.get("KUBECONFIG", "")
    names = [name for name in listed.split(os.pathsep) if name]
    paths = [Path(name).expanduser().absolute() for name in names or ["~/.kube/config"]]
    found = [path for path in paths if path.is_file()]
    if names and not found:
        raise UserError(f"KUBECONFIG: {listed!r} names no file that is there; correct it, or unset it")
    return found


def _context_of(paths: list[Path], said: str) -> tuple[str, str]:
    """Its name and its namespace."""
    contexts: dict[str, dict[str, Any]] = {}
    current = ""
    for path in paths:
        content = _read(path)
        current = current or str(content.get("current-context") or "")
        for entry in content.get("contexts") or ():
            contexts.setdefault(str(entry.get("name")), entry.get("context") or {})  # the first one of a name counts
    name = said or current
    where = ", ".join(map(str, paths))
    if not name:
        raise UserError(f"kubeconfig {where}: it has no current context; choose one of it with --context NAME")
    if name not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise UserError(f"context {name!r} is not in kubeconfig {where}; known: {known}")
    return name, str(contexts[name].get("namespace") or "default")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = value_of(path.read_text())
    except (OSError, UnicodeError, UnreadableYaml) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        why = str(error) if isinstance(error, UnreadableYaml) else why
        raise UserError(f"kubeconfig {path} cannot be read: {why}") from error
    if not isinstance(content, dict) or not isinstance(content.get("contexts") or [], list):
        raise UserError(f"kubeconfig {path} cannot be read: it is not a kubeconfig")
    return content
