"""Written words: a refusal names what the user wrote, not the field of a request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.builders import a_group, a_job

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.overrides import Overrides
from jobyard.manifests.written import Written
from jobyard.model.checks import check
from jobyard.model.job import Command, Dependency, JobSpec
from jobyard.model.lines import Lines
from jobyard.wire.requests import SubmitJob

ODD = b"caf\xe9".decode("utf-8", "surrogateescape")


def a_command(name: str = "", **command: object) -> JobSpec:
    return a_job(groups=(replace(a_group(), name=name, command=Command(**command)),))  # type: ignore[arg-type]


def refusal_of(spec: JobSpec) -> UserError:
    with pytest.raises(UserError) as caught:
        check(SubmitJob(spec))
    return caught.value


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (a_command(argv=("printf", "%s", ODD)), "word 3 of the command: "),
        (a_command("boss", argv=(ODD,)), "word 1 of the command of group boss: "),
        (a_command(shell=ODD), "the command: "),
        (a_command(lines=Lines.of([ODD])), "the file of commands: "),
        (a_job(name=ODD), "the job's name: "),
        (a_job(env={"NAME": ODD}), "variable NAME: "),
        (a_job(env={ODD: "x"}), "the variables: a name in it: "),
        (a_job(inherited_env={"NAME": "x" * 140_000}), "variable NAME of this shell: "),
        (a_job(on=ODD), "--on: "),
        (a_job(image=ODD), "--image: "),
        (a_job(after=(Dependency(ODD),)), "--after: "),
        (a_job(retries=-1), "--retries: "),
    ],
)
def test_a_refused_field_is_named_as_on_the_command_line(spec: JobSpec, named: str) -> None:
    refusal = refusal_of(spec)
    assert refusal.field.startswith("SubmitJob.spec.")
    told = Written(Overrides()).sentence(refusal, spec)
    assert told.startswith(named)
    assert told.endswith(refusal.sentence.rpartition("; ")[2])


@pytest.mark.parametrize(
    ("text", "field", "told"),
    [
        ("command: [a, b]", "SubmitJob.spec.groups[0].command.argv[1]", "job.yaml: line 1: command[1]: no"),
        ("command: x\nname: a", "SubmitJob.spec.name", "job.yaml: line 2: name: no"),
        ("command: x\nenv:\n  A: b", "SubmitJob.spec.env.A", "job.yaml: line 3: env.A: no"),
        ("command: x\nretries: 2", "SubmitJob.spec.policy.retries", "job.yaml: line 2: retries: no"),
        (
            "command: x\ntraining:\n  epochs: 2",
            "SubmitJob.spec.training.epochs",
            "job.yaml: line 3: training.epochs: no",
        ),
        ("command: x\nafter: 7", "--after", "job.yaml: line 2: after: no"),
        ("command: x\nresources:\n  gpus: 2", "--gpus", "job.yaml: line 3: resources.gpus: no"),
        ("command: x", "--after", "--after: no"),
        ("command: x", "", "no"),
    ],
)
def test_a_field_of_a_manifest_is_named_with_line_and_key(
    text: str, field: str, told: str, tmp_path: Path, context: SubmitContext
) -> None:
    (tmp_path / "job.yaml").write_text(text)
    written = Written(Overrides(), "job.yaml", context)
    assert written.sentence(UserError("no", field=field), a_command(argv=("a", "b"))) == told


def test_a_flag_that_was_typed_is_not_looked_for_in_the_file(tmp_path: Path, context: SubmitContext) -> None:
    (tmp_path / "job.yaml").write_text("command: x\nafter: 7\n")
    typed = Written(Overrides(after=("8",)), "job.yaml", context)
    assert typed.sentence(UserError("no job 8", field="--after"), a_job()) == "--after: no job 8"


def test_a_flag_in_the_words_of_a_refusal_is_not_taken_for_what_is_refused(
    tmp_path: Path, context: SubmitContext
) -> None:
    (tmp_path / "job.yaml").write_text("command: x\nafter: 7\nname: a\n")
    written = Written(Overrides(), "job.yaml", context)
    sentence = "job 'a' waits by --after, and --name is no way round"
    assert written.sentence(UserError(sentence), a_job()) == sentence


def test_a_flag_of_a_yard_line_is_named_with_its_line(tmp_path: Path, context: SubmitContext) -> None:
    (tmp_path / "jobs.txt").write_text("true\n#YARD --name x --after=7\n")
    written = Written(Overrides(), "jobs.txt", context)
    assert written.sentence(UserError("no", field="--after"), a_job()) == "jobs.txt: line 2: --after: no"
