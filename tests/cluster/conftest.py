"""All tests here need the real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.fixtures import (
    cluster,
    jobset_operator,
    kueue,
    namespace,
    ray_operator,
    shared,
    training_operator,
    worker,
    yard,
)

__all__ = [
    "cluster",
    "jobset_operator",
    "kueue",
    "namespace",
    "ray_operator",
    "shared",
    "training_operator",
    "worker",
    "yard",
]
HERE = Path(__file__).parent
# In the order in which they are built where they are absent: a module comes when what it needs is likely there.
BUILT = ("jobset_operator", "training_operator", "ray_operator", "kueue", "place")  # a place for kaniko


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.timeout(3600))  # the first test may have to build Kubernetes
    latest: dict[Path, int] = {}
    for item in here:
        needed = [BUILT.index(name) for name in getattr(item, "fixturenames", ()) if name in BUILT]
        latest[item.path] = max([*needed, latest.get(item.path, -1)])
    items[:] = [item for item in items if item not in here] + sorted(here, key=lambda item: latest[item.path])
