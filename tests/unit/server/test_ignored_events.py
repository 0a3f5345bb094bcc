"""A word that broke the state is known again by its kind and subject, for a while."""

from __future__ import annotations

import pytest

from jobyard.model.events import (
    AttemptsFinished,
    AttemptsWithdrawn,
    Event,
    Finished,
    NodeJoined,
    NodeLost,
    NodeWentAway,
    SlotMoved,
)
from jobyard.model.node import Node
from jobyard.model.task import AttemptId, Outcome
from jobyard.server.ignored_events import (
    CALM_SECONDS,
    IGNORED_MOST,
    IGNORED_SECONDS,
    PAUSE_SECONDS,
    IgnoredEvents,
    name_of,
)


def an_attempt(job: str, task: int) -> AttemptId:
    return AttemptId(job, task, 1)


@pytest.mark.parametrize(
    ("first", "alike", "other"),
    [
        (NodeWentAway("a", 1.0, "one"), NodeWentAway("a", 2.0, "two"), NodeWentAway("b", 1.0, "one")),
        (NodeWentAway("a", 1.0), NodeWentAway("a", 1.0), NodeLost("a", 1.0)),
        (NodeJoined(Node("a", "x", 1, 1), 1.0), NodeJoined(Node("a", "x", 2, 2), 1.0), NodeWentAway("a", 1.0)),
        (SlotMoved("1", "a", 1.0), SlotMoved("1", "b", 2.0), SlotMoved("2", "a", 1.0)),
        (
            AttemptsFinished((Finished(an_attempt("j", 0), Outcome(1.0, 2.0)),), 1.0),
            AttemptsFinished((Finished(an_attempt("j", 1), Outcome(3.0, 4.0)),), 2.0),
            AttemptsWithdrawn((an_attempt("j", 0),), 1.0),
        ),
    ],
)
def test_a_word_is_known_by_its_kind_and_subject(first: Event, alike: Event, other: Event) -> None:
    ignored = IgnoredEvents(lambda: 0.0)
    ignored.add(first)
    assert alike in ignored
    assert other not in ignored


def test_a_word_is_heard_again_after_a_while_and_only_so_many_are_kept() -> None:
    now = 0.0
    ignored = IgnoredEvents(lambda: now)
    for number in range(2 * IGNORED_MOST):
        ignored.add(NodeWentAway(str(number), 1.0))
    last = NodeWentAway(str(2 * IGNORED_MOST - 1), 1.0)
    assert (len(ignored), last in ignored) == (IGNORED_MOST, True)
    now = IGNORED_SECONDS
    assert last not in ignored


def test_only_the_first_in_a_while_costs_no_pause() -> None:
    now = 0.0
    ignored = IgnoredEvents(lambda: now)
    assert [ignored.pause() for _ in range(3)] == [0.0, PAUSE_SECONDS, PAUSE_SECONDS]
    now = CALM_SECONDS
    assert ignored.pause() == 0.0


def test_events_of_no_subject_are_known_by_their_kind() -> None:
    assert name_of(AttemptsWithdrawn((), 1.0)) == "AttemptsWithdrawn "
