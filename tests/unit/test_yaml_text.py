"""YAML that means far more than it says is refused before anybody walks it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from jobyard import yaml_text
from jobyard.agent_protocol import stop_request
from jobyard.errors import UserError
from jobyard.images.credentials import credentials_for
from jobyard.kubernetes.kubeconfig import ClusterWords, config_here
from jobyard.manifests.documents import parse_documents
from jobyard.manifests.objects import plain
from jobyard.model.node import ClusterConfig
from jobyard.yaml_text import UnreadableYaml, check_files, nodes_of, value_of


def doubling(levels: int, first: str = "[x, x]") -> str:
    """Each line names the one before it twice."""
    lines = [f"l0: &l0 {first}", *(f"l{n}: &l{n} [*l{n - 1}, *l{n - 1}]" for n in range(1, levels))]
    return "\n".join(lines) + "\n"


MERGES = "l0: &l0 {a: 1}\n" + "".join(f"l{n}: &l{n} {{<<: [*l{n - 1}, *l{n - 1}]}}\n" for n in range(1, 40))
LONG_TEXT = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]\n"
CHAIN = "l0: &l0 [x]\n" + "".join(f"l{n}: &l{n} [*l{n - 1}]\n" for n in range(1, 300))
BOMBS = {"lists": doubling(40), "merges": MERGES, "long text": LONG_TEXT}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_few_lines_that_mean_a_billion_values_are_refused(bomb: str) -> None:
    with pytest.raises(UnreadableYaml, match=r"aliases \(\*name\) stand for too much"):
        nodes_of(bomb)


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_every_reader_refuses_a_bomb_with_the_name_of_the_file(bomb: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(bomb)
    with pytest.raises(UserError, match=r"^job\.yaml: its aliases"):
        parse_documents(bomb, "job.yaml")
    with pytest.raises(UserError, match=f"kubeconfig {path} cannot be read: its aliases"):
        config_here(ClusterWords(kubeconfig=str(path)), {})
    with pytest.raises(UserError, match=f"{path}: its aliases"):
        check_files([str(tmp_path / "none"), str(path)])


def test_a_server_refuses_a_kubeconfig_that_is_a_bomb(tmp_path: Path) -> None:
    client = pytest.importorskip("jobyard.kubernetes.api", reason="needs the kubernetes library")
    path = tmp_path / "config"
    path.write_text(BOMBS["merges"])
    with pytest.raises(UserError, match="stand for too much"):
        asyncio.run(client.Api.connect(ClusterConfig("k", str(path), "")))


def test_nothing_outside_the_one_reader_loads_yaml() -> None:
    package = Path(yaml_text.__file__).parent
    words = ("yaml.safe_load", "yaml.load", "yaml.compose", "yaml.parse", "yaml.scan", "yaml.full_load")
    readers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(word in path.read_text() for word in words)
    }
    assert readers == {"yaml_text.py"}


@pytest.mark.parametrize("text", ["a: " + "[" * 5000, "a: " + "{b: " * 200, CHAIN], ids=["lists", "maps", "aliases"])
def test_what_is_nested_too_deeply_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(UnreadableYaml, match=r"^line \d+: nested too deeply to be read; at most 100 levels are taken"):
        nodes_of(text)


def test_what_is_too_long_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "_Loader", None)
    with pytest.raises(UnreadableYaml, match="too long to be read as YAML; at most 16 MiB are taken"):
        nodes_of("#" * (yaml_text.TEXT_MOST + 1))


def test_an_anchor_that_contains_itself_is_refused() -> None:
    with pytest.raises(UnreadableYaml, match="line 1: an anchor that contains itself"):
        value_of("a: &a [*a]")


def test_everyday_aliases_and_merges_are_taken() -> None:
    text = "base: &base {image: x, env: &env [A, B]}\nworkers:\n" + "  - {<<: *base, extra: *env}\n" * 1000
    (document,) = parse_documents(text, "job.yaml")
    workers = plain(document)["workers"]
    assert workers == [{"image": "x", "env": ["A", "B"], "extra": ["A", "B"]}] * 1000
    assert value_of(text)["workers"] == workers


def test_a_long_file_without_aliases_is_taken() -> None:
    lines = [f"echo {n}" for n in range(5000)]
    assert value_of(json.dumps({"lines": lines})) == {"lines": lines}


def test_a_date_that_is_none_and_a_second_document_are_sentences() -> None:
    with pytest.raises(UnreadableYaml, match="not valid YAML: month must be in"):
        value_of("a: 2024-13-45")
    with pytest.raises(UnreadableYaml, match="line 3: a second document"):
        value_of("a: 1\n---\nb: 2\n")
    assert value_of("# nothing\n") is None


def test_json_that_is_nested_without_end_is_passed_over_like_other_damage(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    deep.write_text("[" * 100_000)
    assert stop_request.read(str(deep)) is not None  # a stop file without words is still an order
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DOCKER_CONFIG", str(tmp_path))
        patched.setenv("REGISTRY_AUTH_FILE", str(deep))
        assert credentials_for("registry.example") is None
