"""A whole check before the journal has it: each of these once killed the server, or spoilt it for everybody."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import MakeYard
from tests.security.servers import Said, asked_on_socket
from tests.yards import TemporaryYard

BYTES = b"\xff".decode("utf-8", "surrogateescape")


def a_spec(yard: TemporaryYard, group: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    groups = [{"command": {"argv": ["true"]}, **(group or {})}]
    return {"spec": {"name": "odd", "workdir": str(yard.work), "groups": groups, **spec}}


def ask(yard: TemporaryYard, method: str, path: str, body: Any = None) -> Said:
    return asked_on_socket(yard.socket, method, path, body)


def test_a_command_that_is_not_utf8_is_refused_and_yard_ls_goes_on(yard: TemporaryYard) -> None:
    refused = yard.run("run", "--", "printf", "%s", BYTES)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "is not UTF-8" in refused.err
    assert "odd" not in yard.ok("ls", "-a").out
    assert yard.run("run", "-e", f"A={BYTES}", "--", "true").code == 2
    assert yard.ok("run", "-q", "--", "true").code == 0


def test_a_directory_whose_name_is_not_utf8_works_all_the_way(make_yard: MakeYard) -> None:
    yard = make_yard()
    work = yard.work / f"caf{BYTES}"
    work.mkdir()
    yard.ok("run", "--", "bash", "-c", "pwd; touch here", cwd=work)
    assert (work / "here").exists()
    assert yard.json("show", "last")["workdir"] == str(work)
    assert yard.json("ls", "-a")[0]["workdir"] == str(work)
    yard.ok("ls", "-a")
    yard.ok("show", "last")
    assert b"caf\xff" in yard.ok("logs", "last").stdout
    yard.ok("server", "stop")
    assert yard.json("show", "last")["workdir"] == str(work)


@pytest.mark.parametrize(
    ("group", "spec", "words"),
    [
        ({"array": {"pieces": [[0, 1, 0]]}, "completions": 2}, {}, "pieces[0][2]: 0 is out of range"),
        ({"array": {"pieces": []}}, {}, "pieces: 0 items; give 1 to"),
        ({}, {"policy": {"timeout_seconds": -5}}, "timeout_seconds: -5.0 is out of range"),
        ({}, {"policy": {"timeout_seconds": 1e999}}, "JSON does not know"),
        ({}, {"policy": {"timeout_seconds": 10**400}}, "timeout_seconds"),
        ({"count": 1_000_000, "resources": {"cpu_millis": 0}}, {"gang": True}, "at most 4096"),
        ({}, {"name": "\x1b[31mred"}, "control character"),
        ({}, {"name": BYTES}, "is not UTF-8"),
        ({}, {"env": {"A": "\0"}}, "NUL"),
        ({}, {"env": {"YARD_TASK": "7"}}, "set by the yard"),
        ({}, {"staging": {"copy_forward": ["../../etc"]}}, "not inside the working directory"),
    ],
)
def test_what_would_hurt_is_refused_in_one_sentence_before_the_journal_has_it(
    yard: TemporaryYard, group: dict[str, Any], spec: dict[str, Any], words: str
) -> None:
    yard.ok("ls")
    before = ask(yard, "GET", "server").json
    refused = ask(yard, "POST", "jobs", a_spec(yard, group, **spec))
    assert (refused.status, refused.json["code"]) == (400, "bad_request")
    assert words in refused.sentence
    after = ask(yard, "GET", "server").json
    assert after["pid"] == before["pid"]
    assert "odd" not in {job["name"] for job in ask(yard, "GET", "jobs?all=true").json}


@pytest.mark.parametrize("selector", ["%C2%B2", "9" * 900, "%00", "%ED%B3%BF", "%D9%A3"])  # ², NUL, a surrogate, ٣
def test_a_selector_that_only_looks_like_a_number_fails_its_own_request_alone(
    yard: TemporaryYard, selector: str
) -> None:
    yard.ok("run", "-q", "--", "true")
    for method, verb in [("GET", ""), ("POST", "/cancel"), ("GET", "/why"), ("GET", "/logs"), ("POST", "/retry")]:
        assert ask(yard, method, f"jobs/{selector}{verb}", {} if method == "POST" else None).status in (400, 404)
    assert ask(yard, "GET", "jobs/last").status == 200


def test_bodies_that_are_nearly_json_get_one_sentence_each(yard: TemporaryYard) -> None:
    yard.ok("ls")
    for body in [
        b'{"priority": NaN}',
        b'{"priority": Infinity}',
        b'{"priority": 1e400}',
        b'{"priority": ' + b"9" * 400 + b"}",
        b'{"priority": 1, "priority": 2}',
        b'{"priority": "\\udcff"}',
        b'{"\\udcff": 1}',
        b"[" * 50_000,
        b"\xff",
        b'{"priority": true}',
    ]:
        refused = ask(yard, "POST", "jobs/last/priority", body)
        assert refused.status == 400, body[:40]
        assert json.loads(refused.body.decode("ascii"))["title"].count("\n") == 0


def test_no_request_is_sent_on_to_where_its_host_header_says(yard: TemporaryYard) -> None:
    yard.ok("ls")
    assert ask(yard, "GET", "jobs/").status == 404
