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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(3600))  # the first test may have to build Kubernetes
