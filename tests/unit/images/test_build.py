"""What is refused around a build, what is warned of, what is used again? With a builder that only notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobyard.errors import BuildFailed, UserError
from jobyard.images import build
from jobyard.images.build import BuildOptions, build_image
from jobyard.images.builders import KNOWN, builder_class
from jobyard.images.docker import build_words
from jobyard.images.names import ImageName, Registry
from jobyard.images.protocol import BuildPlan, Built, Say
from jobyard.images.running import check_build, push_failure, run_logged
from jobyard.model.source import GitState
from tests.images.trees import Tree

DIGEST = f"sha256:{'a1' * 32}"


class NotingBuilder:
    def __init__(self, *, is_remote: bool = False) -> None:
        self.is_remote = is_remote
        self.plans: list[BuildPlan] = []

    def check(self) -> None:
        pass

    def default_dockerfile(self, context: Path) -> Path | None:
        return context / "Dockerfile" if (context / "Dockerfile").exists() else None

    def build(self, plan: BuildPlan, say: Say) -> Built:
        self.plans.append(plan)
        return Built(plan.pull.untagged, DIGEST, plan.pull.tag)


class Fixture:
    """One build of a tree, and what was said."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.said: list[str] = []

    def __call__(self, builder: NotingBuilder, **options: object) -> Built:
        self.said.clear()
        asked = BuildOptions(**{"registry": "lab/team", "context": str(self.tree.path), "user": "ada", **options})  # type: ignore[arg-type]
        return build_image(asked, self.said.append, builder=builder)[0]


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the registry has."""
    images: dict[str, str] = {}
    monkeypatch.setattr(build, "digest_of", lambda name: images.get(str(name)))
    return images


@pytest.fixture
def make(tmp_path: Path, there: dict[str, str]) -> Fixture:
    tree = Tree(tmp_path)
    tree.write("Dockerfile", "FROM scratch\n")
    tree.commit()
    tree.push()
    return Fixture(tree)


def test_a_remote_builder_insists_on_a_clean_and_pushed_tree_and_flags_opt_out(make: Fixture) -> None:
    builder = NotingBuilder(is_remote=True)
    make.tree.write("greeting.txt", "two")
    with pytest.raises(UserError, match=r"changes that no commit has, .*--allow-dirty"):
        make(builder)
    make(builder, allow_dirty=True)
    assert make.said == ["warning: the tree has changes that no commit has: they are not in the image"]
    make.tree.commit()
    with pytest.raises(UserError, match=r"is not pushed to .*--allow-unpushed"):
        make(builder)
    make(builder, allow_unpushed=True)
    assert [plan.push.tag for plan in builder.plans][-1] == make.tree.head
    assert builder.plans[0].push.tag == builder.plans[0].git.commit, "what it builds is the commit, dirty or not"


def test_a_builder_here_only_warns(make: Fixture) -> None:
    make.tree.write("greeting.txt", "two")
    built = make(NotingBuilder())
    assert built.tag.startswith("ada-")
    assert [sentence.partition(":")[0] for sentence in make.said] == ["warning"]
    make(NotingBuilder(), allow_dirty=True)
    assert make.said == []


def test_an_image_that_is_there_is_used_and_a_dirty_one_never_is(make: Fixture, there: dict[str, str]) -> None:
    there[f"lab/team/my_app:{make.tree.head}"] = DIGEST
    builder = NotingBuilder()
    assert make(builder, pull_registry="inside:5000") == Built("inside:5000/my_app", DIGEST, make.tree.head, True)
    assert "is used again" in make.said[0]
    assert builder.plans == []
    make(builder, rebuild=True)
    make.tree.write("more", "")
    make(builder)
    assert len(builder.plans) == 2


def test_a_dockerfile_outside_the_tree_is_in_no_commit(make: Fixture, tmp_path: Path) -> None:
    outside, link = tmp_path / "Other", make.tree.path / "Link"
    outside.write_text("FROM scratch\n")
    link.symlink_to(outside)
    make.tree.commit()
    make.tree.push()
    for path in (outside, link):
        assert make(NotingBuilder(), dockerfile=str(path)).tag.startswith("ada-")
        with pytest.raises(UserError, match="is not in the commit"):
            make(NotingBuilder(is_remote=True), dockerfile=str(path))
    (tmp_path / "way").symlink_to(make.tree.path)
    builder = NotingBuilder(is_remote=True)
    make(builder, dockerfile=str(tmp_path / "way" / "Dockerfile"))
    assert builder.plans[0].dockerfile_in_context == "Dockerfile"


def test_a_dockerfile_that_git_ignores_or_that_is_only_added_is_in_no_commit(
    make: Fixture, there: dict[str, str]
) -> None:
    make.tree.write(".gitignore", "own.*\n")
    (make.tree.path / "link").symlink_to("own.file")
    make.tree.commit()
    make.tree.push()
    ignored = make.tree.write("own.file", "FROM scratch\n")
    for path in (ignored, make.tree.path / "link"):
        assert make(NotingBuilder(), dockerfile=str(path)).tag.startswith("ada-")
        with pytest.raises(UserError, match=r"is not in the commit, and docker builds that; add it, and commit"):
            make(NotingBuilder(is_remote=True), dockerfile=str(path))
    added = make.tree.write("Added", "FROM scratch\n")
    make.tree.git("add", "Added")
    with pytest.raises(UserError, match="is not in the commit"):
        make(NotingBuilder(is_remote=True), dockerfile=str(added), allow_dirty=True)


def test_a_dockerfile_of_a_submodule_is_in_the_commit(make: Fixture, tmp_path: Path) -> None:
    other = Tree(tmp_path / "other")
    other.write("Dockerfile", "FROM scratch\n")
    other.commit()
    other.push()
    make.tree.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.bare), "parts")
    make.tree.commit()
    make.tree.push()
    builder = NotingBuilder(is_remote=True)
    make(builder, dockerfile=str(make.tree.path / "parts" / "Dockerfile"))
    assert builder.plans[0].push.tag.startswith(make.tree.head)


@pytest.mark.parametrize(
    ("registry", "image", "name"),
    [
        ("", "ghcr.io/org/train:1", "ghcr.io/org/train"),
        ("registry.lab/team", "registry.lab/team/train", "registry.lab/team/train"),
        ("registry.lab", "registry.lab/team/train", "registry.lab/team/train"),
        ("registry.lab/team", "registry.lab/teams/train", "registry.lab/team/teams/train"),
        ("registry.lab/team", "team/train", "registry.lab/team/team/train"),
        ("registry.lab/team", "ghcr.io/team/train", "registry.lab/team/team/train"),
    ],
)
def test_an_image_that_names_its_registry_does_not_name_it_twice(
    make: Fixture, registry: str, image: str, name: str
) -> None:
    assert make(NotingBuilder(), registry=registry, image=image).name == name


def test_who_is_asked_before_a_build_hears_the_name_and_may_refuse_it(make: Fixture, there: dict[str, str]) -> None:
    builder, heard = NotingBuilder(), list[str]()

    def refuse(name: str) -> None:
        heard.append(name)
        raise UserError("no room")

    options = BuildOptions(registry="lab/team", pull_registry="inside:5000", context=str(make.tree.path))
    with pytest.raises(UserError, match="no room"):
        build_image(options, make.said.append, builder=builder, approve=refuse)
    assert (heard, builder.plans) == (["inside:5000/my_app"], [])
    there[f"lab/team/my_app:{make.tree.head}"] = DIGEST
    build_image(options, make.said.append, builder=builder, approve=refuse)
    assert len(heard) == 1, "nothing is built: the job itself is asked about at once"


def test_a_value_that_the_shell_has_is_not_in_the_list_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "sesame")
    name = ImageName(Registry("lab"), "app", "1")
    words = build_words(
        BuildPlan(
            tmp_path, tmp_path / "Dockerfile", name, name, GitState("0" * 40), build_args={"TOKEN": "sesame", "A": "b"}
        )
    )
    assert "--build-arg=TOKEN" in words
    assert "--build-arg=A=b" in words


def test_a_remote_builder_may_have_a_registry_that_is_hidden_from_here(
    make: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(name: ImageName) -> str | None:
        raise UserError(f"the registry {name.registry.host} cannot be reached")

    monkeypatch.setattr(build, "digest_of", unreachable)
    make(NotingBuilder(is_remote=True), pull_registry="inside:5000")
    assert "cannot be known: the registry lab cannot be reached" in make.said[0]
    with pytest.raises(UserError, match="the registry lab cannot be reached"):
        make(NotingBuilder())


def test_the_commit_goes_along_as_argument_and_label(make: Fixture) -> None:
    builder = NotingBuilder()
    make(builder, build_args={"A": "1"})
    (plan,) = builder.plans
    assert plan.build_args == {"COMMIT_HASH": make.tree.head, "A": "1"}
    assert plan.labels["org.opencontainers.image.revision"] == make.tree.head
    assert plan.dockerfile_in_context == "Dockerfile"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"registry": ""}, "no registry to push to; name one with --registry"),
        ({"registry": "Not A Registry"}, "is not a registry"),
        ({"context": "/no/such/place"}, "is not a directory"),
        ({"dockerfile": "/no/such/Dockerfile"}, "there is no Dockerfile '/no/such/Dockerfile'"),
        ({"context": "/"}, "there is no Dockerfile in /"),
        ({"image": "???"}, "no image can be named after '"),
    ],
)
def test_what_cannot_be_built_is_refused_before_anything_is_done(
    make: Fixture, options: dict[str, str], sentence: str
) -> None:
    builder = NotingBuilder()
    with pytest.raises(UserError) as raised:
        make(builder, **options)
    assert sentence in str(raised.value)
    assert builder.plans == []


def test_every_builder_of_the_table_can_be_loaded_and_others_are_refused_with_the_names_of_those() -> None:
    for name in KNOWN:
        assert hasattr(builder_class(name), "build")
    with pytest.raises(UserError, match=r"no builder 'bazel'; known: docker"):
        builder_class("bazel")


@pytest.mark.parametrize(
    "line",
    [
        "failed to reach build target nope in Dockerfile",  # docker's engine
        'ERROR: failed to solve: target stage "nope" could not be found',  # buildx
        'Error: The target "nope" was not found in the provided Dockerfile',  # buildah
    ],
)
def test_a_missing_stage_is_understood_from_every_tool(tmp_path: Path, line: str) -> None:
    name = ImageName(Registry("lab"), "app", "1")
    plan = BuildPlan(tmp_path, tmp_path / "Dockerfile", name, name, GitState("0" * 40), target="nope")
    with pytest.raises(UserError, match="has no stage 'nope'"):
        check_build(plan, 1, ("Step 1/2", line))
    check_build(plan, 0, (line,))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("denied: requested access to the resource is denied", "refused lab/app"),
        ("unauthorized: authentication required", "refused lab/app"),
        ("unexpected status from PUT request: 403 Forbidden", "refused lab/app"),
        ('Get "https://lab/v2/": dial tcp 10.0.0.1:443: connect: connection refused', "cannot be reached for the push"),
        ("received unexpected HTTP status: 500 Internal Server Error", "was not pushed to lab"),
    ],
)
def test_why_a_push_failed_is_told_apart(line: str, words: str) -> None:
    error = push_failure(ImageName(Registry("lab"), "app", "1"), ("The push refers to repository [lab/app]", line))
    assert isinstance(error, BuildFailed)
    assert words in str(error)
    assert line in str(error)


def test_a_program_is_heard_line_by_line_and_its_last_lines_are_kept() -> None:
    said: list[str] = []
    code, last = run_logged(["sh", "-c", "seq 1 30; printf 'a\\rb\\n' >&2; exit 3"], said.append)
    assert code == 3
    assert said == [*map(str, range(1, 31)), "b"]
    assert last == tuple(said[-20:])
