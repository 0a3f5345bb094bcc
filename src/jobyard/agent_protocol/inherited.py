"""Inherited environment: which variables of the process that starts an agent may the agent have, and which its tasks?

A server may hold a database's password, a token or the keys of whoever started it. A task belongs to somebody else: it
gets what was submitted with it, what the yard sets, and the little that a machine gives to every login. On a machine
that is reached by SSH the login session itself is that little, and nothing is taken from it.
"""

from __future__ import annotations

from typing import Dict, Mapping, Set

PRIVATE = "JOBYARD_PRIVATE"  # names that the agent needs for itself and no task gets
_LOGIN = frozenset(("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER", "XDG_RUNTIME_DIR"))
_LOGIN_PREFIX = "LC_"
_SIMULATED = frozenset(("JOBYARD_FAKE_GPUS", "JOBYARD_FAKE_GPU_DIR", "JOBYARD_TEST_YARD"))  # tasks act on them
# A Python that finds its libraries by a variable, the clients of container runtimes, and systemd's user scopes.
_OWN = frozenset(
    {"CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS", "LD_LIBRARY_PATH", "REGISTRY_AUTH_FILE"}
    | {"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}
    | {"JOBYARD_CONTAINER_RUNTIME", "JOBYARD_FAULTS", "JOBYARD_MEMORY_LIMITS", "JOBYARD_RESERVATIONS_DIR"}
    | {"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
)
_OWN_PREFIXES = ("CONTAINERS_", "DOCKER_")


def for_agent(environ: Mapping[str, str]) -> Dict[str, str]:
    """What an agent on the server's own machine is started with: nothing else is in its /proc/PID/environ either."""
    kept = {name: value for name, value in environ.items() if _is_login(name) or _is_own(name)}
    return {**kept, PRIVATE: " ".join(sorted(name for name in kept if not _is_login(name)))}


def for_tasks(environ: Mapping[str, str]) -> Dict[str, str]:
    """What every task finds that was not submitted with its job, out of the agent's own variables."""
    dropped: Set[str] = {PRIVATE, "JOBYARD_FAULTS", *environ.get(PRIVATE, "").split()}
    return {name: value for name, value in environ.items() if name not in dropped}


def _is_login(name: str) -> bool:
    return name in _LOGIN or name in _SIMULATED or name.startswith(_LOGIN_PREFIX)


def _is_own(name: str) -> bool:
    return name in _OWN or name.startswith(_OWN_PREFIXES)
