"""Whatever a name from outside holds, a terminal shows it and does nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harmless import assert_harmless
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn, problem
from tests.unit.client.views import a_failure, a_job_view, a_server_view

import jobyard.cli
from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.table import print_fields, print_table
from jobyard.cli.output.tasklog import MergedLog
from jobyard.cli.output.text import Painted, echo
from jobyard.model.job import Reason, State
from jobyard.model.node import NodeState
from jobyard.model.resources import Resources
from jobyard.wire.views import (
    AgentView,
    ClusterView,
    Counts,
    DeviceView,
    GroupView,
    JobView,
    LogChunk,
    NodeView,
    TaskView,
    WhyView,
)

EVIL = (
    "evil\x1b[31mred\x1b[2J\x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1bP1;q\x1b\\\x9b2J\x9d0;t\x9c\x07\x08\r\n"
    "new\x7fline\u202egnol\u2066x\u2069\u200b\u200d\ufeff\u2028two[red]m[/red]\udcff\x1b"
)
SOURCES = Path(jobyard.cli.__file__).parents[1]


def an_evil_job(state: State = State.RUNNING) -> JobView:
    return a_job_view(
        state,
        name=EVIL,
        user=EVIL,
        message=EVIL,
        command=EVIL,
        workdir=EVIL,
        image=EVIL,
        cluster="",
        env={EVIL: EVIL},
        notes=(EVIL,),
        after=(EVIL,),
        groups=(GroupView(EVIL, 1, 1, None, Resources(), EVIL),),
        counts=Counts(total=3, failed=1, succeeded=2),
        first_failure=a_failure(label=EVIL, message=EVIL, reason=Reason.HELD, node=EVIL),
    )


A_TASK = TaskView(number=0, label=EVIL, state=State.FAILED, attempt=1, node=EVIL, message=EVIL)
A_NODE = NodeView(
    id=EVIL,
    executor=EVIL,
    state=NodeState.UP,
    cpu_millis=1,
    cpu_millis_reserved=0,
    cpu_millis_foreign=0,
    memory_mib=1,
    memory_mib_reserved=0,
    memory_mib_foreign=0,
    tasks=0,
    labels=(EVIL,),
    host=EVIL,
    problem=EVIL,
    holders=(EVIL,),
    devices=(DeviceView(0, EVIL, 1, 0, 0, fake=False),),
)


@pytest.fixture
def evil(stand_in: StandIn) -> StandIn:
    job = an_evil_job()
    stand_in.on("GET /jobs", Said(data=(job,)))
    stand_in.on("GET /jobs/j1", Said(data=job))
    stand_in.on("GET /jobs/j2", Said(data=an_evil_job(State.FAILED)))
    stand_in.on("GET /jobs/j1/tasks", Said(data=(A_TASK,)))
    stand_in.on("GET /jobs/j1/why", Said(data=WhyView("j1", State.PENDING, Reason.HELD, (EVIL,))))
    for verb in ("cancel", "retry", "scale", "yield", "priority"):
        stand_in.on(f"POST /jobs/j1/{verb}", Said(data=job))
    stand_in.on("GET /nodes", Said(data=(A_NODE,)))
    stand_in.on("POST /nodes/n1/drain", Said(data=A_NODE))
    stand_in.on("GET /clusters", Said(data=(ClusterView(EVIL, problem=EVIL, namespace=EVIL, server=EVIL),)))
    agents = (AgentView(node=EVIL, pid=1, build="1", connected=False),)
    stand_in.on("GET /server", Said(data=a_server_view(yard=EVIL, database=EVIL, agents=agents)))
    stand_in.on("GET /tokens", Said(data=()))
    stand_in.on("GET /jobs/gone", problem(404, "not_found", f"no job {EVIL}"))
    return stand_in


@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["show", "j1"],
        ["show", "j1", "--tasks"],
        ["why", "j1"],
        ["cancel", "j1"],
        ["cancel", "j2"],
        ["cancel", "j1", "--checkpoint"],
        ["retry", "j1"],
        ["scale", "j1", "2"],
        ["priority", "j1", "2"],
        ["wait", "j2"],
        ["nodes"],
        ["nodes", "drain", "n1"],
        ["clusters"],
        ["show", "gone"],
        ["cancel", EVIL],
        ["evil\x1b[31m"],
        ["run", "--name", EVIL, "--", "true"],
    ],
    ids=lambda words: " ".join(words)[:20].encode("ascii", "replace").decode(),
)
def test_no_verb_passes_on_what_would_steer_a_terminal(yard: Yard, evil: StandIn, words: list[str]) -> None:
    state = State.FAILED if "j2" in words else State.RUNNING
    evil.on("POST /cancel", Said(data=(an_evil_job(state),)))
    result = yard(*words)
    assert "evil" in result.out + result.err
    assert_harmless(result.out)
    assert_harmless(result.err)


@pytest.mark.parametrize("words", [["ls"], ["show", "j1", "--tasks"], ["nodes"], ["why", "j1"]])
def test_json_keeps_the_name_and_escapes_it(yard: Yard, evil: StandIn, words: list[str]) -> None:
    result = yard(*words, "-o", "json")
    assert result.out.isascii()
    assert_harmless(result.out)
    assert "evil\\u001b[31mred" in result.out
    json.loads(result.out)


def test_names_may_look_like_markup_and_stay_as_they_are() -> None:
    assert harmless("[red]m[/red] [link=x]y") == "[red]m[/red] [link=x]y"
    assert harmless("訓練 é 🙂 a\u00a0b") == "訓練 é 🙂 a b"


@given(st.text() | st.text(st.sampled_from("\x1b[]0;m\x07\x9b\x9c\\P^_X\n\t a\u202e\u2066\ud800")))
def test_no_text_is_left_with_what_steers(text: str) -> None:
    assert harmless(text).isprintable()
    assert harmless(harmless(text)) == harmless(text)


def test_a_cell_that_looks_painted_is_plain_and_ours_has_its_colour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_, **__: False)  # as a terminal
    print_table(("A", "B", "C"), [("\x1b[31mname\x1b[0m", Painted("ok\x1b[2J", "green"), "x")])
    print_fields([("\x1b[5mname", "\x1b[31mvalue"), ("state", Painted("ok", "red"))])
    echo("a\x1b[31mb ", Painted("c", "red"))
    out = capsys.readouterr().out
    assert "name  \x1b[32mok\x1b[0m  x" in out
    assert "\x1b[31mname" not in out
    assert "a\x1b[31mb" not in out
    assert set(re.findall(r"\x1b\[\d+m", out)) == {"\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m"}


def test_output_of_tasks_is_passed_on_as_it_is_but_labels_are_not(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    log = MergedLog()
    log.write(LogChunk(task="w\x1b[31m/0", attempt=1, stream="out", data="\x1b[32mgreen\x1b[0m\n"))
    log.close()
    assert capfdbinary.readouterr().out == b"w/0| \x1b[32mgreen\x1b[0m\n"


def test_only_the_output_package_prints() -> None:
    """So that nothing printed goes around `harmless`."""
    printing = re.compile(r"click\.s?echo\(|\bprint\(|sys\.std(?:out|err)\.write\(")
    allowed = {"cli/main.py"}  # the one sentence of an error, which it makes harmless itself
    found = {
        str(path.relative_to(SOURCES))
        for package in ("cli", "compat")
        for path in (SOURCES / package).rglob("*.py")
        if "output" not in path.relative_to(SOURCES).parts and printing.search(path.read_text())
    }
    assert found == allowed
