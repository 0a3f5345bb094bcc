from __future__ import annotations

from jobyard.compat.ml_scheduler.batch import BatchContext, Line, Run, runs_of
from jobyard.compat.ml_scheduler.flags import Copies
from jobyard.compat.ml_scheduler.story import Story, limit_lines, skip_line
from jobyard.model.events import AttemptsFinished, AttemptsStarted, Event, Finished, SlotOpened, Started, TasksAssigned
from jobyard.model.job import Reason, State
from jobyard.model.resources import DeviceSlice, Placement, Resources
from jobyard.model.task import AttemptId, Outcome, Slot
from jobyard.wire.views import TaskView

LINES = [
    Line(number, f"example_batch_script.sh.{number}", command, command, Copies(("./",), ("./",)))
    for number, command in [(1, 'echo "one job"'), (2, 'echo "jobs will tell you if they fail" && exit 1')]
]


def a_run() -> Run:
    (run,) = runs_of("example_batch_script.sh", LINES, Resources(gpus=1), "m", BatchContext("/", "/tmp"))
    return run


def opened(job: str = "j1", slot: str = "1", gpu: int = 1) -> SlotOpened:
    return SlotOpened(Slot(slot, job, 0, Placement("m", Resources(gpus=1), (DeviceSlice(gpu, 24_000),))), 0.0)


def started(task: int, attempt: int = 1, job: str = "j1") -> AttemptsStarted:
    return AttemptsStarted((Started(AttemptId(job, task, attempt), 0.0),), 0.0)


def finished(task: int, code: int = 0, attempt: int = 1, reason: Reason | None = None) -> AttemptsFinished:
    outcome = Outcome(0.0, 1.0, exit_code=code, reason=reason)
    return AttemptsFinished((Finished(AttemptId("j1", task, attempt), outcome),), 0.0)


def told(story: Story, *events: Event) -> list[str]:
    return [line for event in events for line in story.hear(event)]


def a_story(*, shows_gpus: bool = True) -> Story:
    return Story({"j1": a_run()}, shows_gpus=shows_gpus)


def test_the_lines_of_the_seeds_readme() -> None:
    assert limit_lines(["my_machine.yaml"], [[0, 1]]) == [
        "machine limits:  {'my_machine.yaml': 2}",
        "machine gpu choices: [[0, 1]]",
    ]
    assert skip_line(LINES[1]) == (
        "WARNING: job results already exists for line 2, skipping evaluation: delete if you wish to rerun"
    )
    story = a_story()
    events = [opened(), TasksAssigned("1", ((0, 1),), 0.0), started(0), finished(0), started(1), finished(1, code=1)]
    assert told(story, *events) == [
        'started: example_batch_script.sh.1;  export CUDA_VISIBLE_DEVICES=1 && echo "one job"',
        'finished: example_batch_script.sh.1; echo "one job"',
        "started: example_batch_script.sh.2;  export CUDA_VISIBLE_DEVICES=1 && "
        'echo "jobs will tell you if they fail" && exit 1',
        'failed: example_batch_script.sh.2; echo "jobs will tell you if they fail" && exit 1',
    ]
    assert story.is_over


def test_without_gpus_nothing_is_exported() -> None:
    lines = told(a_story(shows_gpus=False), opened(), TasksAssigned("1", ((0, 0),), 0.0), started(0))
    assert lines == ['started: example_batch_script.sh.1;  echo "one job"']


def test_other_jobs_are_not_spoken_of() -> None:
    assert told(a_story(), opened("other"), TasksAssigned("1", ((0, 0),), 0.0), started(0, job="other")) == []


def test_a_task_whose_start_was_not_heard_is_started_before_it_ends() -> None:
    assert [line.split(":")[0] for line in told(a_story(), finished(0))] == ["started", "finished"]


def test_a_lost_machine_is_no_end_and_an_old_attempt_is_not_counted() -> None:
    story = a_story()
    events = [started(0), finished(0, reason=Reason.NODE_LOST), started(0, attempt=2), finished(0, code=1, attempt=1)]
    assert [line.split(":")[0] for line in told(story, *events)] == ["started", "started"]
    assert [line.split(":")[0] for line in told(story, finished(0, attempt=2), finished(0, attempt=2))] == ["finished"]


def test_at_the_end_what_was_not_heard_is_told_once() -> None:
    story = a_story()
    told(story, started(0), finished(0))
    tasks = [
        TaskView(0, "1", State.SUCCEEDED, attempt=1),
        TaskView(1, "2", State.CANCELLED, attempt=1),
    ]
    assert [line.split(";")[0] for line in story.unreported("j1", tasks)] == [
        "started: example_batch_script.sh.2",
        "failed: example_batch_script.sh.2",
    ]
    assert list(story.unreported("j1", tasks)) == []


def test_a_line_whose_placement_was_not_heard_is_told_with_the_gpu_that_it_had() -> None:
    (line, _) = a_story().unreported("j1", [TaskView(0, "1", State.SUCCEEDED, attempt=1, devices=(1,))])
    assert line == 'started: example_batch_script.sh.1;  export CUDA_VISIBLE_DEVICES=1 && echo "one job"'


def test_a_line_that_never_started_is_not_spoken_of() -> None:
    assert list(a_story().unreported("j1", [TaskView(0, "1", State.CANCELLED)])) == []
