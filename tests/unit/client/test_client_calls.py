from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.stand_in import Asked, Said, StandIn, problem, standing_in
from tests.unit.client.views import a_job_view, a_server_view, a_spec

from jobyard.client.address import Address, parse_address
from jobyard.client.api import OtherVersion, YardClient
from jobyard.errors import Forbidden, NotFound, Unreachable, UserError, YardError
from jobyard.model.job import State
from jobyard.settings import ClientKnobs

IMPATIENT = ClientKnobs(request_seconds=5, reconnect_seconds=0)


def test_a_submit_sends_the_spec_and_brings_the_job_back(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on("POST /jobs", Said(201, a_job_view(State.PENDING)))
    assert client.submit(a_spec()) == a_job_view(State.PENDING)
    (asked,) = stand_in.calls("POST /jobs")
    assert asked.body["spec"]["name"] == "train"
    assert len(asked.body["key"]) == 32


def test_a_submit_whose_answer_is_lost_is_repeated_with_the_same_key(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on("GET /server", Said(data=a_server_view()))
    stand_in.on("POST /jobs", Said(dies=True), Said(dies=True), Said(201, a_job_view()))
    client.server()
    client.submit(a_spec())
    keys = [asked.body["key"] for asked in stand_in.calls("POST /jobs")]
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_two_submits_have_different_keys(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on("POST /jobs", Said(201, a_job_view()))
    client.submit(a_spec())
    client.submit(a_spec())
    assert len({asked.body["key"] for asked in stand_in.calls("POST /jobs")}) == 2


def test_a_retry_whose_answer_is_lost_is_not_repeated(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on("GET /server", Said(data=a_server_view()))
    stand_in.on("POST /jobs/j1/retry", Said(dies=True))
    client.server()
    with pytest.raises(Unreachable):
        client.retry("j1")
    assert len(stand_in.calls("POST /jobs/j1/retry")) == 1


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (problem(404, "not_found", "no job 'x'"), NotFound),
        (problem(401, "forbidden", "no token"), Forbidden),
        (problem(400, "bad_request", "cpus: -1"), UserError),
        (problem(409, "of_the_future", "a code we do not know"), UserError),
        (problem(500, "of_the_future", "a code we do not know"), YardError),
        (Said(404, b"<html>"), UserError),
        (Said(502, b"<html>"), Unreachable),
        (Said(500, b"oops"), YardError),
    ],
)
def test_an_error_of_the_server_is_raised_again_as_its_class(
    stand_in: StandIn, said: Said, error: type[YardError]
) -> None:
    stand_in.on("GET /jobs/x", said)
    client = YardClient(Address(socket=str(stand_in.socket_path)), IMPATIENT)
    with pytest.raises(error) as raised:
        client.job("x")
    assert type(raised.value) is error
    if isinstance(said.data, dict):
        assert str(raised.value) == said.data["title"]


def test_a_server_that_was_never_there_is_not_waited_for(short_dir: Path) -> None:
    path = short_dir / "none.sock"
    client = YardClient(Address(socket=str(path)), ClientKnobs(reconnect_seconds=600))
    with pytest.raises(Unreachable, match=str(path)) as raised:
        client.jobs()
    assert raised.value.exit_code == 3
    assert "yard server start" in str(raised.value)


def test_an_answer_of_another_version_is_no_fault_of_the_user(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on("GET /server", Said(data={"pid": 1, "colour": "red"}))
    with pytest.raises(OtherVersion, match="another version") as raised:
        client.server()
    assert raised.value.exit_code == 1


def test_a_lost_server_is_brought_back_and_asked_again(short_dir: Path) -> None:
    path = short_dir / "s.sock"
    revived = threading.Event()
    with standing_in(path) as back:
        path.rename(short_dir / "away")
        back.on("GET /jobs", Said(data=(a_job_view(),)))

        def revive() -> None:
            (short_dir / "away").rename(path)
            revived.set()

        client = YardClient(Address(socket=str(path)), ClientKnobs(), revive)
        assert client.jobs() == (a_job_view(),)
    assert revived.is_set()


def test_a_server_that_cannot_start_says_why_at_once(short_dir: Path) -> None:
    def revive() -> None:
        raise Unreachable("the disk is full")

    client = YardClient(Address(socket=str(short_dir / "s.sock")), ClientKnobs(reconnect_seconds=600), revive)
    with pytest.raises(Unreachable, match="the disk is full"):
        client.jobs()


def test_selectors_and_labels_are_quoted(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on("GET /jobs/a%3Fb%20c", Said(data=a_job_view()))
    assert client.job("a?b c").id == "j1"
    # A real server reads %2F as a slash.
    with pytest.raises(NotFound, match=r"no job 'a/b' .*, and tasks of a job cannot be named here"):
        client.job("a/b")


def test_the_nodes_of_a_cluster_are_named_with_a_slash(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on("DELETE /nodes/kubernetes/worker%201", Said(data=[]))
    client.remove_node("kubernetes/worker 1")
    for name in ("kubernetes/../jobs", "kubernetes//worker", "../jobs", "/"):
        with pytest.raises(NotFound, match="can be asked for by that name"):
            client.remove_node(name)


def test_jobs_and_tasks_are_asked_for_in_pages(stand_in: StandIn, client: YardClient) -> None:
    def jobs(asked: Asked) -> Said:
        newest = int(asked.query.get("before", 2501)) - 1
        numbers = range(newest, max(0, newest - int(asked.query.get("limit", 1000))), -1)
        return Said(data=[a_job_view(id=f"j{n}", number=n) for n in numbers])

    stand_in.on("GET /jobs", jobs)
    assert [job.number for job in client.jobs()] == list(range(2500, 0, -1))
    assert [job.number for job in client.jobs(limit=1500)] == list(range(2500, 1000, -1))
    assert [asked.query for asked in stand_in.asked] == [
        {},
        {"before": "1501"},
        {"before": "501"},
        {"limit": "1000"},
        {"limit": "500", "before": "1501"},
    ]


def test_a_server_that_does_not_know_pages_is_asked_no_third_time(stand_in: StandIn, client: YardClient) -> None:
    whole = [a_job_view(id=f"j{n}", number=n) for n in range(1200, 0, -1)]
    stand_in.on("GET /jobs", Said(data=whole))
    assert len(client.jobs()) == 1200
    assert len(stand_in.asked) == 2


def test_only_what_is_said_is_in_the_query(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on("GET /jobs", Said(data=()))
    client.jobs(all=False, state="FAILED", limit=3)
    client.jobs(all=True)
    assert [asked.query for asked in stand_in.asked] == [{"state": "FAILED", "limit": "3"}, {"all": "true"}]


def test_a_token_goes_into_the_header_and_is_never_shown() -> None:
    address = parse_address("http://yard.example:7077/", "s3cret")
    assert str(address) == "http://yard.example:7077"
    assert "s3cret" not in repr(address)
    assert not address.is_local


@pytest.mark.parametrize(
    "url", ["yard.example:7077", "ftp://x", "http://", "http://x:y", "unix:relative", "http://x?a=b"]
)
def test_an_address_that_cannot_be_read_says_how_to_write_one(url: str) -> None:
    with pytest.raises(UserError, match="write http://HOST:PORT"):
        parse_address(url)


def test_a_password_in_the_address_is_refused_without_repeating_it() -> None:
    with pytest.raises(UserError, match="YARD_TOKEN") as raised:
        parse_address("http://me:s3cret@x")
    assert "s3cret" not in str(raised.value)


def test_a_token_travels_as_a_bearer(stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=()))
    YardClient(Address(socket=str(stand_in.socket_path), token="abc"), IMPATIENT).nodes()
    assert stand_in.asked[0].headers["Authorization"] == "Bearer abc"


def test_what_may_take_long_gets_its_time(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[float] = []
    client = YardClient(Address(socket=str(stand_in.socket_path)), ClientKnobs(request_seconds=5))
    call = client._connection._transport.call

    def noted(*words: Any, **options: Any) -> Any:
        seconds.append(options["seconds"])
        return call(*words, **options)

    monkeypatch.setattr(client._connection._transport, "call", noted)
    stand_in.on("POST /jobs", Said(201, a_job_view()))
    stand_in.on("GET /jobs", Said(data=()))
    client.submit(a_spec())
    client.jobs()
    assert seconds == [600, 5]
