"""Kubeconfig files for tests: a test names only the contexts."""

from __future__ import annotations

import json
from pathlib import Path


def a_kubeconfig(path: Path, *contexts: str, current: str = "", namespace: str | None = "team") -> str:
    inside = {"cluster": "c", "user": "u", **({"namespace": namespace} if namespace else {})}
    content = {
        "kind": "Config",
        "contexts": [{"name": name, "context": inside} for name in contexts],
        **({"current-context": current} if current else {}),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return str(path)
