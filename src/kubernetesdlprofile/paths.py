"""Snapshot paths: where are the snapshots of a job, and which one is the newest?"""

from __future__ import annotations

import os

SNAPSHOTS = "/snapshots"  # a mount, where a container runtime makes one
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv", "/singularity")
_CONTAINER_NAMES = ("container", "KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")


def root_directory(job_id: str) -> str:
    """The first that exists: the yard's snapshots, the container's mount, the yard's checkpoints, a local one."""
    told = os.environ.get("YARD_SNAPSHOTS_DIR")
    if told:
        return os.path.join(told, job_id)
    if _is_container() and os.path.isdir(SNAPSHOTS) and os.access(SNAPSHOTS, os.W_OK | os.X_OK):
        return os.path.join(SNAPSHOTS, job_id)
    return os.environ.get("YARD_CHECKPOINT_DIR") or os.path.abspath(os.path.join("snapshots", job_id))


def newest_checkpoint(root: str) -> str:
    """Lightning's newest, of its highest version that has any; else TensorFlow's, whether there is one yet or not."""
    versions = os.path.join(root, "lightning_logs")
    numbered = [
        name for name in _names(versions) if name.startswith("version_") and name[8:].isascii() and name[8:].isdigit()
    ]
    for version in sorted(numbered, key=lambda name: int(name[8:]), reverse=True):
        directory = os.path.join(versions, version, "checkpoints")
        files = [os.path.join(directory, name) for name in _names(directory)]
        files = [path for path in files if path.endswith(".ckpt")] or [path for path in files if os.path.isfile(path)]
        if files:
            return max(files, key=_changed_at)
    has_tf = any(name.startswith("tf_ckpts") for name in _names(root))
    return os.path.join(root, "tf_ckpts" if has_tf else "tf_ckpt")


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _changed_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _is_container() -> bool:
    return any(map(os.path.exists, _CONTAINER_FILES)) or any(map(os.environ.get, _CONTAINER_NAMES))
