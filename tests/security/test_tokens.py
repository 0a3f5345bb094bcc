"""Tokens over TCP: what ends when one is revoked, what a wrong one costs, and what no page in a browser may send."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.servers import TeamServer, team_server
from tests.waiting import until
from tests.yards import TemporaryYard

WRONG = "yard_" + "w" * 43
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def team() -> Iterator[TeamServer]:
    with TemporaryYard(YARD_REFUSAL_SECONDS="0", YARD_HEARTBEAT_SECONDS="600") as served, team_server(served) as team:
        yield team


@pytest.mark.parametrize("path", ["events", "jobs/last/watch", "jobs/last/logs?follow=true"])
def test_a_revoked_tokens_streams_end_at_once_and_others_go_on(team: TeamServer, path: str) -> None:
    job = team.served.submit("--", "echo begun; sleep 600")
    until(lambda: "begun" in team.served.logs(job))
    lost = team.served.json("token", "create", "lost")
    with team.stream(path, lost["secret"]) as ending, team.stream(path, team.token("kept")) as going_on:
        assert ending.status == going_on.status == 200
        assert ending.read1(1) == going_on.read1(1) == b"e"  # of `event:`
        team.served.ok("token", "revoke", lost["id"])
        while ending.read1(65536):
            pass
        team.served.ok("cancel", job)
        said = b""
        while b"cancelled by" not in said.lower() and (piece := going_on.read1(65536)):
            said += piece
        assert said
    assert team.ask("GET", "jobs", token=lost["secret"]).status == 401


def test_a_refused_login_is_in_the_log_without_the_secret(team: TeamServer) -> None:
    for _ in range(40):
        assert team.ask("GET", "jobs", token=WRONG).status == 401
    until(lambda: "(failure 32 of this address)" in team.log)
    assert "login refused from 127.0.0.1" in team.log
    assert WRONG not in team.log
    assert team.log.count("login refused") < 20  # whoever guesses without end does not fill the log


def test_without_a_good_token_the_answer_says_which_kind_is_wanted(team: TeamServer) -> None:
    for headers in ({}, {"Authorization": "Basic x"}, {"Authorization": f"Bearer {WRONG}"}):
        said = team.ask("GET", "jobs", headers=headers)
        assert (said.status, said.headers["www-authenticate"], said.json["code"]) == (401, "Bearer", "forbidden")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_pages_of_other_sites_are_refused_even_with_a_token(team: TeamServer, headers: dict[str, str]) -> None:
    said = team.ask("GET", "jobs", token=team.token("ann"), headers=headers)
    assert (said.status, said.json["code"]) == (403, "not_allowed")
    assert "pages of other sites may not use this server" in said.sentence


def test_pages_of_the_server_itself_and_programs_are_served(team: TeamServer) -> None:
    for headers in (
        {},
        {"Origin": team.url, "Sec-Fetch-Site": "same-origin"},
        {"User-Agent": "curl/8.0", "Accept": "*/*"},
    ):
        assert team.ask("GET", "jobs", token=team.token("ann"), headers=headers).status == 200


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"])
def test_a_body_as_a_form_sends_it_is_refused_with_the_way_out(team: TeamServer, kind: str) -> None:
    said = team.ask(
        "POST", "tokens", b'{"name": "x"}', token=team.token("boss", "--admin"), headers={"Content-Type": kind}
    )
    assert (said.status, said.json["code"]) == (400, "bad_request")
    assert "Content-Type: application/json (curl --json)" in said.sentence


def test_a_json_body_may_name_its_charset_and_a_call_without_a_body_needs_no_kind(team: TeamServer) -> None:
    boss = team.token("boss", "--admin")
    named = {"Content-Type": "application/json; charset=utf-8"}
    assert team.ask("POST", "tokens", b'{"name": "x"}', token=boss, headers=named).status == 201
    assert team.ask("POST", "jobs/no-such-job/yield", token=boss).status == 404
