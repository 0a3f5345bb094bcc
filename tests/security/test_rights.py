"""Who may do what: the yard's owner over the Unix socket, holders of admin tokens and of others over TCP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.security.servers import Said, TeamServer, team_server
from tests.waiting import PATIENCE_SECONDS, until
from tests.yards import TemporaryYard

ADMINS_ALONE: list[tuple[str, str, Any]] = [
    ("GET", "tokens", None),
    ("POST", "tokens", {"name": "mine", "admin": True}),
    ("DELETE", "tokens/x", None),
    ("POST", "nodes", {"config": {"id": "n", "host": "127.0.0.1"}}),
    ("DELETE", "nodes/n?force=true", None),
    ("POST", "nodes/n/drain", None),
    ("POST", "nodes/n/resume", None),
    ("POST", "clusters", {"config": {"id": "c"}}),
    ("DELETE", "clusters/c", None),
    ("POST", "server/stop?force=true", None),
]
A_JOB = {"name": "j", "groups": [{"command": {"shell": "true"}}], "workdir": "/tmp"}


@pytest.fixture(scope="module")
def team() -> Iterator[TeamServer]:
    with TemporaryYard(YARD_REFUSAL_SECONDS="0") as served, team_server(served) as team:
        yield team


def test_what_only_admins_may_is_refused_to_members_and_the_server_stays(team: TeamServer) -> None:
    member = team.token("member")
    for method, path, body in ADMINS_ALONE:
        said = team.ask(method, path, body, token=member)
        assert (said.status, said.json["code"]) == (403, "not_allowed"), (method, path, said.body)
        assert said.sentence.startswith("the token of 'member' may not ")
        assert "yard token create NAME --admin" in said.sentence
    assert team.is_alive()


def test_an_admin_token_does_what_the_owner_does_over_the_socket(team: TeamServer) -> None:
    admin = team.token("boss", "--admin")
    for ask in (lambda *words: team.ask(*words, token=admin), team.ask_socket):
        made = ask("POST", "tokens", {"name": "made"})
        assert (made.status, made.json["kind"]) == (201, "member")
        assert [t["kind"] for t in ask("GET", "tokens").json if t["id"] == made.json["id"]] == ["member"]
        assert ask("DELETE", f"tokens/{made.json['id']}").status == 200
        node = ask("GET", "nodes").json[0]["id"]
        assert ask("POST", f"nodes/{node}/drain").json["state"] == "DRAINING"
        assert ask("POST", f"nodes/{node}/resume").json["state"] == "UP"


def test_the_command_line_says_which_kind_a_token_is(team: TeamServer) -> None:
    team.token("boss", "--admin")
    team.token("member")
    kinds = {token["name"]: token["kind"] for token in team.served.json("token", "ls")}
    assert (kinds["boss"], kinds["member"]) == ("admin", "member")
    assert "KIND" in team.served.ok("token", "ls").out
    refused = team.served.run("token", "create", "more", env=team.env("member"))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "may not make tokens" in refused.err


def test_an_admin_token_stops_the_server(own_yard: TemporaryYard) -> None:
    with team_server(own_yard) as team:
        assert team.ask("POST", "server/stop", token=team.token("boss", "--admin")).status == 200
        team.process.wait(PATIENCE_SECONDS)


def test_a_kubeconfig_of_the_servers_machine_is_taken_from_its_owner_alone(team: TeamServer, tmp_path: Path) -> None:
    """An `exec` plugin in it is a program that the server runs."""
    ran = tmp_path / "ran"
    config = tmp_path / "kubeconfig"
    config.write_text(EXEC_PLUGIN.format(ran=ran))
    wanted = {"config": {"id": "evil", "kubeconfig": str(config)}, "force": True}
    said = team.ask("POST", "clusters", wanted, token=team.token("boss", "--admin"))
    assert (said.status, said.json["code"]) == (403, "not_allowed")
    assert said.sentence.startswith(f"kubeconfig {config}: files of the server's machine are its owner's alone")
    assert not ran.exists()
    assert team.ask("GET", "clusters", token=team.token("member")).json == []


def test_a_key_of_the_servers_machine_is_taken_from_its_owner_alone(team: TeamServer) -> None:
    wanted = {"config": {"id": "n", "host": "127.0.0.1", "key_path": "/etc/shadow"}, "force": True}
    said = team.ask("POST", "nodes", wanted, token=team.token("boss", "--admin"))
    assert (said.status, said.sentence.split(":")[0]) == (403, "key /etc/shadow")


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("results_dir", "/srv/theirs", "results_dir /srv/theirs"),
        ("copy_forward", ["secrets"], "copy-forward secrets"),
        ("copy_back", ["x"], "copy-backwards x"),
    ],
)
def test_a_job_with_a_token_names_no_files_of_the_server(
    team: TeamServer, field: str, value: object, shown: str
) -> None:
    said = _submit(team, team.token("boss", "--admin"), staging={field: value})
    assert (said.status, said.json["code"]) == (403, "not_allowed")
    assert said.sentence.startswith(f"{shown}: files of the server's machine are its owner's alone")


def test_a_job_with_a_token_does_not_learn_which_directories_the_server_has(team: TeamServer, tmp_path: Path) -> None:
    member = team.token("member")
    said = [_submit(team, member, workdir=path) for path in (str(tmp_path), str(tmp_path / "absent"))]
    assert said[0].body == said[1].body


def test_a_job_with_a_token_does_not_run_on_the_servers_own_machine(team: TeamServer) -> None:
    before = team.ask_socket("GET", "jobs?all=true").json
    for holder, words in (("member", ()), ("boss", ("--admin",))):
        for on in ("", "local"):
            said = _submit(team, team.token(holder, *words), on=on)
            assert said.status == 400
            assert "is the server's own machine and takes only its owner's jobs" in said.sentence
            assert "yard nodes add HOST" in said.sentence
    assert team.ask_socket("GET", "jobs?all=true").json == before


def test_a_request_cannot_say_that_it_is_the_owners(team: TeamServer) -> None:
    said = _submit(team, team.token("member"), submitter={"user": "root", "submitted_with": ""})
    assert said.status == 400
    assert "takes only its owner's jobs" in said.sentence


def test_the_owners_own_jobs_run_there_while_others_wait(team: TeamServer) -> None:
    """A machine that was added and has not been reached yet may take the job; the server's own may not meanwhile."""
    added = {"config": {"id": "later", "host": "192.0.2.1"}, "force": True}
    assert team.ask_socket("POST", "nodes", added).status == 201
    waiting = _submit(team, team.token("member"))
    assert waiting.status == 201
    assert waiting.json["user"] == "member"
    assert "over TCP no files are sent along" in waiting.json["notes"][0]
    assert team.served.ok("run", "--", "echo mine").out == "mine\n"
    why = team.served.ok("why", waiting.json["id"]).out
    assert "later has not been reached yet" in why
    team.served.ok("nodes", "rm", "later", "--force")
    why = team.served.ok("why", waiting.json["id"]).out
    assert "is the server's own machine and takes only its owner's jobs" in why
    assert team.ask("POST", f"jobs/{waiting.json['id']}/cancel", token=team.token("other")).status == 200
    assert team.served.json("show", waiting.json["id"])["message"] == "cancelled by other"


def test_every_act_is_recorded_with_who_did_it_whatever_the_request_says(team: TeamServer) -> None:
    job = team.served.submit("--", "sleep 600")
    cara = team.token("cara", "--admin")
    node = team.ask("GET", "nodes", token=cara).json[0]["id"]
    last = team.ask("GET", "server", token=cara).json["last_event"]
    acts = [
        ("POST", f"jobs/{job}/priority", {"priority": 3}, "PriorityChanged"),
        ("POST", f"jobs/{job}/annotations", {"annotations": {"a": "b"}}, "JobAnnotated"),
        ("POST", f"jobs/{job}/cancel", {"message": "by root", "force": True}, "CancelRequested"),
        ("POST", f"jobs/{job}/retry", {}, "RetryRequested"),
        ("POST", f"jobs/{job}/cancel", {}, "CancelRequested"),
        ("POST", f"nodes/{node}/drain", None, "NodeDrained"),
        ("POST", f"nodes/{node}/resume", None, "NodeResumed"),
        ("POST", "nodes", {"config": {"id": "far", "host": "192.0.2.1"}, "force": True}, "NodeAdded"),
        ("DELETE", "nodes/far?force=true", None, "NodeRemoved"),
    ]
    with team.stream(f"events?since={last}", cara) as stream:
        for method, path, body, kind in acts:
            said = team.ask(method, path, body, token=cara)
            assert said.status < 300, (path, said.body)
            assert _next_event(stream, kind)["by"] == "cara"
            if kind == "CancelRequested":
                until(lambda: team.served.job(job)["state"] == "CANCELLED")
                assert team.served.job(job)["message"].startswith("cancelled by cara")
    assert "cancelled by cara" in team.served.ok("show", job).out
    assert "cancelled by cara" in team.served.ok("why", job).out


def _next_event(stream: HTTPResponse, kind: str) -> dict[str, Any]:
    """The data of the next event of this kind."""
    while line := stream.readline():
        if line.strip() == f"event: {kind}".encode():
            stream.readline()  # its id
            found: dict[str, Any] = json.loads(stream.readline().removeprefix(b"data: "))
            return found
    raise AssertionError(f"the stream ended without {kind}")


def _submit(team: TeamServer, token: str, **fields: object) -> Said:
    return team.ask("POST", "jobs", {"spec": {**A_JOB, **fields}}, token=token)


EXEC_PLUGIN = """\
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:9"}}}}]
users:
  - name: u
    user:
      exec:
        apiVersion: client.authentication.k8s.io/v1
        interactiveMode: Never
        command: touch
        args: ["{ran}"]
"""
