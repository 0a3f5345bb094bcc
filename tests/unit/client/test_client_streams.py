from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.unit.client.stand_in import Said, StandIn, problem, standing_in
from tests.unit.client.views import a_chunk, a_job_view
from tests.waiting import until

from jobyard.client.address import Address
from jobyard.client.api import YardClient
from jobyard.client.transport import Lost
from jobyard.errors import NotFound, Unreachable
from jobyard.model.job import State
from jobyard.settings import ClientKnobs

RUNNING, DONE = a_job_view(State.RUNNING), a_job_view(State.SUCCEEDED)


def test_a_watch_ends_with_the_job(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", RUNNING), ("job", "2", DONE)]))
    assert list(client.watch("j1")) == [RUNNING, DONE]


def test_a_watch_goes_on_at_its_last_id_when_the_server_dies(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on(
        "GET /jobs/j1/watch",
        Said(events=[("job", "41", RUNNING)], dies=True),
        Said(events=[("job", "42", DONE)]),
    )
    assert list(client.watch("j1")) == [RUNNING, DONE]
    ids = [asked.headers.get("Last-Event-ID") for asked in stand_in.calls("GET /jobs/j1/watch")]
    assert ids == [None, "41"]


def test_a_watch_survives_a_server_that_is_away_for_a_while(short_dir: Path) -> None:
    path = short_dir / "s.sock"
    knobs = ClientKnobs(request_seconds=5, silence_seconds=5, reconnect_seconds=5)
    with standing_in(path) as first:
        first.on("GET /jobs/j1/watch", Said(events=[("job", "1", RUNNING)], dies=True))
        views = YardClient(Address(socket=str(path)), knobs).watch("j1")
        assert next(views) == RUNNING
    with standing_in(path) as second:
        second.on("GET /jobs/j1/watch", Said(events=[("job", "2", DONE)]))
        assert list(views) == [DONE]


def test_a_client_knows_how_long_nobody_answers(short_dir: Path) -> None:
    path = short_dir / "s.sock"
    client = YardClient(Address(socket=str(path)), ClientKnobs(reconnect_seconds=60))
    with standing_in(path) as first:
        first.on("GET /jobs/j1", Said(data=RUNNING))
        client.job("j1")
        assert client.lost_seconds == 0.0
    asking = threading.Thread(target=lambda: client.job("j1"), daemon=True)
    asking.start()
    until(lambda: client.lost_seconds > 0.0)
    with standing_in(path) as second:
        second.on("GET /jobs/j1", Said(data=RUNNING))
        asking.join()
    assert client.lost_seconds == 0.0


def test_a_watch_gives_up_when_no_server_comes_back(short_dir: Path) -> None:
    path = short_dir / "s.sock"
    with standing_in(path) as stand_in:
        stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", RUNNING)], dies=True))
        views = YardClient(Address(socket=str(path)), ClientKnobs(reconnect_seconds=0.2)).watch("j1")
        next(views)
    with pytest.raises(Unreachable):
        next(views)


def test_a_stream_that_a_stopping_server_ended_is_asked_for_again(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", RUNNING)]), Said(events=[("job", "2", DONE)]))
    stand_in.on("GET /jobs/j1", Said(data=RUNNING))
    assert list(client.watch("j1")) == [RUNNING, DONE]


def test_a_job_that_is_unknown_after_the_reconnect_ends_the_watch(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on(
        "GET /jobs/j1/watch",
        Said(events=[("job", "1", RUNNING)], dies=True),
        problem(404, "not_found", "no job 'j1'"),
    )
    with pytest.raises(NotFound):
        list(client.watch("j1"))


def test_logs_come_once_each_over_the_death_of_the_server(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on(
        "GET /jobs/j1/logs",
        Said(events=[("log", "a", a_chunk("one\n")), ("log", "b", a_chunk("two\n"))], dies=True),
        Said(events=[("log", "c", a_chunk("three\n", final=True))]),
    )
    assert "".join(chunk.data for chunk in client.logs("j1", follow=True)) == "one\ntwo\nthree\n"
    ids = [asked.headers.get("Last-Event-ID") for asked in stand_in.calls("GET /jobs/j1/logs")]
    assert ids == [None, "b"]


def test_logs_that_end_in_good_order_without_a_last_word_end(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on("GET /jobs/j1/logs", Said(events=[("log", "a", a_chunk("one\n"))]), Said(events=[]))
    assert [chunk.data for chunk in client.logs("j1")] == ["one\n"]


def test_raw_logs_are_the_bytes(stand_in: StandIn, client: YardClient) -> None:
    stand_in.on("GET /jobs/j1/logs/raw", Said(data=b"\x00\xff\n"))
    assert b"".join(client.raw_log("j1", stream="err")) == b"\x00\xff\n"
    assert stand_in.asked[0].query == {"stream": "err"}


@pytest.mark.parametrize("length", [2, 200_000])
def test_raw_bytes_that_end_early_are_no_end(stand_in: StandIn, client: YardClient, length: int) -> None:
    stand_in.on("GET /jobs/j1/logs/raw", Said(data=b"x" * length, dies=True))
    with pytest.raises(Lost, match="1 bytes of the answer are missing"):
        list(client.raw_log("j1"))
