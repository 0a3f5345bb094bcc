"""Machine targets: which machine is meant by `gpu1`, `ben@gpu3.lab:2222` or `machine.yaml`?"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

from jobyard.errors import UserError, YardError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.documents import parse_documents
from jobyard.manifests.files import read_text
from jobyard.manifests.parts import Part
from jobyard.model.node import NodeConfig

KEYS = ("username", "ip", "port", "ssh_key_path")
SUFFIXES = (".yaml", ".yml")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_WORD = re.compile(r"[^\s@:/\[\]\x00-\x1f-][^\s@:/\[\]\x00-\x1f]*")  # a leading dash would be an option of ssh
_FORMS = "write a name of ~/.ssh/config, USER@HOST:PORT or a machine file such as gpu1.yaml"


@dataclass(frozen=True)
class Looked:
    """Where machine files are looked for. In the current directory any name counts only if `any_name` says so."""

    configured: Path  # the user's own directory of them
    any_name: bool = False  # as execute_batch: `gpu1` may be a file here, not only `gpu1.yaml`

    def candidates(self, target: str) -> Iterator[Path]:
        here = Path(os.path.expanduser(target))
        for path in (here, here.with_name(f"{here.name}.yaml")):
            if self.any_name or path.suffix in SUFFIXES:
                yield path
        for directory in (Path("~/.local/var").expanduser(), self.configured):
            yield from (directory / target, directory / f"{target}.yaml")

    def file_of(self, target: str) -> Path | None:
        return next((path for path in self.candidates(target) if path.is_file()), None)


def sentence_about(target: str, error: YardError) -> str:
    """What is wrong, and with which machine: the name is put before a sentence that does not have it.

    A word of the sentence is no name: machines are called `a`, `all` and `not`, too.
    """
    name = re.escape(target)
    is_named = re.match(rf"(?:node )?{name}:|node {name} ", str(error)) or repr(target) in str(error)
    return str(error) if is_named else f"{target}: {error}"


def config_of(target: str, looked: Looked, *, name: str | None = None, labels: Sequence[str] = ()) -> NodeConfig:
    """How the machine is reached, and the node's id. A machine file wins over a host's name. Raises UserError."""
    config = reached(target, looked)
    config = replace(config, id=name or config.id, labels=tuple(labels))
    if not _ID.fullmatch(config.id):
        given = "--name" if name else target
        raise UserError(
            f"{given}: {config.id!r} cannot be a node's name; give one of letters, digits, `_`, `.` and `-` with --name"
        )
    return config


def reached(target: str, looked: Looked) -> NodeConfig:
    """As `config_of`, but the name is that of the file or the host: it may not be valid for a node."""
    path = looked.file_of(target) if target and "\0" not in target else None
    if path is not None:
        config = config_from_file(path, target)
    elif target.endswith(SUFFIXES) or "/" in target:
        tried = ", ".join(dict.fromkeys(str(candidate) for candidate in looked.candidates(target)))
        raise UserError(f"no machine file {target!r}; looked for {tried}")
    else:
        config = config_from_words(target)
    if config.odd_login:
        raise UserError(f"cannot read {target!r} as a machine: {config.odd_login!r} is no name of a host or user")
    return config


def node_name(text: str) -> str:
    """A valid node name, as similar to this as possible."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).lstrip("_.-")[:60] or "machine"


def config_from_words(target: str) -> NodeConfig:
    """`WORD` is left to ssh as it stands; of `USER@HOST:PORT` the host's first label is the node's name."""
    user, at, place = target.rpartition("@")
    host, port = _host_and_port(place, target)
    if (at and not _WORD.fullmatch(user)) or not (_WORD.fullmatch(host) or _is_address(host)):
        raise UserError(f"cannot read {target!r} as a machine; {_FORMS}")
    is_word = not at and port is None
    node = host if is_word or _is_address(host) else host.split(".")[0]
    return NodeConfig(node, host, user, port)


def _host_and_port(place: str, target: str) -> tuple[str, int | None]:
    if place.startswith("["):
        host, bracket, port = place[1:].partition("]")
        if not bracket or not _is_address(host) or (port and not port.startswith(":")):
            raise UserError(f"cannot read {target!r} as a machine; write an IPv6 address as [::1]:22")
        port = port[1:] if port else ""
        return host, _port(port, target) if port else None
    if place.count(":") > 1:
        if _is_address(place):
            return place, None
        raise UserError(f"cannot read {target!r} as a machine; {_FORMS}")
    host, colon, port = place.partition(":")
    return host, _port(port, target) if colon else None


def _port(text: str, where: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise UserError(f"{where}: {text!r} is not a port; write a number from 1 to 65535")
    return int(text)


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def config_from_file(path: Path, shown: str) -> NodeConfig:
    """A machine file has exactly four keys, all required. Raises UserError with file, line and key."""
    text = read_text(path, SubmitContext(os.getcwd()), "machine file")
    documents = parse_documents(text, shown)
    known = f"known: {', '.join(KEYS)}"
    if len(documents) != 1 or not isinstance(documents[0].value, dict):
        raise UserError(f"{shown}: this is not a machine file; it needs the keys {', '.join(KEYS)}")
    parts = documents[0].value
    for key, part in parts.items():
        if key not in KEYS:
            raise UserError(f"{shown}: line {part.line}: unknown key {key!r}; {known}")
    if missing := [key for key in KEYS if key not in parts]:
        raise UserError(f"{shown}: the key {missing[0]!r} is missing; {known}")
    user, host, port, key_path = (_text(key, parts[key]) for key in KEYS)
    if not _WORD.fullmatch(user):
        raise parts["username"].error("username", f"{user!r} is not a user's name")
    if not (_WORD.fullmatch(host) or _is_address(host)):
        raise parts["ip"].error("ip", f"{host!r} is neither a host's name nor an address")
    # Made absolute here: the server that uses the key runs in another directory.
    key_path = os.path.abspath(os.path.expanduser(key_path))
    stem = path.name.removesuffix(".yaml").removesuffix(".yml")
    return NodeConfig(stem, host, user, _port(port, f"{shown}: line {parts['port'].line}: port"), key_path)


def _text(key: str, part: Part) -> str:
    if not isinstance(part.value, str) or part.sort == "null" or not part.value.strip():
        raise part.error(key, f"it must be {'a number' if key == 'port' else 'text'}, not {part.shown}")
    return part.value.strip()


def check_key(config: NodeConfig, shown: str) -> None:
    """For a server on this machine: a missing key gets a better message than ssh's."""
    if config.key_path and not os.access(config.key_path, os.R_OK):
        raise UserError(f"{shown}: ssh_key_path: there is no readable key {config.key_path!r}; name the private key")
