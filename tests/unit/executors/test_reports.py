"""What of a training's reports is written down for good, and does the rest follow from it?"""

from __future__ import annotations

from typing import Any

from jobyard.executors.reports import SAVED_SECONDS, Reports
from jobyard.model.events import AttemptsMeasured, AttemptsProgressed, Event
from jobyard.model.training import HISTORY, Epoch, Progress


def told(done: int, history: range | None = None, **more: Any) -> dict[str, Any]:
    """As the agent tells it: all that it remembers, each time."""
    numbers = range(max(1, done - HISTORY + 1), done + 1) if history is None else history
    epochs = [{"number": number, "seconds": 2.0} for number in numbers]
    return {"ev": "progress", "attempts": {"j.0.1": {"epochs_done": done, "history": epochs, **more}}}


def journalled(events: list[Event]) -> Progress | None:
    for event in events:
        if isinstance(event, AttemptsProgressed):
            return event.items[0].progress
        assert isinstance(event, AttemptsMeasured)
    return None


def numbers(progress: Progress | None) -> list[int]:
    assert progress is not None
    return [epoch.number for epoch in progress.history]


def test_an_epoch_is_written_down_once_and_the_history_is_put_together_again() -> None:
    reports = Reports()
    known: Progress | None = None
    for done in range(1, 131):
        news = journalled(reports.read(told(done), 0.0, 100.0))
        assert news is not None
        assert numbers(news) == [done]
        known = news.after(known)
        assert not known.adds_history
    assert numbers(known) == list(range(31, 131))


def test_what_was_told_between_milestones_counts_once() -> None:
    reports = Reports()
    known = journalled(reports.read(told(1), 0.0, 100.0))
    assert journalled(reports.read(told(1, range(1, 4)), 0.0, 101.0)) is None  # two more, and not saved
    news = journalled(reports.read(told(4), 0.0, 102.0))
    assert numbers(news) == [2, 3, 4]
    assert news is not None
    assert numbers(news.after(known)) == [1, 2, 3, 4]
    heard = Progress(1, history=tuple(Epoch(number, 2.0) for number in (1, 2, 3)))
    assert numbers(news.after(heard)) == [1, 2, 3, 4]


def test_the_first_report_after_a_reconnection_is_whole() -> None:
    reports = Reports()
    reports.read(told(3), 0.0, 100.0)
    reports.forget()
    news = journalled(reports.read(told(4), 0.0, 100.0))
    assert news is not None
    assert numbers(news.after(Progress(history=(Epoch(9, 1.0),)))) == [1, 2, 3, 4]


def test_who_counts_anew_is_told_whole() -> None:
    reports = Reports()
    reports.read(told(5), 0.0, 100.0)
    news = journalled(reports.read(told(1), 0.0, 100.0))
    assert news is not None
    assert not news.adds_history
    assert numbers(news) == [1]


def test_an_ended_attempt_is_forgotten() -> None:
    reports = Reports()
    events = reports.read(told(1), 0.0, 100.0)
    assert isinstance(events[0], AttemptsProgressed)
    reports.ended([events[0].items[0].attempt])
    assert journalled(reports.read(told(1), 0.0, 100.0)) is not None


def test_checkpoints_within_an_epoch_are_written_down_now_and_then() -> None:
    reports = Reports()
    moments = []
    for second in range(35):
        if journalled(reports.read(told(2, saved_at=1000.0 + second), 0.0, 100.0 + second)):
            moments.append(second)
    assert moments == [0, SAVED_SECONDS, 2 * SAVED_SECONDS, 3 * SAVED_SECONDS]
    assert journalled(reports.read(told(3, saved_at=1035.0), 0.0, 135.0)) is not None
