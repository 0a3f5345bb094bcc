"""`--build -- CMD`: what the other flags mean then, and files that become Secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.builders import with_words
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn
from tests.unit.client.views import a_job_view

from jobyard.cli import mounted_secrets
from jobyard.cli.mounted_secrets import BYTES_MOST, MountedSecret, SecretFile, read_secrets, refuse_without_pods
from jobyard.cli.session import Session
from jobyard.cli.submission import Submission, with_build_defaults, with_idle_head
from jobyard.cli.submitting import SubmitWords
from jobyard.cli.typed_words import TypedWords
from jobyard.errors import Bug, Unreachable, UserError
from jobyard.manifests.command import spec_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.wire.views import ClusterView


def spec(**flags: object) -> JobSpec:
    asked = with_build_defaults(SubmitWords((), ("python", "train.py"), Overrides(**flags), TypedWords("yard submit")))
    assert asked.command is not None
    return with_idle_head(spec_from_command(asked.command, asked.overrides, SubmitContext("/")))


def test_one_worker_is_a_job_without_cores_and_gpus() -> None:
    for job in (spec(), spec(workers="1")):
        assert (job.on, job.kubernetes.kind, job.gang) == ("kubernetes", "", False)
        (group,) = job.groups
        assert (group.resources.cpu_millis, group.resources.gpus) == (0, 0)


def test_two_workers_are_a_rayjob_whose_head_asks_for_nothing() -> None:
    job = spec(workers="2", gpus="1", cpus="4", min_gpu_mem="47")
    assert job.kubernetes.kind == "RayJob"
    head, worker = job.groups
    assert (head.resources.cpu_millis, head.resources.gpus, head.least_device_mib) == (0, 0, 0)
    assert (worker.count, worker.resources.cpu_millis, worker.resources.gpus) == (2, 4000, 1)
    assert worker.least_device_mib == 47 * 1024


def test_what_is_said_otherwise_stays() -> None:
    assert spec(workers="3", kind="pytorchjob", on="other").kubernetes.kind == "PyTorchJob"
    assert spec(workers="3", kind="pytorchjob", on="other").on == "other"
    on_machines = SubmitWords((), ("true",), Overrides(container=True), TypedWords("yard submit"))
    assert with_build_defaults(on_machines) == on_machines
    manifest = SubmitWords(("job.yaml",), None, Overrides(), TypedWords("yard submit"))
    assert with_build_defaults(manifest) == manifest


def test_a_prefix_begins_the_name() -> None:
    assert spec(name_prefix="exp-7").name == "exp-7-train.py"
    for bad in ("", "7x", "Exp", "x-", "a" * 21):
        with pytest.raises(UserError, match="--name-prefix"):
            spec(name_prefix=bad)


def test_memory_of_gpus_has_a_unit_or_is_in_gib() -> None:
    assert spec(min_gpu_mem="80").groups[0].least_device_mib == 80 * 1024
    assert spec(min_gpu_mem="500MiB").groups[0].least_device_mib == 500
    assert spec(min_gpu_mem="80").groups[0].resources.gpus == 1
    with pytest.raises(UserError, match="of no GPU"):
        spec(min_gpu_mem="80", gpus="0")
    for bad in ("0", "lots"):
        with pytest.raises(UserError, match="--min-gpu-mem"):
            spec(min_gpu_mem=bad)


# -- secrets


@pytest.mark.parametrize("entry", ["token", "=/x", "f=", "f=x", "f=/", "f=/a/../b", "f=/a:b", "f=/a/"])
def test_what_is_no_file_and_path_is_refused(entry: str) -> None:
    with pytest.raises(UserError, match="is not FILE=PATH"):
        read_secrets((entry,))


def test_files_that_cannot_be_secrets_are_refused_in_a_sentence(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * (BYTES_MOST + 1))
    small = tmp_path / "a=b"
    small.write_bytes(b"x" * (BYTES_MOST // 2 + 1))
    for entries, sentence in (
        ((f"{tmp_path}/none=/x",), "No such file"),
        ((f"{tmp_path}=/x",), "directory"),
        ((f"{large}=/x",), "larger than a Secret may be"),
        ((f"{small}=/x", f"{small}=/y"), "more than a Secret holds"),
        ((f"{small}=/x", f"{small}=/x"), "/x is named twice"),
    ):
        with pytest.raises(UserError, match=sentence):
            read_secrets(entries)


def test_the_content_is_not_in_what_a_traceback_would_show(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sesame")
    (secret,) = read_secrets((f"{tmp_path / 'token'}=/etc/token",))
    assert secret.content == b"sesame"
    assert "sesame" not in f"{secret!r} {secret}"


def test_secrets_are_for_pods_that_the_yard_makes(stand_in: StandIn) -> None:
    stand_in.on("GET /clusters", Said(data=(ClusterView("lab"),)))
    job = JobSpec("x", (GroupSpec(Command(("true",))),))
    session = Session(None, "table")
    for bad in (job, replace(job, on="gpu1"), with_words(job, on="lab", on_machines=True)):
        with pytest.raises(UserError, match="runs on machines"):
            refuse_without_pods(session, bad)
    with pytest.raises(UserError, match="names its own"):
        refuse_without_pods(session, with_words(job, on="lab", manifest="{}"))
    refuse_without_pods(session, replace(job, on="lab"))


class NotingCluster:
    """Notes which Secrets there are."""

    namespace = "lab"

    def __init__(self) -> None:
        self.secrets: list[str] = []

    def create_secret(self, secret: dict[str, dict[str, str]]) -> None:
        self.secrets.append(secret["metadata"]["name"])

    def remove_secret(self, name: str) -> None:
        self.secrets.remove(name)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> NotingCluster:
    cluster = NotingCluster()

    @contextmanager
    def reached_cluster(place: object) -> Iterator[NotingCluster]:
        yield cluster

    monkeypatch.setattr(mounted_secrets, "pods_module", lambda _: SimpleNamespace(reached_cluster=reached_cluster))
    monkeypatch.setattr(mounted_secrets, "namespace_named", lambda session, on: None)
    return cluster


def submit(secret: MountedSecret, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    session = SimpleNamespace(client=SimpleNamespace(submit=fail, job=fail))
    spec = JobSpec("x", (GroupSpec(Command(("true",))),), on="lab")
    Submission(SubmitWords((), None, Overrides(), TypedWords("yard submit")), spec, secret).send(session)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [UserError("no"), Bug("oh"), OSError(5, "disk"), RuntimeError()])
def test_a_secret_of_a_job_that_is_not_taken_is_removed(cluster: NotingCluster, error: Exception) -> None:
    with pytest.raises(type(error)):
        submit(MountedSecret([SecretFile(b"sesame", "/x")]), error)
    assert cluster.secrets == []


def test_a_secret_stays_and_is_named_where_the_job_may_be_in(
    cluster: NotingCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = MountedSecret([SecretFile(b"sesame", "/x")])
    with pytest.raises(Unreachable, match=f"nobody answers; .*kubectl -n lab delete configmap {secret.name}"):
        submit(secret, Unreachable("nobody answers"))
    with pytest.raises(KeyboardInterrupt):
        submit(secret, KeyboardInterrupt())
    assert secret.name in capsys.readouterr().err
    assert cluster.secrets == [secret.name, secret.name]


def test_what_cannot_be_tidied_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> None:
        raise Unreachable("nobody answers")

    secret = MountedSecret([SecretFile(b"sesame", "/x")], _job="j1")
    secret.tidy(SimpleNamespace(client=SimpleNamespace(job=fail)), "lab")  # type: ignore[arg-type]
    assert f"Secret {secret.name} may be left behind: nobody answers" in capsys.readouterr().err


def test_output_of_run_is_a_file_and_with_json_the_format(yard: Yard, stand_in: StandIn, home: Path) -> None:
    stand_in.on("POST /jobs", Said(data=a_job_view()))
    assert json.loads(yard("submit", "--output", "json", "--", "true").out)["id"] == "j1"
    assert json.loads(yard("submit", "--output=json", "--", "true").out)["id"] == "j1"
    assert yard("submit", "--output", "logs/%j.out", "--error", "e", "--", "true").code == 0
    staging = stand_in.asked[-1].body["spec"]["staging"]
    assert staging == {"output": f"{home}/here/logs/%j.out", "error": f"{home}/here/e"}
    refused = yard("submit", "--output", "x", "-a", "0-1", "--", "true")
    assert (refused.code, "--output: all 2 tasks would write" in refused.err) == (2, True)
    refused = yard("submit", "--output", "x/%t", "--error", "./x/%a", "--", "true")
    assert (refused.code, "--error: " in refused.err, "is the file of output by another name" in refused.err) == (
        2,
        True,
        True,
    )
