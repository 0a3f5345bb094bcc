"""Does a task see the environment of whoever started the server?"""

from __future__ import annotations

from pathlib import Path

from tests.conftest import MakeYard

# As a shell may have them that happens to start the server. The last one goes to the agent, for container clients.
SECRETS = {
    "YARD_TOKEN": "s3cret-token",
    "AWS_SECRET_ACCESS_KEY": "s3cret-key",
    "KUBECONFIG": "/s3cret/kubeconfig",
    "HTTPS_PROXY": "http://me:s3cret@127.0.0.1:1",
}
# Its own variables, its lane's, and the names of the files that it holds open.
TASK = "env -0; printf CUT; cat /proc/$PPID/environ; printf CUT; ls /proc/self/fd"


def test_a_task_has_its_own_shells_variables_and_none_of_the_servers(make_yard: MakeYard) -> None:
    yard = make_yard()
    yard.ok("server", "start", env=SECRETS)
    yard.ok("run", "--", "bash", "-c", TASK, env={"MINE": "submitted"})
    own, of_lane, files = yard.ok("logs", "last", "--raw").out.split("CUT")
    assert "MINE=submitted\0" in own
    assert f"HOME={yard.home}\0" in own
    assert "s3cret" not in own
    assert "s3cret-" not in of_lane
    assert "/s3cret" not in of_lane
    assert files.split() == ["0", "1", "2", "3"]  # the last is the listing's own
    # The agent itself does not have what it does not need: a task of the same user can read its environ.
    agent = Path(f"/proc/{(yard.directory / 'agent' / 'agent.pid').read_text().strip()}/environ").read_text()
    assert "s3cret-" not in agent
    assert "/s3cret" not in agent


def test_a_server_has_no_use_for_a_token(make_yard: MakeYard) -> None:
    yard = make_yard()
    yard.ok("server", "start", env=SECRETS)
    server = Path(f"/proc/{yard.client.server().pid}/environ").read_text()
    assert "s3cret-key" in server  # it may be for a plugin that logs in to a cluster
    assert "s3cret-token" not in server
