"""REST paths: how are a job, a node or a question written into one?"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from jobyard.errors import NotFound, UserError

Query = Mapping[str, str | int | float | bool | None]
_LISTED = {"job": "yard ls -a", "node": "yard nodes", "cluster": "yard clusters", "token": "yard token ls"}


def quoted(kind: str, name: str) -> str:
    """Quoted for a path; a command-line word that is not UTF-8 matches nothing, but is not a bug.

    Raises UserError for what would be another path: servers and proxies read `%2F` as the slash that it stands for.
    """
    if not name:
        raise UserError(f"the name of the {kind} is empty; `{_LISTED[kind]}` lists them")
    parts = name.split("/") if kind == "node" else [name]  # a cluster's nodes are named CLUSTER/NODE
    if any(part in ("", ".", "..") or "/" in part for part in parts):
        tasks = ", and tasks of a job cannot be named here" if kind == "job" and "/" in name else ""
        raise NotFound(f"no {kind} {name!r} can be asked for by that name{tasks}; `{_LISTED[kind]}` lists them")
    return "/".join(quote(part, safe="", errors="surrogateescape") for part in parts)


def job_path(selector: str, below: str = "") -> str:
    return f"/jobs/{quoted('job', selector)}{below}"


def node_path(node: str, below: str = "") -> str:
    return f"/nodes/{quoted('node', node)}{below}"


def query_of(values: Query) -> str:
    """Only what is said: None and False are left out."""
    said = {
        key: "true" if value is True else str(value)
        for key, value in values.items()
        if value is not None and value is not False
    }
    return f"?{urlencode(said)}" if said else ""
