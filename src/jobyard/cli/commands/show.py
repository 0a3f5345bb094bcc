"""`yard show`: what is known of one job?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import click

from jobyard.cli.option_values import WholeNumber
from jobyard.cli.output.json import print_json
from jobyard.cli.output.summary import COMMAND_COLUMNS, failure_in_full
from jobyard.cli.output.table import print_fields, print_table, say_more
from jobyard.cli.output.task_csv import names_of, print_task_csv
from jobyard.cli.output.text import (
    because,
    counts_text,
    echo,
    echo_text,
    local_time,
    outcome_text,
    run_time,
    state_text,
)
from jobyard.cli.output.training import training_fields
from jobyard.cli.session import FORMATS, Session, with_session
from jobyard.errors import UserError
from jobyard.model import codec
from jobyard.model.job import State
from jobyard.model.task_ranges import job_and_tasks
from jobyard.model.units import show_mib, show_seconds
from jobyard.wire.views import JobView, TaskView

TASK_HEADERS = ("TASK", "STATE", "ATTEMPT", "NODE", "GPUS", "TIME", "PEAK", "OUTCOME")
POD_HEADERS = ("TASK", "STATE", "ATTEMPT", "NODE", "POD", "TIME", "OUTCOME")
SPARE_HEADERS = ("GPUS", "PEAK", "POD", "NODE", "ATTEMPT", "TIME")  # left out on a narrow terminal
ROWS_MOST = 100  # of a table, unless -n says otherwise


@click.command("show")
@partial(with_session, formats=(*FORMATS, "csv"))
@click.argument("selector", metavar="JOB[/TASKS]")
@click.option("--tasks", "with_tasks", is_flag=True, help="Also its tasks, each with its own command.")
@click.option("--task", "labels", multiple=True, metavar="LABELS", help="Only these tasks, as in 3,7-9, in full.")
@click.option("-n", "--limit", type=WholeNumber(min=1), metavar="N", help="With --tasks: at most N tasks.")
@click.option("--diff", "only_diff", is_flag=True, help="Only what its image has beyond the commit, for `git apply`.")
def command(
    session: Session, selector: str, with_tasks: bool, labels: tuple[str, ...], limit: int | None, only_diff: bool
) -> int:
    """Show one job, or some of its tasks. JOB is a number, an id or its beginning, a name, or `last`.

    JOB/TASKS, as in 17/3 or 17/3-7, shows those tasks: when and where each ran, its command, and the files that have
    its output, where they are on this machine. Some seconds after its end they may be packed: then it names the command
    that prints them. `--tasks -o csv` is a table for other programs, with a column for each parameter of a sweep.
    """
    job, asked = job_and_tasks(selector, labels)
    if session.is_csv and (only_diff or not with_tasks):
        raise UserError("-o csv: it is a table of tasks; write `yard show JOB --tasks -o csv`")
    if only_diff:
        echo_text(session.client.diff(job))
        return 0
    view = session.client.job(job)
    if asked and not with_tasks:
        return _show_tasks(session, view, asked, limit)
    most = limit or (view.counts.total if session.is_json or session.is_csv else ROWS_MOST)
    tasks = session.client.tasks(view.id, limit=most, task=asked, with_paths=True) if with_tasks else ()
    if session.is_csv:
        print_task_csv(tasks)
        return 0
    if session.is_json:
        data = codec.encode(view, defaults=True)
        print_json({**data, "tasks": tasks} if with_tasks else data)
        return 0
    print_fields(_fields(view))
    if view.first_failure is not None:
        for line in failure_in_full(view.first_failure):
            echo(line.removeprefix("yard: "))
    if tasks:
        echo()
        _print_tasks(view, tasks)
        if limit is None and not asked:
            say_more(view.counts.total - len(tasks))
    return 0


def _show_tasks(session: Session, job: JobView, asked: str, limit: int | None) -> int:
    """Each in full, with an empty line between."""
    tasks = session.client.tasks(job.id, limit=limit or ROWS_MOST, task=asked, with_paths=True)
    if session.is_json:
        print_json(tasks)
        return 0
    for index, task in enumerate(tasks):
        if index:
            echo()
        print_fields(_task_fields(job, task))
    return 0


def _task_fields(job: JobView, task: TaskView) -> list[tuple[str, str]]:
    outcome = outcome_text(task) if task.state.is_final else ""
    return [
        ("task", f"{task.label} of job {job.number} ({job.name})"),
        ("state", state_text(task.state, because(task.state, task.reason))),
        ("message", task.message),
        ("outcome", "" if outcome == task.message else outcome),
        ("command", task.command),
        ("values", ", ".join(f"{name}={value}" for name, value in task.values.items())),
        ("attempt", str(task.attempt or "")),
        ("node", task.node),
        ("pod", task.unit),
        ("gpus", ",".join(map(str, task.devices))),
        ("started", local_time(task.started_at) if task.started_at else ""),
        ("finished", local_time(task.finished_at) if task.finished_at else ""),
        ("time", run_time(task) if task.started_at else ""),
        ("peak memory", show_mib(task.peak_memory_mib) if task.peak_memory_mib else ""),
        ("stdout", task.stdout),
        ("stderr", task.stderr),
        ("output", "" if task.stdout or task.stderr else _where_to_read(job, task)),
    ]


def _where_to_read(job: JobView, task: TaskView) -> str:
    """Its files may be packed."""
    return f"`yard logs {job.number}/{task.label}`" if task.attempt and task.state.is_final else ""


def _fields(job: JobView) -> list[tuple[str, str]]:
    from jobyard.cli.output.asked import asked_rows  # on first use: it imports the table of fields

    what, how_far = _what(job), _how_far(job)
    asked = asked_rows(job, besides=(name for name, value in (*what, *how_far) if value))
    return [*what, *asked, *how_far]


def _what(job: JobView) -> list[tuple[str, str]]:
    return [
        ("job", f"{job.number} (id {job.id})"),
        ("name", job.name),
        ("user", job.user),
        ("state", state_text(job.state, because(job.state, job.reason))),
        ("message", job.message),
        ("tasks", counts_text(job.counts)),
        ("each", "; ".join(f"{group.name or 'task'}: {group.resources}" for group in job.groups)),
        ("priority", str(job.priority)),
        ("command", job.command),
        ("cluster", job.cluster),
        ("kind", job.kind),
        ("image", job.image + (" (in containers)" if job.container else "")),
        ("built from", str(job.git) if job.git else ""),
        ("remote", job.git.remote if job.git else ""),
        ("workdir", "" if job.cluster else job.workdir),
        ("env", ", ".join(f"{name}={value}" for name, value in job.env.items())),
        ("after", ", ".join(job.after)),
    ]


def _how_far(job: JobView) -> list[tuple[str, str]]:
    eta = [("eta", show_seconds(job.eta_seconds) if job.eta_seconds is not None else "")]
    return [
        ("submitted", local_time(job.submitted_at)),
        ("first start", local_time(job.first_started_at) if _was_retried(job) else ""),
        ("started", local_time(job.started_at) if job.started_at else ""),
        ("finished", local_time(job.finished_at) if job.finished_at else ""),
        ("time", run_time(job) if job.started_at else ""),
        *(training_fields(job.training) if job.training is not None else eta),
        ("notes", "; ".join(filter(None, (*job.notes, job.given_more, job.not_written)))),
    ]


def _was_retried(job: JobView) -> bool:
    return job.first_started_at is not None and job.first_started_at != job.started_at


def _print_tasks(job: JobView, tasks: Sequence[TaskView]) -> None:
    """A row for each attempt, with the command of each task, unless all have the job's."""
    headers, row = (POD_HEADERS, _pod_row) if job.cluster else (TASK_HEADERS, _row)
    tasks = [attempt for task in tasks for attempt in _attempts(task)]
    rows = [row(task) for task in tasks]
    if names := names_of(tasks):
        headers = (*headers, *names)
        rows = [
            (*cells, *(task.values.get(name, "-") for name in names)) for cells, task in zip(rows, tasks, strict=True)
        ]
    if any(task.command != job.command for task in tasks):
        headers = (*headers, "COMMAND")
        rows = [(*cells, task.command or "-") for cells, task in zip(rows, tasks, strict=True)]
    print_table(headers, rows, spare=SPARE_HEADERS, last_in_pipe=COMMAND_COLUMNS)


def _attempts(task: TaskView) -> Iterator[TaskView]:
    """The task as it was after each earlier attempt, and as it is."""
    for past in task.earlier:
        yield TaskView(
            task.number,
            task.label,
            State.SUCCEEDED if past.reason is None else State.FAILED,
            past.number,
            past.reason,
            past.message,
            past.node,
            exit_code=past.exit_code,
            signal=past.signal,
            started_at=past.started_at,
            finished_at=past.finished_at,
            command=task.command,
            values=task.values,
        )
    yield task


def _row(task: TaskView) -> tuple[str, ...]:
    return (
        task.label,
        state_text(task.state),
        str(task.attempt or "-"),
        task.node or "-",
        ",".join(map(str, task.devices)) or "-",
        run_time(task),
        show_mib(task.peak_memory_mib) if task.peak_memory_mib else "-",
        task.message or (outcome_text(task) if task.state.is_final else ""),
    )


def _pod_row(task: TaskView) -> tuple[str, ...]:
    return (
        task.label,
        state_text(task.state),
        str(task.attempt or "-"),
        task.node.partition("/")[2] or "-",
        task.unit or "-",
        run_time(task),
        task.message or (outcome_text(task) if task.state.is_final else ""),
    )
