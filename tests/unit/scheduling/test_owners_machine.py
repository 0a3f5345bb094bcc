"""A machine that is its owner's alone: jobs that came with a token do not go there, and are told why."""

from __future__ import annotations

from jobyard.model.job import Reason
from tests.builders import a_job, a_node, joined, submitted
from tests.unit.engine.driving import Yard


def test_what_came_with_a_token_goes_elsewhere_or_waits_and_says_why() -> None:
    yard = Yard(a_node("here", cpus=8, owner_only=True))
    yard.apply(submitted("theirs", 1, a_job(submitted_with="t1")), submitted("own", 2, a_job()))
    assert not yard.state.jobs["theirs"].slots
    assert yard.state.jobs["own"].slots
    wait = yard.planner.waits["theirs"]
    assert wait.reason is Reason.NEVER_FITS
    assert wait.sentence == "here is the server's own machine and takes only its owner's jobs"
    yard.apply(joined(a_node("away")))
    (record,) = yard.state.jobs["theirs"].slots.values()
    assert record.slot.placement.node == "away"
