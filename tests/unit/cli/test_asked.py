"""Asked fields: a dry run and `yard show` hide nothing that was set."""

from __future__ import annotations

import json
from pathlib import Path

from tests.builders import a_job
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn
from tests.unit.client.views import a_job_view

from jobyard.cli.output.asked import asked_rows
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.input_fields import INPUTS
from jobyard.manifests.job_fields import TOP_LEVEL, TRAINING
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.model import codec
from jobyard.model.job import JobSpec, State
from jobyard.server.asked_view import asked_view
from jobyard.wire.views import JobView, PlanView

MANIFEST = """
command: "true"
array: 1-9:2%3
stdin: a
on: gpu1,gpu2
priority: 4
timeout: 90
deadline: 1d
grace: 0
retries: 2
retry_delay: 10s
delay: 2s
max_fails: 0
enough_successes: 2
lets_running_end: true
output: /dev/null
error: "%t.err"
on_failure: stop
keep: true
image: demo:1
container: true
volumes: data:/data:ro
copy_forward: a
copy_backwards: [b, c]
training:
  epochs: 3
  batch_size: 16
  training_set_size: 1000
  estimate: 2h
  preemptible: false
  checkpoint_deadline: 60
  log_dir: runs
  idle_gpu: stop
  idle_gpu_after: 10m
"""
ROWS = {
    "array": "1-9:2",
    "stdin": "4 bytes",
    "on": "gpu1,gpu2",
    "priority": "4",
    "timeout": "1m30s",
    "deadline": "1d00h",
    "grace": "0.0s",
    "retries": "2",
    "retry delay": "10s",
    "delay": "2.0s",
    "max fails": "0",
    "enough successes": "2",
    "lets running end": "yes",
    "output": "/dev/null",
    "error": "{here}/%t.err",
    "on failure": "stop",
    "limit": "3",
    "keep": "yes",
    "image": "demo:1",
    "container": "yes",
    "volumes": "data:/data:ro",
    "copy forward": "a",
    "copy backwards": "b, c",
    "epochs": "3",
    "batch size": "16",
    "training set size": "1000",
    "estimate": "2h00m",
    "preemptible": "no",
    "checkpoint deadline": "1m00s",
    "log dir": "runs",
    "idle gpu": "stop",
    "idle gpu after": "10m00s",
}
OTHERWISE = {"name", "env", "workdir", "each_line", "after", "workers", "gang", "kind"}  # rows that are always there
OTHERWISE |= INPUTS.keys()  # each task shows its own values


def seen(spec: JobSpec) -> JobView:
    """As the server sends it and the client has it."""
    view = a_job_view(State.PENDING, asked=asked_view(spec))
    return codec.decode(JobView, json.loads(json.dumps(codec.encode(view))))


def the_job(directory: Path) -> JobSpec:
    (directory / "a").write_text("data")
    (directory / "job.yaml").write_text(MANIFEST)
    return spec_from_file(Path("job.yaml"), Overrides(), SubmitContext(str(directory)))


def test_every_field_that_was_set_has_a_row(tmp_path: Path) -> None:
    rows = {name: text.replace("{here}", str(tmp_path)) for name, text in ROWS.items()}
    assert dict(asked_rows(seen(the_job(tmp_path)))) == rows
    keys = {key for table in (*TOP_LEVEL, TRAINING) for key, field in table.items() if field.is_key}
    assert {key.replace("_", " ") for key in keys - OTHERWISE} == set(ROWS)


def test_a_job_of_which_nothing_was_said_has_none() -> None:
    assert asked_rows(seen(a_job(workdir="/"))) == []


def test_a_dry_run_and_show_print_them(yard: Yard, stand_in: StandIn, tmp_path: Path) -> None:
    view = seen(the_job(tmp_path))
    stand_in.on("POST /jobs", Said(data=PlanView(view)))
    stand_in.on("GET /jobs/j1", Said(data=view))
    for shown in (yard("run", "--dry-run", "--", "true").out, yard("show", "j1").out):
        rows = dict(line.split(maxsplit=1) for line in shown.splitlines() if line[:1].isalpha() and "  " in line)
        assert (rows["deadline"], rows["grace"], rows["array"]) == ("1d00h", "0.0s", "1-9:2")
        assert sum(line.startswith("priority ") for line in shown.splitlines()) == 1
