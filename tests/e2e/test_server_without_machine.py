"""A server in a pod: nothing runs beside it."""

from __future__ import annotations

from tests.conftest import MakeYard


def test_where_the_servers_own_machine_may_not_be_used_a_job_is_told_to_bring_another(make_yard: MakeYard) -> None:
    yard = make_yard(YARD_OWN_MACHINE="no")
    assert yard.json("nodes") == []
    done = yard.run("submit", "--", "true")
    assert done.code == 2
    assert done.err == (
        "yard: the yard has no machine and no cluster; add one: yard clusters add, or yard nodes add HOST\n"
    )
