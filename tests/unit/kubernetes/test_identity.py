"""As whom is a cluster asked, and where?"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.kubernetes.played_server import PlayedServer

from jobyard.errors import UserError
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.identity import identity_for
from jobyard.model.node import ClusterConfig


async def test_a_kubeconfig_without_a_user_can_be_used(tmp_path: Path) -> None:
    """As behind `kubectl proxy`."""
    server = PlayedServer(tmp_path)
    server.url = "http://127.0.0.1:8001"
    api = await Api.connect(server.config())
    await api.keep_identity()
    await api.close()
    assert (api.host, api.namespace) == ("http://127.0.0.1:8001", "ml")
    assert (await identity_for(server.config(namespace=""))).namespace == "of-the-context"


async def test_a_kubeconfig_that_is_gone_or_lacks_the_context_is_one_sentence_with_a_way_out(tmp_path: Path) -> None:
    way_out = "name a kubeconfig: yard clusters add lab --kubeconfig FILE$"
    gone = ClusterConfig("lab", str(tmp_path / "none"))
    no_way = "^cluster lab cannot be reached from here:"
    with pytest.raises(UserError, match=f"{no_way} there is no {tmp_path}/none; {way_out}"):
        await identity_for(gone)
    PlayedServer(tmp_path).config()
    other = ClusterConfig("lab", str(tmp_path / "config"), "other")
    with pytest.raises(UserError, match=f"{no_way} .*other.*; {way_out}"):
        await identity_for(other)


async def test_without_a_kubeconfig_we_are_the_pod_that_we_run_in_or_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UserError, match="cluster lab cannot be reached from here: Service host/port is not set"):
        await identity_for(ClusterConfig("lab"))
