"""Jobs that come with a token: who they are of, and what they may name of the server's."""

from __future__ import annotations

from typing import Any

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.errors import NotAllowed, UserError
from jobyard.model.events import NodeAdded, NodeWentAway
from jobyard.model.node import NodeConfig
from jobyard.server.commands import checked_spec
from jobyard.server.from_token import check_machines, submitted_by
from jobyard.server.rights import Caller, TokenKind
from tests.builders import a_job, a_node, joined

OWNER, ANN = Caller("root"), Caller("ann", "t1", TokenKind.ADMIN)


def test_whose_it_is_and_which_tree_it_has_is_not_for_the_request_to_say() -> None:
    said = a_job(user="root", submitted_with="other", snapshot="../../etc/tree")
    assert submitted_by(OWNER, said) == a_job(user="root")
    assert submitted_by(ANN, said) == a_job(user="ann", submitted_with="t1")


@pytest.mark.parametrize(
    "said",
    [
        {"results_dir": "/root"},
        {"copy_forward": ("x",)},
        {"copy_back": ("x",)},
        {"output": "/srv/%t"},
        {"error": "/srv/%t"},
    ],
)
def test_files_of_the_servers_machine_are_its_owners(said: dict[str, Any]) -> None:
    assert submitted_by(OWNER, a_job(**said)) == a_job(user="root", **said)
    with pytest.raises(NotAllowed, match="files of the server's machine are its owner's alone"):
        submitted_by(ANN, a_job(**said))


def test_a_machine_that_is_still_to_come_may_take_what_the_servers_own_may_not() -> None:
    state = YardState()
    handle(state, joined(a_node("here", owner_only=True)))
    check_machines(state, a_job())
    with pytest.raises(
        UserError, match=r"'job' cannot run: here is the server's own machine .*\(yard nodes add HOST\)"
    ):
        check_machines(state, a_job(submitted_with="t1"))
    handle(state, NodeAdded(NodeConfig("far", "far.example"), 0.0))
    check_machines(state, a_job(submitted_with="t1"))


@pytest.mark.parametrize("gang", [{}, {"tasks": 2, "gang": True}])
def test_a_machine_that_is_away_may_come_back_as_one_for_everybody(gang: dict[str, Any]) -> None:
    """After a restart with `--run-as` it is away until its agent answers; a refusal then would be for good."""
    state, asked = YardState(), a_job(submitted_with="t1", on="here", workdir="/", **gang)
    handle(state, joined(a_node("here", owner_only=True)))
    with pytest.raises(UserError, match="takes only its owner's jobs"):
        checked_spec(state, asked)
    handle(state, NodeWentAway("here", 1.0))
    assert checked_spec(state, asked) == asked
    handle(state, joined(a_node("here")))
    assert checked_spec(state, asked) == asked
