from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from jobyard.errors import UserError
from jobyard.model import limits
from jobyard.model.checks import check
from jobyard.model.codec import decode, encode
from jobyard.model.container import PortMapping
from jobyard.model.job import Command, Dependency, GroupSpec, JobSpec, Script
from jobyard.model.lines import Lines
from jobyard.model.node import NodeConfig
from jobyard.model.policy import RunPolicy
from jobyard.model.resources import Resources
from jobyard.model.source import GitState
from jobyard.model.training import Elastic, Training
from jobyard.wire.requests import CancelJob, ChangePriority, CreateToken, RetryJob, ScaleJob, SubmitJob
from tests.builders import a_group, a_job, one_column

BYTES = b"caf\xe9".decode("utf-8", "surrogateescape")  # as Python has a file's name that is not UTF-8


def a_command(**command: Any) -> JobSpec:
    return a_job(groups=(replace(a_group(), command=Command(**command)),))


def amounts(**resources: Any) -> JobSpec:
    return a_job(groups=(replace(a_group(), resources=Resources(**resources)),))


def test_an_ordinary_job_is_within_its_limits() -> None:
    check(SubmitJob(a_job(timeout_seconds=90.0, env={"A": "1\n2"}, inherited_env={"BASH_FUNC_x%%": "() { :;}"})))
    check(SubmitJob(a_command(lines=Lines.of(["echo ä", "true"]))))


@pytest.mark.parametrize(
    "spec",
    [
        a_job(workdir=f"/tmp/{BYTES}", results_dir=f"/tmp/{BYTES}/r", subdir=BYTES),
        a_job(copy_forward=(BYTES,), copy_back=(BYTES,)),
        a_job(inherited_env={"OLDPWD": f"/tmp/{BYTES}"}),
        a_job(git=GitState("c", diff=f"+{BYTES}")),
    ],
)
def test_the_names_of_files_need_not_be_utf8_and_come_back_as_they_were(spec: JobSpec) -> None:
    check(SubmitJob(spec))
    assert decode(JobSpec, json.loads(json.dumps(encode(spec)))) == spec


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (a_command(argv=("printf", BYTES)), "groups[0].command.argv[1]: 'caf\\udce9' is not UTF-8"),
        (a_command(shell=BYTES), "command.shell"),
        (a_command(lines=Lines.of(["true", BYTES])), "command.lines"),
        (a_command(shell="true", inputs=one_column(Lines.of([BYTES]))), "command.inputs.sources[0].columns[0].values"),
        (a_job(env={"A": BYTES}), "spec.env.A"),
        (a_job(env={BYTES: "1"}), "SubmitJob.spec.env: a name in it: "),
        (a_job(name=BYTES), "spec.name"),
        (a_job(groups=(a_group(BYTES),)), "groups[0].name"),
        (a_job(name="\ud800"), "is not UTF-8"),
        (a_job(workdir="/\ud800"), "is not UTF-8"),  # no byte of a path is read as that
        (a_job(name="a\0"), "NUL"),
        (a_command(argv=("a\0b",)), "NUL"),
        (a_command(script=Script("x", "#!/bin/sh\n" + "ä" * 61_500)), "script.text: 123010 bytes; at most 122880"),
        (a_job(env={"A": "\0"}), "NUL"),
        (a_job(workdir="/\0"), "NUL"),
        (a_job(name="a\x1b[31m"), "control character"),
        (a_job(name="a\nb"), "control character"),
        (a_job(name="a\x9b"), "control character"),
        (a_job(env={"A\n": "1"}), "control character"),
        (a_job(env={"A=B": "1"}), "not a variable's name"),
        (a_job(env={"": "1"}), "a name in"),
        (a_job(name=""), "1 to 300"),
        (a_job(name=" \u3000"), "is blank; write a name"),
        (a_job(name="x" * 301), "1 to 300"),
        (a_job(after=(Dependency("x" * 301),)), "after[0].job"),
        (a_command(argv=("x" * limits.WORD_BYTES_MOST, "ä" * 70_000)), "argv[1]: 140000 bytes"),
        (a_command(argv=("x",) * (limits.WORDS_MOST + 1)), "100001 items; give at most 100000"),
        (a_job(env={"A": "x" * limits.WORD_BYTES_MOST}), "env.A: 131074 bytes"),
        (a_job(env={f"A{n}": "x" * 100_000 for n in range(50)}), "bytes in all"),
        (a_job(env={f"A{n}": "" for n in range(10_001)}), "10001 variables"),
        (a_job(workdir="/" + "x" * 5000), "workdir"),
        (a_job(groups=tuple(a_group(f"g{n}") for n in range(257))), "257 items; give 1 to 256"),
        (a_job(timeout_seconds=math.nan), "spec.policy.timeout_seconds: nan is out of range; give more than 0"),
        (a_job(timeout_seconds=math.inf), "timeout_seconds: inf"),
        (a_job(timeout_seconds=-5.0), "timeout_seconds: -5"),
        (a_job(timeout_seconds=0.0), "timeout_seconds: 0"),
        (a_job(deadline_seconds=1e10), "deadline_seconds"),
        (a_job(grace_seconds=-1.0), "grace_seconds"),
        (a_job(priority=1_000_001), "priority"),
        (a_job(retries=-1), "retries"),
        (a_job(max_fails=-1), "max_fails"),
        (a_job(limit=0), "limit: 0 is out of range; give at least 1 and at most 100000000"),
        (amounts(cpu_millis=-1), "cpu_millis"),
        (amounts(memory_mib=2**63), "memory_mib"),
        (amounts(gpus=10**6), "gpus"),
        (amounts(gpu_percent=101), "gpu_percent"),
        (a_job(ports=(PortMapping(0, 80),)), "ports[0].outside"),
        (a_job(training=Training(epochs=0)), "epochs"),
        (a_job(training=Training(estimated_seconds=math.nan)), "estimated_seconds"),
        (a_job(elastic=Elastic(gpus=(-1, 2))), "elastic.gpus[0]"),
        (a_job(notes=("x",) * 33), "spec.submitter.notes: 33 items; give at most 32"),
        (a_job(cluster_notes=("x" * 1001,)), "submitter.cluster_notes[0]: 1001 characters"),
    ],
)
def test_what_is_beyond_a_limit_is_named_with_the_limit(spec: JobSpec, words: str) -> None:
    with pytest.raises(UserError) as caught:
        check(SubmitJob(spec))
    said = str(caught.value)
    assert words in said
    assert said.isascii()
    assert len(said) < 300


@pytest.mark.parametrize(
    "asked",
    [
        CancelJob(("x" * 301,)),
        CancelJob(("1",) * 10_001),
        CancelJob(message="\0"),
        RetryJob(("\udcff",)),
        ChangePriority(10**9),
        ScaleJob(size=0),
        ScaleJob(workers=-1),
        CreateToken(""),
        CreateToken("x" * 301),
        CreateToken("\x1b]0;x\x07"),
        SubmitJob(a_job(), key="x" * 10_001),
    ],
)
def test_every_request_has_limits(asked: Any) -> None:
    with pytest.raises(UserError):
        check(asked)


def test_a_machine_has_limits_as_well() -> None:
    check(NodeConfig("a", "host", port=22))
    with pytest.raises(UserError, match="port: 70000"):
        check(NodeConfig("a", "host", port=70_000))


def test_what_an_older_yard_took_is_still_read_from_its_journal() -> None:
    policy = RunPolicy(timeout_seconds=-5.0, retries=-1)
    spec = JobSpec("a\x1b" + BYTES, (GroupSpec(Command(argv=(BYTES,))),), policy=policy)
    assert decode(JobSpec, json.loads(json.dumps(encode(spec)))) == spec
