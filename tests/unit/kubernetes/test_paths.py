"""Where objects are in the API."""

from __future__ import annotations

import pytest

from jobyard.kubernetes.paths import collection_in, object_path, path_of


def test_a_name_cannot_lead_out_of_its_collection() -> None:
    assert path_of("Pod", "ml", "../secrets/x") == "/api/v1/namespaces/ml/pods/..%2Fsecrets%2Fx"
    assert path_of("PyTorchJob", "ml") == "/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs"
    assert object_path("v1", "nodes", "", "n1") == "/api/v1/nodes/n1"


@pytest.mark.parametrize(
    ("path", "collection"),
    [
        ("/api/v1/namespaces/ml/pods/p", "pods"),
        ("/api/v1/namespaces/ml", "namespaces"),
        ("/api/v1/nodes", "nodes"),
        ("/api/v1/namespaces/ml/pods?labelSelector=a%2Fb", "pods"),
        ("/apis/batch/v1/namespaces/ml/jobs", "jobs"),
        ("/version", "/version"),
    ],
)
def test_calls_are_counted_by_what_they_are_about(path: str, collection: str) -> None:
    assert collection_in(path) == collection
