"""Trees of files, archives of them, and what came home, for tests."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.unit.agent.agent_process import SOURCE, Client


def archive_of(tree: Path) -> bytes:
    """A plain tar of what is in a directory, as the server sends it."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path in sorted(tree.rglob("*")):
            archive.add(path, str(path.relative_to(tree)), recursive=False)
    return stream.getvalue()


def receive(home: Path, snapshot: str, archive: bytes, yard: str = "y") -> subprocess.CompletedProcess[bytes]:
    """`agent --receive` as it is run over ssh."""
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "jobyard.agent.main", "--receive", snapshot, "--yard", yard]
    return subprocess.run(command, input=archive, env=env, capture_output=True, check=False)


def results(client: Client, attempt: str) -> dict[str, bytes | str | None]:
    """What came home of an attempt: the content of files, the target of links, None for directories."""
    data = client.shipped(attempt, "results")
    if not data:
        return {}
    found: dict[str, bytes | str | None] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            assert member.name not in found
            file = archive.extractfile(member) if member.isfile() else None
            found[member.name] = file.read() if file else member.linkname if member.issym() else None
    return found
