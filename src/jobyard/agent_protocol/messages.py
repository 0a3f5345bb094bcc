"""Messages of the server: is one what the protocol says? If not: ValueError, naming the field."""

from __future__ import annotations

import base64
import math
import re
from typing import Any, Dict, List, Tuple

from jobyard.agent_protocol import records

_HASH = re.compile(r"[A-Za-z0-9_-]{1,128}")


def snapshot_id(value: object) -> str:
    """Raises ValueError for what is no snapshot's name, or would lead out of the state."""
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise ValueError("snapshot: not a content hash: %r" % (value,))
    return value


def strings(value: Any, field: str) -> List[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValueError("%s: must be a list of strings" % field)
    return value


def attempt_ids(value: Any) -> List[str]:
    ids = strings(value, "ids")
    for name in ids:
        records.split_attempt(name)
    return ids


def seconds(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError("%s: must be a number of seconds, not %r" % (field, value))
    return float(value)


def environment(value: Any, field: str) -> Dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values()):
        raise ValueError("%s: must be an object of strings" % field)
    return value


def job(message: Dict[str, Any]) -> Dict[str, Any]:
    records.split_attempt("%s.0.0" % message["job"])
    workdir = message.get("workdir") or ""
    if not isinstance(workdir, str) or (workdir and not workdir.startswith("/")):
        raise ValueError("workdir: must be an absolute path, not %r" % (workdir,))
    copy_back = strings(message.get("copy_back") or [], "copy_back")
    return {
        "env": environment(message.get("env") or {}, "env"),
        "workdir": workdir,
        "snapshot": snapshot_id(message["snapshot"]) if message.get("snapshot") else "",
        "subdir": inner_path(message.get("subdir") or "", "subdir"),
        "gang": bool(message.get("gang")),
        "joined": bool(message.get("joined")),
        "container": container(message["container"]) if message.get("container") else None,
        "copy_back": sorted({inner_path(path, "copy_back") for path in copy_back}),
        "stdin": encoded(message["stdin"], "stdin") if message.get("stdin") is not None else None,
    }


def encoded(value: Any, field: str) -> str:
    """Bytes as base64."""
    if not isinstance(value, str):
        raise ValueError("%s: must be base64, not %r" % (field, value))
    base64.b64decode(value, validate=True)
    return value


def container(value: Any) -> Dict[str, Any]:
    """An image, and what its containers have besides what every attempt has."""
    image, shm_mib = value["image"], value.get("shm_mib") or 0
    if not isinstance(image, str) or not image or image.startswith("-"):
        raise ValueError("container: image: must be a name, not %r" % (image,))
    if not _is_size(shm_mib):
        raise ValueError("container: shm_mib: must be a whole number, not %r" % (shm_mib,))
    mounts = [[str(source), str(target), bool(only)] for source, target, only in value.get("mounts") or ()]
    if not all(str(path).startswith("/") and "\0" not in str(path) for mount in mounts for path in mount[:2]):
        raise ValueError("container: mounts: must be absolute paths, not %r" % (mounts,))
    ports = [[int(outside), int(inside)] for outside, inside in value.get("ports") or ()]
    reads_stdin = bool(value.get("reads_stdin"))
    return {"image": image, "shm_mib": shm_mib, "mounts": mounts, "ports": ports, "reads_stdin": reads_stdin}


def inner_path(value: Any, field: str) -> str:
    """A path within a tree, without what means nothing: the tree itself is empty."""
    parts = [part for part in value.split("/") if part not in ("", ".")]
    if value.startswith("/") or ".." in parts or "\0" in value:
        raise ValueError("%s: must be a path within the tree, not %r" % (field, value))
    return "/".join(parts)


def have(value: Any) -> Dict[str, Dict[str, int]]:
    """How many bytes of which streams the server has, by attempt."""
    if not isinstance(value, dict):
        raise ValueError("have: must be an object")
    for name, streams in value.items():
        records.split_attempt(name)
        if not isinstance(streams, dict) or not all(_is_size(size) for size in streams.values()):
            raise ValueError("have: must give a number of bytes for each stream, not %r" % (streams,))
    return value


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def forget(message: Dict[str, Any]) -> Tuple[List[str], List[str]]:
    """The jobs and the snapshots that may go."""
    jobs = strings(message.get("jobs") or [], "jobs")
    for job_id in jobs:
        records.split_attempt("%s.0.0" % job_id)
    return jobs, [snapshot_id(name) for name in strings(message.get("snapshots") or [], "snapshots")]


def launch(message: Dict[str, Any]) -> Tuple[str, str, Dict[str, Any], List[Dict[str, Any]]]:
    """Slot, job, reserved amounts and items of a launch; all of them are right, or it raises."""
    slot, job_id, items = message["slot"], message["job"], message["items"]
    reserve = message.get("reserve") or {}
    if not isinstance(slot, str) or not isinstance(job_id, str) or not isinstance(items, list):
        raise ValueError("launch: slot and job must be strings, items a list")
    _check_reserve(reserve)
    for item in items:
        _check_item(item)
    return slot, job_id, reserve, items


def reserve(message: Dict[str, Any]) -> Tuple[str, Dict[str, Any]]:
    """The slot, and what it holds from now on."""
    slot, amounts = message["slot"], message["reserve"]
    if not isinstance(slot, str):
        raise ValueError("slot: must be a string")
    _check_reserve(amounts)
    return slot, amounts


def _check_item(item: Any) -> None:
    records.split_attempt(item["id"])
    argv = item.get("argv")
    if argv:
        strings(argv, "argv")
    elif not isinstance(item.get("shell"), str):
        raise ValueError("item %s: needs argv or shell" % item["id"])
    if item.get("env"):
        environment(item["env"], "env")
    for field in ("timeout", "grace"):
        if item.get(field) is not None:
            seconds(item[field], field)


def _check_reserve(reserve: Any) -> None:
    for field in ("cpu_millis", "memory_mib", "memory_limit_mib"):
        if not _is_size(reserve.get(field) or 0):
            raise ValueError("reserve: %s must be a whole number" % field)
    devices, whole = reserve.get("devices") or {}, reserve.get("whole_devices") or []
    if not all(index.isascii() and index.isdigit() and _is_size(mib) for index, mib in devices.items()):
        raise ValueError("reserve: devices must map indices to MiB")
    percents = reserve.get("device_percent") or {}
    if not all(index.isascii() and index.isdigit() and _is_size(part) for index, part in percents.items()):
        raise ValueError("reserve: device_percent must map indices to percent")
    if not all(_is_size(index) for index in whole):
        raise ValueError("reserve: whole_devices must be a list of indices")
