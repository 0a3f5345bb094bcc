"""Zipapp: how does the agent become one file that any python3 can run?"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
import tempfile
import zipfile
from typing import Dict, Tuple

from jobyard.agent_protocol import sdk_files

_MAIN = """import sys

from jobyard.agent.main import main

sys.exit(main(build=%r))
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def agent_zipapp() -> Tuple[str, str]:
    """The path of the built agent and its build id; built if it has not been yet. Safe to call at the same time."""
    build_id = source_hash()
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "jobyard")
    path = os.path.join(cache, "agent-%s.pyz" % build_id)
    if not os.path.exists(path):
        build(path)
    return path, build_id


def build(path: str) -> str:
    """Write the zipapp, the same bytes for the same sources; it appears whole or not at all. Returns the build id."""
    build_id = source_hash()
    files = _sources()
    files["__main__.py"] = (_MAIN % build_id).encode()
    os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"#!/usr/bin/env python3\n")
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name in sorted(files):
                    entry = zipfile.ZipInfo(name, _EPOCH)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    entry.external_attr = (stat.S_IFREG | 0o644) << 16
                    archive.writestr(entry, files[name])
            os.fchmod(file.fileno(), 0o755)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    return build_id


def source_hash() -> str:
    """Another one for other sources, the same everywhere for the same ones."""
    digest = hashlib.sha256(_MAIN.encode())
    for name, content in sorted(_sources().items()):
        digest.update(b"%d %s %d\n" % (len(name), name.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()[:16]


def _sources() -> Dict[str, bytes]:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    files = {"jobyard/__init__.py": b""}  # the real one may import what the machine does not have
    files.update(sdk_files.read_tree(root, ("jobyard/agent", "jobyard/agent_protocol")))
    for name, content in sdk_files.sources().items():
        files[sdk_files.FOLDER + name] = content
    nvml = importlib.util.find_spec("pynvml")
    if nvml is not None and nvml.origin and nvml.origin.endswith("pynvml.py"):
        with open(nvml.origin, "rb") as file:
            files["pynvml.py"] = file.read()
    return files
