"""`yard build`, and jobs whose image is built first: what is asked of the builder, and what the yard is sent."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.builders import with_words
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Asked, Said, StandIn, problem
from tests.unit.client.views import a_job_view

from jobyard.cli import building
from jobyard.cli.reaching import NamespaceAccess
from jobyard.errors import BuildFailed
from jobyard.images.build import BuildOptions
from jobyard.images.protocol import Built, Say
from jobyard.model.codec import decode
from jobyard.model.job import JobSpec
from jobyard.model.source import GitState
from jobyard.wire.views import ClusterView, PlanView

DIGEST = f"sha256:{'a1' * 32}"
GIT = GitState("3f" * 20, "main", "git@lab:x.git", is_dirty=True, is_pushed=True, diff="the diff")
MANIFEST = """\
kind: AIchorManifest
apiVersion: 0.2.1
builder:
  image: demo
  dockerfile: ./Dockerfile
  context: sub
  target: final
  buildArgs: {A: b, C: true}
spec:
  operator: jobset
  image: demo
  command: python3 main.py
  types: {worker: {resources: {cpus: 1, memory: 1}}}
"""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[BuildOptions]:
    """What was built; every build gives the same image."""
    asked: list[BuildOptions] = []

    def build(options: BuildOptions, say: Say, *, log: Say, approve: Say | None, **_: object) -> tuple[Built, GitState]:
        if approve:
            approve("lab/team/demo")
        asked.append(options)
        log("Step 1/1 : FROM scratch")
        return Built("lab/team/demo", DIGEST, "tag"), GIT

    monkeypatch.setattr(building, "build_image", build)
    return asked


@pytest.fixture
def planned() -> list[JobSpec]:
    """What the yard was asked about, and not sent."""
    return []


@pytest.fixture
def submitted(stand_in: StandIn, planned: list[JobSpec]) -> list[JobSpec]:
    jobs: list[JobSpec] = []

    def take(asked: Asked) -> Said:
        spec = decode(JobSpec, asked.body["spec"])
        if asked.body.get("dry_run"):
            planned.append(spec)
            return Said(data=PlanView(a_job_view()))
        jobs.append(spec)
        return Said(status=201, data=a_job_view())

    stand_in.on("POST /jobs", take)
    stand_in.on("GET /clusters", Said(data=(ClusterView("kubernetes"), ClusterView("lab"))))
    return jobs


def test_build_prints_the_pinned_name_alone_on_stdout(yard: Yard, built: list[BuildOptions]) -> None:
    result = yard("build", "--registry", "lab/team", "--build-arg", "A=b=c", "--target", "t", "-f", "x", "--rebuild")
    assert (result.code, result.out) == (0, f"lab/team/demo@{DIGEST}\n")
    assert "Step 1/1" in result.err
    (options,) = built
    assert (options.builder, options.registry, options.dockerfile, options.target) == ("docker", "lab/team", "x", "t")
    assert options.build_args == {"A": "b=c"}
    assert options.rebuild
    assert "Step" not in yard("build", "-q", "--registry", "lab").err


def test_the_registry_may_stand_in_the_environment(
    yard: Yard, built: list[BuildOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARD_REGISTRY", "lab/team")
    monkeypatch.setenv("YARD_PULL_REGISTRY", "inside:5000")
    yard("build")
    yard("build", "--registry", "other")
    yard("build", "--registry", "lab/team")
    yard("build", "--registry", "other", "--pull-registry", "beside")
    assert [(each.registry, each.pull_registry) for each in built] == [
        ("lab/team", "inside:5000"),
        ("other", ""),  # whose second address nobody said
        ("lab/team", "inside:5000"),
        ("other", "beside"),
    ]


def test_a_manifests_registry_and_then_its_images_go_before_the_environment(
    yard: Yard, built: list[BuildOptions], submitted: list[JobSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARD_PULL_REGISTRY", "inside:5000")
    hosted = MANIFEST.replace("image: demo", "image: ghcr.io/org/demo")
    registered = hosted.replace("  target", "  registry: eu.example\n  target")
    same = MANIFEST.replace("image: demo", "image: lab.example/team/demo")
    for text in (MANIFEST, hosted, registered, same):
        monkeypatch.setenv("YARD_REGISTRY", "http://lab.example/team" if text is same else "lab/team")
        Path("job.yaml").write_text(text)
        assert yard("submit", "-d", "--build", "--on", "kubernetes", "job.yaml").code == 0
    assert [(each.registry, each.image, each.pull_registry) for each in built] == [
        ("lab/team", "demo", "inside:5000"),
        ("", "ghcr.io/org/demo", ""),
        ("eu.example", "ghcr.io/org/demo", ""),
        ("http://lab.example/team", "lab.example/team/demo", "inside:5000"),  # with how it is spoken to
    ]


# -- the cluster that kaniko builds in


@pytest.fixture
def places(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> list[NamespaceAccess]:
    """Where kaniko was to build, of a yard with two clusters."""
    found: list[NamespaceAccess] = []

    @contextmanager
    def reached_cluster(place: NamespaceAccess) -> Iterator[object]:
        found.append(place)
        yield object()

    monkeypatch.setattr(building, "pods_module", lambda _: SimpleNamespace(reached_cluster=reached_cluster))
    stand_in.on("GET /clusters", Said(data=(ClusterView("first"), ClusterView("lab", namespace="ml"))))
    return found


def test_kaniko_builds_in_the_cluster_that_on_names_or_in_the_first(
    yard: Yard, built: list[BuildOptions], places: list[NamespaceAccess]
) -> None:
    for words in ([], ["--on", "lab"], ["--on", "kubernetes"]):
        result = yard("build", "--registry", "lab", "--builder", "kaniko", *words)
        assert result.code == 0, result.err
    assert [(place.cluster, place.namespace) for place in places] == [("first", ""), ("lab", "ml"), ("first", "")]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--builder", "kaniko", "--on", "lap"], "yard: --on lap: no cluster 'lap'; known: first, kubernetes, lab\n"),
        (
            ["--on", "lab"],
            "yard: --on lab: docker builds on this machine, and kaniko in a cluster; say --builder kaniko\n",
        ),
    ],
)
def test_a_cluster_that_is_misspelt_or_for_nothing_is_refused(
    yard: Yard, built: list[BuildOptions], places: list[NamespaceAccess], words: list[str], sentence: str
) -> None:
    result = yard("build", "--registry", "lab", *words)
    assert (result.code, result.err) == (2, sentence)
    assert (built, places) == ([], [])


def test_a_quiet_build_that_fails_shows_its_last_lines(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(options: BuildOptions, say: Say, *, log: Say, **_: object) -> tuple[Built, GitState]:
        raise BuildFailed("the image was not built: no such file", ("\x1b[31mStep 3/3", "no such file"))

    monkeypatch.setattr(building, "build_image", fail)
    result = yard("build", "-q", "--registry", "lab")
    assert result.code == 1
    assert result.err == "Step 3/3\nno such file\nyard: the image was not built: no such file\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_build_that_still_tidies_up(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    tidied = []

    def build(options: BuildOptions, say: Say, *, log: Say, **_: object) -> tuple[Built, GitState]:
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(number)  # a second one does not stop the tidying
            tidied.append(True)
        return Built("lab/team/demo", DIGEST, "tag"), GIT

    monkeypatch.setattr(building, "build_image", build)
    before = signal.getsignal(number)
    assert yard("build", "--registry", "lab").code == 128 + number
    assert tidied
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--build-arg", "NOT_SET_ANYWHERE"], "has no value"),
        (["--build-arg", "=x"], "has no value"),
        (["--builder", "bazel"], "bazel"),
    ],
)
def test_bad_words_are_one_sentence(yard: Yard, words: list[str], sentence: str) -> None:
    result = yard("build", "--registry", "lab", *words)
    assert result.code == 2
    assert sentence in result.err
    assert result.err.count("\n") == 1


def test_a_build_argument_alone_comes_from_the_shell(
    yard: Yard, built: list[BuildOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "from here")
    yard("build", "--registry", "lab", "--build-arg", "TOKEN")
    assert built[0].build_args == {"TOKEN": "from here"}


def test_a_manifest_is_built_as_its_builder_block_says_and_runs_by_digest(
    yard: Yard, built: list[BuildOptions], submitted: list[JobSpec]
) -> None:
    Path("sub").mkdir()
    Path("sub/Dockerfile").touch()
    Path("job.yaml").write_text(MANIFEST)
    result = yard("submit", "-d", "--build", "--registry", "lab/team", "--on", "lab", "job.yaml")
    assert result.code == 0, result.err
    (options,) = built
    assert (options.image, options.context, options.target) == ("demo", "sub", "final")
    assert Path(options.dockerfile).samefile("sub/Dockerfile")
    assert options.build_args == {"A": "b", "C": "true"}
    (spec,) = submitted
    assert (spec.container.image, spec.container.git, spec.container.build) == (f"lab/team/demo@{DIGEST}", GIT, None)
    assert not any("built" in note for note in spec.submitter.notes)


def test_a_manifest_that_names_a_registry_is_built_on_a_cluster_without_being_asked(
    yard: Yard, built: list[BuildOptions], submitted: list[JobSpec]
) -> None:
    Path("job.yaml").write_text(MANIFEST.replace("  target", "  registry: eu.example\n  target"))
    assert yard("submit", "--on", "kubernetes", "job.yaml").code == 0
    assert built[0].registry == "eu.example"
    yard("submit", "job.yaml")
    assert len(built) == 1, "plain processes use no image"
    assert [spec.container.image for spec in submitted] == [f"lab/team/demo@{DIGEST}", "demo"]
    assert submitted[1].container.build is None


def test_containers_on_machines_run_what_was_built_too(
    yard: Yard, built: list[BuildOptions], submitted: list[JobSpec]
) -> None:
    Path("job.yaml").write_text(MANIFEST)
    assert yard("submit", "-d", "--build", "--container", "--registry", "lab", "job.yaml").code == 0
    assert (submitted[0].container.on_machines, submitted[0].container.image) == (True, f"lab/team/demo@{DIGEST}")


def test_without_being_asked_and_without_a_registry_a_manifests_image_is_taken_as_it_is(
    yard: Yard, built: list[BuildOptions], submitted: list[JobSpec]
) -> None:
    Path("job.yaml").write_text(MANIFEST)
    yard("submit", "--on", "kubernetes", "job.yaml")
    assert built == []
    assert submitted[0].container.image == "demo"
    assert any("is not built" in note for note in submitted[0].submitter.cluster_notes or ())


def test_the_image_of_an_earlier_job_is_used_where_the_manifest_skips_the_build(
    yard: Yard, stand_in: StandIn, built: list[BuildOptions], submitted: list[JobSpec]
) -> None:
    skipping = "  skipBuild: {enabled: true, experimentID: j9}\n"
    Path("job.yaml").write_text(MANIFEST.replace("  target", f"{skipping}  target"))
    stand_in.on(
        "GET /jobs/j9", Said(data=a_job_view(image="lab/demo@sha256:00")), problem(404, "not_found", "no job j9")
    )
    words = ["submit", "-d", "--build", "--registry", "lab", "--on", "kubernetes", "job.yaml"]
    assert yard(*words).code == 0
    assert (submitted[0].container.image, built) == ("lab/demo@sha256:00", [])
    assert "one is built" in yard(*words).err
    assert submitted[1].container.image == f"lab/team/demo@{DIGEST}"
    Path("job.yaml").write_text(Path("job.yaml").read_text().replace("j9}", "j9, failIfNotFound: true}"))
    result = yard(*words)
    assert result.code == 2
    assert "there is no job 'j9' with an image" in result.err


def test_build_contradicts_an_image_and_plain_processes(
    yard: Yard, built: list[BuildOptions], submitted: list[JobSpec]
) -> None:
    result = yard("submit", "--build", "--registry", "lab", "--on", "kubernetes", "--image", "demo", "--", "true")
    assert result.code == 2
    assert "contradict each other" in result.err
    Path("job.yaml").write_text(MANIFEST)
    result = yard("submit", "--build", "--registry", "lab", "job.yaml")
    assert result.code == 2
    assert "runs as plain processes" in result.err
    result = yard("submit", "--build", "--registry", "lab", "--on", "kubernets", "--", "true")
    assert result.code == 2
    assert "--on kubernets is no cluster; name one (kubernetes, lab), or add --container" in result.err
    assert (built, submitted) == ([], [])


# -- what is refused before a build


@pytest.mark.parametrize("words", [["--on", "lab"], ["--container"]])
def test_the_yard_is_asked_about_the_job_before_its_image_is_built(
    yard: Yard, built: list[BuildOptions], submitted: list[JobSpec], planned: list[JobSpec], words: list[str]
) -> None:
    result = yard("submit", "-d", "--build", "--registry", "lab", *words, "--gpus", "2", "--", "true")
    assert result.code == 0, result.err
    ((before,), (after,)) = planned, submitted
    assert before.container.image == f"lab/team/demo@sha256:{'0' * 64}", "named as it will be, for who judges by names"
    assert with_words(before, image=after.container.image, git=after.container.git) == after
    assert before.container.git is None


def test_a_job_that_the_yard_would_refuse_is_not_built(
    yard: Yard, stand_in: StandIn, built: list[BuildOptions], submitted: list[JobSpec]
) -> None:
    stand_in.on("POST /jobs", problem(400, "bad_request", "job 'true' can never run: no node has 64 GPUs"))
    result = yard("submit", "--build", "--registry", "lab", "--gpus", "64", "--", "true")
    assert (result.code, result.err) == (2, "yard: job 'true' can never run: no node has 64 GPUs\n")
    assert built == []


def test_without_a_kubeconfig_nothing_is_built(
    yard: Yard,
    stand_in: StandIn,
    built: list[BuildOptions],
    submitted: list[JobSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    stand_in.on("GET /clusters", Said(data=()))
    stand_in.on("GET /nodes", Said(data=()))
    result = yard("submit", "--build", "--registry", "lab", "--", "true")
    assert result.code == 2
    assert "no kubeconfig" in result.err
    assert built == []


def test_a_webhook_may_refuse_an_image_that_is_not_there_yet(
    yard: Yard, stand_in: StandIn, built: list[BuildOptions], submitted: list[JobSpec]
) -> None:
    said = 'cluster lab refuses the Job: admission webhook "verify" denied the request: no such image'
    stand_in.on("POST /jobs", problem(400, "webhook_refused", said), Said(status=201, data=a_job_view()))
    result = yard("submit", "-d", "--build", "--registry", "lab", "--on", "lab", "--", "true")
    assert result.code == 0, result.err
    assert f"warning: {said}; it is built nevertheless" in result.err
    assert len(built) == 1


def test_show_says_what_an_image_was_built_from(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(image="lab/demo@sha256:00", git=GIT)))
    stand_in.on("GET /jobs/j1/diff", Said(data=b"caf\xe9"))
    shown = yard("show", "j1").out
    assert "3f3f3f3f3f3f on main, with changes" in shown
    assert "git@lab:x.git" in shown


@pytest.mark.parametrize("flag", ["--registry=lab:5000", "--rebuild", "--builder=docker", "-fDockerfile"])
def test_a_flag_of_a_build_without_a_build_is_refused(
    yard: Yard, submitted: list[JobSpec], built: list[BuildOptions], flag: str
) -> None:
    result = yard("submit", flag, "--", "true")
    named = "--file" if flag.startswith("-f") else flag.partition("=")[0]
    sentence = f"{named}: it is for an image that is built first; add --build, or leave {named} out"
    assert (result.code, result.err) == (2, f"yard: {sentence}\n")
    assert (submitted, built) == ([], [])
