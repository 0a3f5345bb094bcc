"""Which machine does a word, a host's name or a file mean?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobyard.errors import UserError
from jobyard.manifests import targets
from jobyard.manifests.targets import Looked, check_key
from jobyard.model.node import NodeConfig

MACHINE = "username: ben\nip: 10.0.0.5\nport: 2222  # not the usual one\nssh_key_path: ~/.ssh/id_lab\n"


def a_machine_file(path: Path, text: str = MACHINE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def config_of(target: str, *, any_name: bool = False, **more: Any) -> NodeConfig:
    return targets.config_of(target, Looked(Path("~/machines").expanduser(), any_name), **more)


@pytest.mark.parametrize(
    ("target", "config"),
    [
        ("gpu1", NodeConfig("gpu1", "gpu1")),
        ("gpu1.lab", NodeConfig("gpu1.lab", "gpu1.lab")),
        ("ben@gpu3.lab", NodeConfig("gpu3", "gpu3.lab", "ben")),
        ("ben@gpu3.lab:2222", NodeConfig("gpu3", "gpu3.lab", "ben", 2222)),
        ("gpu3.lab:2222", NodeConfig("gpu3", "gpu3.lab", "", 2222)),
        ("ben@10.0.0.5", NodeConfig("10.0.0.5", "10.0.0.5", "ben")),
        ("10.0.0.5:22", NodeConfig("10.0.0.5", "10.0.0.5", "", 22)),
    ],
)
def test_words_say_how_a_machine_is_reached_and_what_it_is_called(target: str, config: NodeConfig) -> None:
    assert config_of(target) == config


@pytest.mark.parametrize(
    ("target", "config"),
    [
        ("[2001:db8::1]:2222", NodeConfig("six", "2001:db8::1", "", 2222)),
        ("ben@[2001:db8::1]", NodeConfig("six", "2001:db8::1", "ben")),
        ("fe80::1", NodeConfig("six", "fe80::1")),
    ],
)
def test_an_ipv6_address_needs_a_name(target: str, config: NodeConfig) -> None:
    assert config_of(target, name="six") == config
    with pytest.raises(UserError, match="--name"):
        config_of(target)


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("", "cannot read ''"),
        ("-oProxyCommand=evil", "cannot read"),
        ("a b", "cannot read"),
        ("@host", "cannot read"),
        ("ben@", "cannot read"),
        ("-x@host", "cannot read"),
        ("host:", "not a port"),
        ("host:99999", "not a port"),
        ("host:ssh", "not a port"),
        ("[::1:22", "IPv6"),
        ("[host]:22", "IPv6"),
        ("a:b:c", "cannot read"),
        ("missing.yaml", "no machine file 'missing.yaml'; looked for"),
        ("dir/missing", "no machine file"),
        ("nul\0", "cannot read"),
    ],
)
def test_a_target_that_cannot_be_read_gets_a_sentence(target: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        config_of(target)


def test_a_name_and_labels_are_the_callers() -> None:
    assert config_of("gpu1", name="big", labels=("a100", "lab")) == NodeConfig("big", "gpu1", labels=("a100", "lab"))
    with pytest.raises(UserError, match="cannot be a node's name"):
        config_of("gpu1", name="no/slash")


def test_a_machine_file_has_the_seeds_four_keys(home: Path) -> None:
    a_machine_file(Path("box.yaml"))
    key = str(home / ".ssh/id_lab")
    assert config_of("box.yaml") == NodeConfig("box", "10.0.0.5", "ben", 2222, key)
    assert config_of("box") == NodeConfig("box", "10.0.0.5", "ben", 2222, key)


@pytest.mark.parametrize("place", [".local/var/box", ".local/var/box.yaml", "machines/box.yaml"])
def test_machine_files_are_looked_for_where_the_seed_does_and_in_our_own_place(home: Path, place: str) -> None:
    a_machine_file(home / place)
    assert config_of("box").host == "10.0.0.5"


def test_the_nearest_machine_file_wins(home: Path) -> None:
    a_machine_file(home / ".local/var/box.yaml")
    a_machine_file(Path("box.yaml"), MACHINE.replace("10.0.0.5", "10.0.0.6"))
    assert config_of("box").host == "10.0.0.6"


def test_a_plain_file_of_that_name_here_is_no_machine_unless_asked_for() -> None:
    a_machine_file(Path("box"))
    assert config_of("box") == NodeConfig("box", "box")
    assert config_of("box", any_name=True).host == "10.0.0.5"


def test_a_directory_is_no_machine_file() -> None:
    Path("gpu1.yaml").mkdir()
    with pytest.raises(UserError, match="no machine file"):
        config_of("gpu1.yaml")


def test_a_relative_key_starts_where_the_command_was_typed(home: Path) -> None:
    a_machine_file(Path("box.yaml"), MACHINE.replace("~/.ssh/id_lab", "keys/id"))
    config = config_of("box.yaml")
    assert config.key_path == str(Path.cwd() / "keys/id")
    with pytest.raises(UserError, match="ssh_key_path: there is no readable key"):
        check_key(config, "box.yaml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not a machine file"),
        ("- a\n", "not a machine file"),
        (MACHINE + "hostname: x\n", "line 5: unknown key 'hostname'; known: username, ip, port, ssh_key_path"),
        (MACHINE.replace("port: 2222", ""), "key 'port' is missing; known: username, ip, port, ssh_key_path"),
        (MACHINE.replace("2222", "many"), "line 3: port: 'many' is not a port"),
        (MACHINE.replace("2222", "[22]"), "line 3: port: it must be a number, not a list"),
        (MACHINE.replace("ben", ""), "line 1: username: it must be text, not nothing"),
        (MACHINE.replace("ben", "-oX"), "line 1: username"),
        (MACHINE.replace("10.0.0.5", "a b"), "line 2: ip"),
        (MACHINE.replace("10.0.0.5", "-oProxyCommand=x"), "line 2: ip"),
        ("username: [\n", "not valid YAML"),
        ("username: a\nusername: b\n", "stands twice"),
    ],
)
def test_a_bad_machine_file_gets_file_line_and_key(text: str, complaint: str) -> None:
    a_machine_file(Path("box.yaml"), text)
    with pytest.raises(UserError, match=complaint) as raised:
        config_of("box.yaml")
    assert str(raised.value).startswith("box.yaml: ")


@pytest.mark.parametrize("target", ["-oProxyCommand=x", "a@-oProxyCommand=x", "$(touch x)", "h;touch", "a`b`@h", "a'b"])
def test_what_ssh_or_a_shell_would_take_for_more_than_a_name_is_refused(target: str) -> None:
    with pytest.raises(UserError, match="as a machine"):
        config_of(target, name="evil")
