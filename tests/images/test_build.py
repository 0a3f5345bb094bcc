"""What does `yard build` make of a git tree, with a real engine and a real registry?"""

from __future__ import annotations

import json
import re
import subprocess
from urllib.request import urlopen

import pytest

from tests.images.pushed import PINNED, digest_in, manifest_request
from tests.images.servers import Engine, RegistryServer
from tests.images.trees import Tree
from tests.marks import long
from tests.yards import TemporaryYard


@pytest.fixture(params=["docker", *long("podman")])
def builder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def yard(builder: str, request: pytest.FixtureRequest) -> TemporaryYard:
    found: TemporaryYard = request.getfixturevalue(f"{builder}_yard")
    return found


def test_a_clean_tree_becomes_an_image_named_by_its_digest_and_tagged_with_its_commit(
    builder: str, yard: TemporaryYard, registry: RegistryServer, tree: Tree
) -> None:
    done = yard.ok("build", "--builder", builder, cwd=tree.path)
    found = PINNED.fullmatch(done.out)
    assert found is not None
    assert found["name"] == f"{registry.address}/team/my_app"
    assert digest_in(registry, "team/my_app", tree.head) == found["digest"]
    assert f"hello from {tree.head}" in done.err, "the log streams to stderr, and the commit is a build argument"
    assert "DOCKER_BUILDKIT" not in done.err, "advice about a variable that nobody has set"
    assert "warning" not in done.err.lower().replace("[warning]", "")
    labels = config_in(registry, "team/my_app", tree.head)["config"]["Labels"]
    assert labels["org.opencontainers.image.revision"] == tree.head


def test_an_image_that_exists_for_the_commit_is_used_again_unless_asked_otherwise(
    builder: str, yard: TemporaryYard, tree: Tree
) -> None:
    words = ["build", "--builder", builder]
    first = yard.ok(*words, cwd=tree.path)
    second = yard.ok(*words, cwd=tree.path)
    assert second.out == first.out
    assert "is used again" in second.err
    assert "hello from" not in second.err
    third = yard.ok(*words, "--rebuild", cwd=tree.path)
    assert "is used again" not in third.err
    assert yard.json(*words, cwd=tree.path)["is_reused"] is True


def test_other_arguments_and_another_stage_are_another_image(builder: str, yard: TemporaryYard, tree: Tree) -> None:
    words = ["build", "--builder", builder]
    plain = yard.json(*words, cwd=tree.path)
    greeting = yard.json(*words, "--build-arg", "GREETING=salut", cwd=tree.path)
    stage = yard.json(*words, "--target", "base", cwd=tree.path)
    assert plain["tag"] == tree.head
    assert len({plain["digest"], greeting["digest"], stage["digest"]}) == 3
    assert len({plain["tag"], greeting["tag"], stage["tag"]}) == 3
    assert not greeting["is_reused"]
    assert not stage["is_reused"]


def test_a_dirty_tree_is_built_with_a_warning_under_a_tag_of_the_users_own(
    builder: str, yard: TemporaryYard, tree: Tree
) -> None:
    tree.write("greeting.txt", "two\n")
    done = yard.ok("build", "--builder", builder, "-o", "json", cwd=tree.path)
    assert "warning: the tree has changes that no commit has" in done.err
    assert re.fullmatch(r"[\w.-]+-[0-9a-f]{8}", done.json["tag"])
    assert tree.head not in done.json["tag"]
    quiet = yard.ok("build", "--builder", builder, "--allow-dirty", cwd=tree.path)
    assert "warning" not in quiet.err.lower().replace("[warning]", "")
    assert quiet.out != "", "it is never taken for the same"


def test_a_commit_that_is_not_pushed_is_built_with_a_warning(builder: str, yard: TemporaryYard, tree: Tree) -> None:
    tree.write("greeting.txt", "three\n")
    tree.commit()
    done = yard.ok("build", "--builder", builder, "-q", cwd=tree.path)
    assert "is not pushed to" in done.err
    again = yard.ok("build", "--builder", builder, "-q", "--rebuild", "--allow-unpushed", cwd=tree.path)
    assert "pushed" not in again.err


def test_who_pulls_the_image_may_know_the_registry_by_another_address(
    builder: str, yard: TemporaryYard, tree: Tree
) -> None:
    done = yard.ok("build", "--builder", builder, "--pull-registry", "registry.inside:5000/team", cwd=tree.path)
    assert done.out.startswith("registry.inside:5000/team/my_app@sha256:")


def test_a_failed_build_shows_its_last_lines_and_exits_with_1(builder: str, yard: TemporaryYard, tree: Tree) -> None:
    tree.write("Dockerfile", 'FROM scratch\nCOPY busybox /bin/busybox\nRUN ["/bin/busybox", "cat", "/no-such-file"]\n')
    tree.commit()
    done = yard.run("build", "--builder", builder, "--quiet", cwd=tree.path)
    assert done.code == 1
    assert "/no-such-file" in done.err
    assert done.err.splitlines()[-1].startswith("yard: the image was not built: ")
    assert done.out == ""


def test_a_stage_that_does_not_exist_is_a_bad_request(builder: str, yard: TemporaryYard, tree: Tree) -> None:
    done = yard.run("build", "--builder", builder, "--target", "nope", cwd=tree.path)
    assert done.code == 2
    assert "has no stage 'nope'" in done.err.splitlines()[-1]


def test_another_dockerfile_and_another_directory_can_be_built(builder: str, yard: TemporaryYard, tree: Tree) -> None:
    tree.write("parts/one/build.docker", "FROM scratch\nCOPY data.txt /data.txt\n")
    tree.write("parts/one/data.txt", "data")
    tree.commit()
    words = ["--context", "parts/one", "-f", "parts/one/build.docker"]
    found = yard.json("build", "--builder", builder, *words, cwd=tree.path)
    assert found["name"].endswith("/team/one")
    assert found["tag"].startswith(f"{tree.head}-"), "the commit alone does not say which part it is"
    assert found["git"]["subdir"] == "parts/one"


def test_a_push_that_is_refused_is_one_sentence_and_exit_code_1(
    builder: str, yard: TemporaryYard, tree: Tree, closed_registry: RegistryServer
) -> None:
    done = yard.run("build", "--builder", builder, "--registry", closed_registry.address, cwd=tree.path)
    assert done.code == 1
    assert f"the registry {closed_registry.address} refused" in done.err.splitlines()[-1]


def test_who_is_logged_in_may_push_and_is_recognised_when_the_image_is_there(
    builder: str, yard: TemporaryYard, tree: Tree, closed_registry: RegistryServer
) -> None:
    folder = yard.home / ".docker"
    folder.mkdir()
    auth = {"auths": {closed_registry.address: {"auth": "YWRhOnNlc2FtZQ=="}}}  # ada:sesame
    (folder / "config.json").write_text(json.dumps(auth))
    words = ["build", "--builder", builder, "--registry", closed_registry.address]
    assert not yard.json(*words, cwd=tree.path)["is_reused"]
    assert yard.json(*words, cwd=tree.path)["is_reused"]


def test_the_image_that_docker_built_runs(docker_yard: TemporaryYard, engine: Engine, tree: Tree) -> None:
    pinned = docker_yard.ok("build", cwd=tree.path).out.strip()
    words = ["docker", "--host", engine.host, "run", "--rm", "--network=none", pinned]
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == f"hello from {tree.head}\n"


def test_an_engine_that_does_not_run_is_a_bad_request(docker_yard: TemporaryYard, tree: Tree) -> None:
    done = docker_yard.run("build", cwd=tree.path, env={"DOCKER_HOST": "unix:///nowhere/docker.sock"})
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("yard: the docker engine does not run here")


def config_in(registry: RegistryServer, repository: str, tag: str) -> dict[str, dict[str, dict[str, str]]]:
    with urlopen(manifest_request(registry, repository, tag, "GET")) as answer:
        digest = json.load(answer)["config"]["digest"]
    with urlopen(f"http://{registry.address}/v2/{repository}/blobs/{digest}") as answer:
        config: dict[str, dict[str, dict[str, str]]] = json.load(answer)
        return config
