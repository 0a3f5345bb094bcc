"""What people and programs get to see, and what they do not."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.intervals import IntervalSet
from jobyard.engine.planner import Planner
from jobyard.engine.yard_state import YardState
from jobyard.errors import UserError
from jobyard.model import codec
from jobyard.model.events import AttemptsFinished, AttemptsStarted, Finished, JobSubmitted, NodeMeasured, Started
from jobyard.model.job import Command, Dependency, Reason, State
from jobyard.model.lines import Lines
from jobyard.model.node import Foreign, place_of
from jobyard.model.task import AttemptId, Outcome
from jobyard.model.training import Progress, Training
from jobyard.scheduling.ordering import position_of
from jobyard.server.commands import checked_spec
from jobyard.server.dry_run import dry_run
from jobyard.server.routes.events import without_secrets
from jobyard.server.views import (
    COMMAND_MOST,
    LIST_TEXT_MOST,
    job_view,
    node_view,
    shown,
    slots_by_place,
    task_numbers,
    task_view,
)
from jobyard.server.why_view import how_many_run, task_why_view, why_view
from jobyard.wire.requests import SubmitJob
from jobyard.wire.views import AttemptView
from tests.builders import a_group, a_job, a_node, joined, submitted, with_words
from tests.unit.engine.driving import Yard, calls_of
from tests.unit.server.running import a_batch, a_yard

SECRETS = {"API_TOKEN": "hush", "db_password": "hush", "AWS_SECRET_ACCESS_KEY": "hush", "HF_TOKEN": "hush"}
OPEN = {"MODE": "fast", "SEED": "1"}


def a_state(*jobs: JobSubmitted, cpus: float = 4, gpus: int = 0) -> YardState:
    return a_planner(*jobs, cpus=cpus, gpus=gpus).state


def a_planner(*jobs: JobSubmitted, cpus: float = 4, gpus: int = 0) -> Planner:
    planner = Planner(YardState())
    for event in (joined(a_node(cpus=cpus, gpus=gpus)), *jobs):
        handle(planner.state, event)
    decide(planner)
    return planner


def decide(planner: Planner) -> None:
    for event in planner.decide(1.0):
        handle(planner.state, event)


def test_a_view_tells_how_much_memory_its_gpus_have_at_least() -> None:
    spec = a_job(groups=(replace(a_group(gpus=1), least_device_mib=40960),))
    planner = a_planner(submitted("ab", 1, spec), gpus=1)
    (group,) = job_view(planner, planner.state.jobs["ab"]).groups
    assert "1 GPU of at least 40 GiB" in str(group.resources)


def test_secrets_are_named_and_not_shown() -> None:
    spec = a_job(env={**SECRETS, **OPEN}, inherited_env={"HOME_SECRET": "of the shell", "PLAIN": "of the shell"})
    planner = a_planner(submitted("ab", 1, spec))
    view = job_view(planner, planner.state.jobs["ab"])
    assert {name: view.env[name] for name in OPEN} == OPEN
    assert set(view.env) == set(SECRETS) | set(OPEN)
    text = json.dumps(codec.encode(view, defaults=True))
    assert "hush" not in text
    assert "of the shell" not in text


def test_events_are_seen_without_secrets_and_without_the_shells_environment() -> None:
    group = replace(a_group(name="w"), env=dict(SECRETS))
    event = submitted("ab", 1, a_job(groups=(group,), env=SECRETS, inherited_env={"X": "of the shell"}))
    text = json.dumps(codec.encode(without_secrets(replace(event, key="a-key"))))
    for hidden in ("hush", "of the shell", "a-key"):
        assert hidden not in text
    assert "API_TOKEN" in text


@pytest.mark.parametrize(
    "name",
    ["MONKEY", "TOKENIZERS_PARALLELISM", "KEYBOARD", "PATH", "OLDPWD", "AUTHOR", "KEYWORDS", "PASSES", "N_PASSES"],
)
def test_what_only_sounds_a_little_like_a_secret_is_shown(name: str) -> None:
    assert shown(name, "x") == "x"


@pytest.mark.parametrize(
    "name",
    [
        "DB_PASS",
        "SMTPPASS",
        "PGPASSWORD",
        "MYSQL_PWD",
        "WANDB_KEY",
        "KEY",
        "AWS_ACCESS_KEY_ID",
        "OpenAI_Key",
        "BASIC_AUTH",
        "GPG_PASSPHRASE",
        "APIKEY",
        "SIGNING_KEY_2",
        "AUTH_HEADER",
        "PRIVATE_KEYFILE",
        "REDIS_PASS1",
    ],
)
def test_secrets_have_many_names(name: str) -> None:
    assert shown(name, "x") == "(hidden)"
    assert shown("MONKEY", "x") == "x"


def test_a_list_has_the_beginning_of_long_texts_and_one_job_all_of_them() -> None:
    many = tuple(Dependency(f"gone{n}", needs_success=False) for n in range(1000))
    command = Command(argv=("x" * 100_000,) * 9)
    long: dict[str, Any] = {"notes": ("n" * 1000,) * 32, "workdir": "/" + "w" * 4000, "image": "i" * 10_000}
    planner = a_planner(submitted("ab", 1, a_job(groups=(replace(a_group(), command=command),), after=many, **long)))
    job = planner.state.jobs["ab"]
    listed, whole = job_view(planner, job, detail=False), job_view(planner, job)
    assert len(json.dumps(codec.encode(listed, defaults=True))) < 4000
    assert (listed.command[:9], listed.command[-1], len(listed.command)) == ("x" * 9, "…", LIST_TEXT_MOST)
    assert (whole.command, whole.notes, whole.image) == (str(command), long["notes"], long["image"])
    assert len(whole.after) == 1000


def test_equal_jobs_to_wait_for_are_one() -> None:
    state = a_state(submitted("abcd", 1))
    twice = (Dependency("1"), Dependency("abcd"), Dependency("job"), Dependency("1", needs_success=False))
    assert checked_spec(state, a_job(after=twice * 1000, workdir="/tmp")).after == (
        Dependency("abcd"),
        Dependency("abcd", needs_success=False),
    )


def test_counts_add_up(tmp_path: Path) -> None:
    planner = a_planner(submitted("ab", 1, a_job(10)))
    counts = job_view(planner, planner.state.jobs["ab"]).counts
    assert counts.total == 10
    assert counts.pending + counts.starting == 10
    assert counts.starting > 0


def test_a_waiting_job_says_why_and_who_is_ahead() -> None:
    planner = a_planner(submitted("ab", 1, a_job(cpus=4)), submitted("cd", 2, a_job(cpus=4)))
    why = why_view(planner, planner.state.jobs["cd"])
    assert why.reason is Reason.RESOURCES
    assert why.sentences == (
        "needs 4 cpus; here has 0 of 4 cpus free",
        "1 unfinished job is ahead of it (priority 0): 1 (job)",
    )


def test_an_ended_job_says_how_it_ended_in_words() -> None:
    planner = a_planner(submitted("ab", 1, a_job()))
    now = time.time()
    end = Finished(AttemptId("ab", 0, 1), Outcome(now - 1, now, exit_code=0))
    handle(planner.state, AttemptsFinished((end,), now))
    (sentence,) = why_view(planner, planner.state.jobs["ab"]).sentences
    assert re.fullmatch(r"the job succeeded \d\.\ds ago", sentence)


@pytest.mark.parametrize(
    ("running", "waiting", "size", "says"),
    [
        (1, 0, 1, "its task runs"),
        (0, 1, 1, "its task waits"),
        (1, 1, 2, "1 of 2 tasks runs and 1 waits"),
        (2, 3, 5, "2 of 5 tasks run and 3 wait"),
    ],
)
def test_how_many_tasks_run_is_one_or_several(running: int, waiting: int, size: int, says: str) -> None:
    assert how_many_run(running, waiting, size) == says


def test_who_is_ahead_is_told_as_the_scheduler_orders_them() -> None:
    short = a_job(cpus=4, training=Training(epochs=9, estimated_seconds=10.0))
    planner = a_planner(submitted("ab", 1, a_job(cpus=4)), submitted("cd", 2, a_job(cpus=4)), submitted("ef", 3, short))
    planner.state.jobs["ab"].age = 9  # it was sent to the back
    planner.state.changes.wants["ab"] = None
    waiting = [request.job for request in sorted(planner.snapshot(1.0).requests, key=position_of)]
    assert waiting == ["cd", "ab"], "the short one has started"
    told = [why_view(planner, planner.state.jobs[job]).sentences[-1] for job in waiting]
    assert told == [
        "1 unfinished job is ahead of it (priority 0): 3 (job)",
        "2 unfinished jobs are ahead of it (priority 0): 3 (job), 2 (job)",
    ]


def test_who_waits_for_another_job_is_not_ahead() -> None:
    blocked = a_job(cpus=4, priority=9, after=(Dependency("cd"),))
    planner = a_planner(
        submitted("ab", 1, a_job(cpus=4)), submitted("cd", 2, a_job(cpus=4)), submitted("ef", 3, blocked)
    )
    why = why_view(planner, planner.state.jobs["cd"])
    assert why.sentences[-1] == "1 unfinished job is ahead of it (priority 0): 1 (job)"


def test_of_many_jobs_ahead_a_few_are_named() -> None:
    planner = a_planner(*(submitted(f"j{number}", number, a_job(cpus=4)) for number in range(1, 8)))
    named = "6 unfinished jobs are ahead of it (priority 0): 1 (job), 2 (job), 3 (job) and 3 more"
    assert why_view(planner, planner.state.jobs["j7"]).sentences[-1] == named


def test_each_task_has_its_own_line_and_a_long_one_is_cut() -> None:
    lines = Command(lines=Lines.of(["echo first", f"echo {'x' * 9000}"]))
    state = a_state(submitted("ab", 1, a_job(groups=(replace(a_group(completions=2), command=lines),))))
    job = state.jobs["ab"]
    first, second = (task_view(job, job.task(number)).command for number in range(2))
    assert (first, second[-3:], len(second)) == ("echo first", "xx…", COMMAND_MOST + 1)


def test_a_task_has_its_earlier_attempts_with_their_ends() -> None:
    planner = a_planner(submitted("ab", 1, a_job(retries=1)))
    ends = Outcome(1.0, 2.0, exit_code=3, message="no GPU", progress=Progress(1))
    handle(planner.state, AttemptsFinished((Finished(AttemptId("ab", 0, 1), ends),), 2.0))
    decide(planner)
    job = planner.state.jobs["ab"]
    view = task_view(job, job.task(0))
    told = AttemptView(1, "here", 1.0, 2.0, Reason.EXIT_CODE, "exited with code 3: no GPU", 3)
    assert (view.attempt, view.earlier) == (2, (told,))


def test_why_of_a_failure_has_the_task_with_its_command_and_its_last_lines() -> None:
    planner = a_planner(submitted("ab", 1, a_job()))
    outcome = Outcome(1.0, 2.0, exit_code=3, message="no GPU at /dev/x")
    handle(planner.state, AttemptsFinished((Finished(AttemptId("ab", 0, 1), outcome),), 2.0))
    failure = why_view(planner, planner.state.jobs["ab"], ("Traceback",)).first_failure
    assert failure is not None
    assert (failure.task.command, failure.last_lines) == ("true", ("Traceback",))
    assert failure.task.message == "exited with code 3: no GPU at /dev/x"


@pytest.mark.parametrize(("parallelism", "is_said"), [(2, True), (8, False), (None, False)])
def test_a_limit_is_said_only_where_there_is_one(parallelism: int | None, is_said: bool) -> None:
    planner = a_planner(submitted("ab", 1, a_job(8, parallelism=parallelism)))
    job = planner.state.jobs["ab"]
    (first, *_) = job.active_tasks()
    handle(planner.state, AttemptsStarted((Started(AttemptId("ab", first.number, 1), 1.0),), 1.0))
    planner.waits = {}
    assert (why_view(planner, job).reason is Reason.ARRAY_LIMIT) is is_said


def test_others_who_hold_room_are_named() -> None:
    planner = a_planner()
    state = planner.state
    handle(state, NodeMeasured("here", Foreign(4000, 0, holders=("yard of bob (agent 7)",)), 2.0))
    handle(state, submitted("ab", 1, a_job()))
    decide(planner)
    assert "yard of bob (agent 7)" in why_view(planner, state.jobs["ab"]).sentences[0]
    assert node_view(state, state.places.nodes["here"]).holders == ("yard of bob (agent 7)",)


def test_a_node_shows_what_is_reserved_and_fake() -> None:
    state = a_state(submitted("ab", 1, a_job(cpus=1, mem=100, gpus=1, gpu_mem=500)), gpus=2)
    view = node_view(state, state.places.nodes["here"])
    assert (view.cpu_millis_reserved, view.memory_mib_reserved) == (1000, 100)
    assert sorted(device.reserved_mib for device in view.devices) == [0, 500]
    assert all(device.fake for device in view.devices)


def test_tasks_are_listed_by_state_in_pages() -> None:
    state = a_state(submitted("ab", 1, a_job(100, limit=2)))
    job = state.jobs["ab"]
    assert task_numbers(job, (), 5, 10) == [10, 11, 12, 13, 14]
    pending = task_numbers(job, [State.PENDING], 1000, 0)
    assert {task_view(job, job.task(number)).state for number in pending} == {State.PENDING}
    assert len(pending) + len(task_numbers(job, [State.STARTING], 1000, 0)) == 100


def test_a_list_of_nodes_looks_through_the_slots_once(monkeypatch: pytest.MonkeyPatch) -> None:
    state = YardState()
    for event in (*(joined(a_node(f"n{number}")) for number in range(30)), submitted("ab", 1, a_job(100))):
        handle(state, event)
    decide(Planner(state))
    assert len(state.slots) >= 30
    looked = 0

    def counted(node: str) -> str:
        nonlocal looked
        looked += 1
        return place_of(node)

    alone = {name: node_view(state, node) for name, node in state.places.nodes.items()}
    monkeypatch.setattr("jobyard.server.views.place_of", counted)
    held = slots_by_place(state)
    assert {name: node_view(state, node, held) for name, node in state.places.nodes.items()} == alone
    assert sum(view.tasks for view in alone.values()) == len(state.slots)
    assert looked == len(state.slots)


@pytest.mark.parametrize("states", [(), (State.PENDING,), (State.PENDING, State.STARTING), (State.FAILED,)])
def test_a_page_of_tasks_is_the_same_wherever_it_begins(states: tuple[State, ...]) -> None:
    state = a_state(submitted("ab", 1, a_job(30, limit=2)))
    job = state.jobs["ab"]
    job.tasks.pending.remove(7, 9)
    job.tasks.pending.remove(15)
    whole = task_numbers(job, states, 1000, 0)
    assert whole == sorted(whole)
    for offset in range(35):
        for limit in range(8):
            assert task_numbers(job, states, limit, offset) == whole[offset : offset + limit]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"workdir": "relative"}, "absolute directory"),
        ({"workdir": "/no/such/place"}, "no such directory"),
        ({"on": "mars"}, "no node 'mars'"),
    ],
)
def test_a_request_that_can_never_be_right_is_refused(change: dict[str, object], said: str) -> None:
    spec = replace(a_batch("true"), **change)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=said):
        checked_spec(a_state(), spec)


def test_a_gang_must_fit_at_once() -> None:
    with pytest.raises(UserError, match="start together"):
        checked_spec(a_state(cpus=4), a_job(5, cpus=1, gang=True, workdir="/tmp"))
    checked_spec(a_state(cpus=4), a_job(4, cpus=1, gang=True, workdir="/tmp"))


async def test_a_dry_run_places_and_keeps_nothing(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        seq = yard.loop.seq
        spec = a_batch(*["echo x"] * 9, cpus=1, workdir=str(tmp_path), inherited_env={"SHELL": "of-the-shell"})
        plan = dry_run(yard.loop, SubmitJob(spec, dry_run=True, render=True))
        assert len([sentence for sentence in plan.placements if sentence.startswith("slot")]) == 4
        assert "the rest waits (Resources)" in plan.placements[-1]
        assert "echo x" in plan.rendered
        assert "of-the-shell" not in plan.rendered
        assert (yard.loop.seq, yard.loop.state.jobs) == (seq, {})


async def test_objects_for_kubernetes_are_shown_and_nothing_is_submitted(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        seq = yard.loop.seq
        spec = a_job(3, image="demo", on="kubernetes", workdir=str(tmp_path), cpus=999, inherited_env={"A": "shells"})
        plan = dry_run(yard.loop, SubmitJob(spec, dry_run=True, render=True))
        assert plan.rendered.startswith("apiVersion: batch/v1\nkind: Job\n")
        assert "shells" not in plan.rendered
        with pytest.raises(UserError, match="has no image"):
            dry_run(yard.loop, SubmitJob(with_words(spec, image=""), dry_run=True, render=True))
        with pytest.raises(UserError, match="the yard knows no Kubernetes cluster; run: yard clusters add"):
            dry_run(yard.loop, SubmitJob(spec, dry_run=True))
        assert (yard.loop.seq, yard.loop.state.jobs) == (seq, {})


def test_kubernetes_means_a_cluster_unless_a_machine_has_that_name() -> None:
    spec = a_job(image="demo", on="kubernetes", workdir="/tmp")
    with pytest.raises(UserError, match="the yard knows no Kubernetes cluster; run: yard clusters add"):
        checked_spec(a_state(), spec)
    state = a_state()
    handle(state, joined(a_node("kubernetes")))
    assert checked_spec(state, spec).cluster == ""


def test_why_of_one_task_tells_of_that_task_alone() -> None:
    planner = a_planner(submitted("a", 1, a_job(groups=(a_group(completions=3, cpus=2),))))
    first = AttemptId("a", 0, 1)
    handle(planner.state, AttemptsStarted((Started(first, 1.0),), 1.0))
    handle(planner.state, AttemptsFinished((Finished(first, Outcome(1.0, 2.0, exit_code=3)),), 2.0))
    job = planner.state.jobs["a"]
    failed = task_why_view(planner, job, 0, ("no GPU",))
    assert (failed.state, failed.reason, failed.first_failure and failed.first_failure.last_lines) == (
        State.FAILED,
        Reason.EXIT_CODE,
        ("no GPU",),
    )
    waiting = task_why_view(planner, job, 2)
    assert waiting.state is State.PENDING
    assert waiting.first_failure is None


def test_tasks_that_are_named_are_listed_in_their_states() -> None:
    job = a_state(submitted("a", 1, a_job(groups=(a_group(completions=9),))), cpus=2).jobs["a"]
    named = IntervalSet([(1, 3), (7, 7)])
    assert task_numbers(job, (), 10, 0, named) == [1, 2, 3, 7]
    assert task_numbers(job, (), 2, 1, named) == [2, 3]
    assert task_numbers(job, [State.PENDING], 10, 0, named) == [2, 3, 7]


def test_a_range_of_many_tasks_in_a_state_costs_no_look_at_each() -> None:
    job = a_state(submitted("a", 1, a_job(100_000)), cpus=2).jobs["a"]
    named = IntervalSet([(0, 99_999)])
    assert calls_of(lambda: task_numbers(job, [State.FAILED], 100, 0, named)) < 100
    assert task_numbers(job, [State.STARTING], 100, 0, named) == [0, 1]


def test_a_job_says_what_it_waits_for_of_each_other_one() -> None:
    yard = Yard(a_node(cpus=1))
    one, two = yard.submit(a_job()), yard.submit(a_job())
    spec = replace(a_job(), after=(Dependency(one.id), Dependency(two.id, needs_success=False)))
    job = yard.submit(spec)
    assert job_view(yard.planner, job).message == "waits for job 1 to succeed and for job 2 to end"


def test_one_failure_among_several_tasks_is_told_in_the_singular() -> None:
    yard = Yard(a_node(cpus=3))
    job = yard.submit(a_job(3))
    first, second, third = yard.active(job)
    yard.finish(second, exit_code=3)
    yard.finish(first, third, exit_code=0)
    assert job_view(yard.planner, job).message == "1 of 3 tasks failed: task 1 exited with code 3"


@pytest.mark.parametrize("detail", [True, False])
def test_a_view_says_whether_the_yards_owner_submitted_the_job_whatever_user_it_names(detail: bool) -> None:
    own, others = a_job(user="root"), a_job(user="root", submitted_with="t1")
    planner = a_planner(submitted("a", 1, own), submitted("b", 2, others))
    views = [job_view(planner, planner.state.jobs[job], detail=detail) for job in ("a", "b")]
    assert [view.is_owners for view in views] == [True, False]
