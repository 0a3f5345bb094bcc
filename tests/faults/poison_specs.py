"""Random specs, right and wrong, for every entrance. What they run is harmless: true, false, exit, printf."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

ODD_TEXTS = [
    *("", " ", "\0", "a\0b", "\ud800", "\udcff", "²", "\x1b[31m", "../..", "-", "--", "a\nb", "{}"),
    "x" * 5000,
]
ODD_VALUES: list[Any] = [
    *(None, True, -1, 0, 3, 2**31, 2**63, 10**30, 0.5, -5.0, 1e308, float("nan"), float("inf")),
    *([], {}, [[]], [[0, 1, 0]]),
    *ODD_TEXTS,
]
ODD_VARIABLES = {
    "MASTER_PORT": "abc",
    "MASTER_ADDR": "²",
    "RANK": "first",
    "WORLD_SIZE": "-1",
    "CUDA_VISIBLE_DEVICES": "GPU-none",
    "PATH": "",
    "TF_CONFIG": "{",
    "A=B": "c",
    "": "nameless",
}
COMMANDS = ["true", "false", "exit 3", "printf '%s\\n' here", "printf '\\377'"]


def spec(chance: random.Random, workdir: Path) -> dict[str, Any]:
    """A spec that is right, as REST takes it."""
    group: dict[str, Any] = {"command": {"shell": chance.choice(COMMANDS)}, "resources": {"cpu_millis": 10}}
    body: dict[str, Any] = {"name": f"odd-{chance.randrange(1000)}", "workdir": str(workdir)}
    body["policy"] = {"grace_seconds": 0.5}
    match chance.randrange(4):
        case 0:
            group |= {"array": {"pieces": [[0, chance.randrange(1, 4), 1]]}}
            group["completions"] = group["array"]["pieces"][0][1] + 1
        case 1:
            group["count"] = 2
            body |= {"gang": True, "training": {"epochs": 1}}
        case 2:
            group["command"] = {"argv": ["printf", "%s", "a"]}
            body["policy"] |= {"timeout_seconds": 5.0, "retries": 1}
    return {**body, "env": {}, "groups": [group]}


def poisoned(chance: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    """The same, with one or two odd things in it."""
    body = copy.deepcopy(body)
    for _ in range(chance.randint(1, 2)):
        if chance.random() < 0.3:
            name = chance.choice(list(ODD_VARIABLES))
            body["env"] = {name: ODD_VARIABLES[name]}
            continue
        places = [place for place in _places(body) if place[1] != "workdir"]
        inside, key = chance.choice(places)
        inside[key] = copy.deepcopy(chance.choice(ODD_VALUES))  # the next odd thing may go into it
    if chance.random() < 0.1:
        body[chance.choice(["colour", "²", "spec"])] = chance.choice(ODD_VALUES)
    return body


def _places(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        own: list[tuple[Any, Any]] = [(value, key) for key in value]
        return own + [place for inner in value.values() for place in _places(inner)]
    if isinstance(value, list):
        own = [(value, index) for index in range(len(value))]
        return own + [place for inner in value for place in _places(inner)]
    return []


def words(chance: random.Random) -> list[str]:
    """Of `yard submit`."""
    odd = chance.choice([text for text in ODD_TEXTS if "\0" not in text and "\ud800" not in text])
    flags = [
        ["--workers", "1", "--epochs", "1", "-e", "MASTER_PORT=abc"],
        ["--workers", "2", "--epochs", "1", "-e", f"RANK={odd}"],
        ["--name", odd],
        ["-c", chance.choice(["0.01", "-1", "nan", "²"])],
        ["-a", chance.choice(["0-2", "0-2:0", "²", "5-1", "0-99999999999"])],
        ["--timeout", chance.choice(["1s", "-5", "nan", "inf"])],
        ["--retries", chance.choice(["1", "-1", "x"])],
        ["--mem", chance.choice(["16M", "-1", "1e99", "²"])],
        ["--priority", chance.choice(["1", "99999999999", "x"])],
        ["--after", odd or "nobody"],
        [],
    ]
    command = chance.choice([["true"], ["false"], ["printf", "%s", odd], ["bash", "-c", "exit 3"]])
    return [*chance.choice(flags), "--", *command]


def manifest(chance: random.Random, kind: str) -> str:
    """A native manifest, an AIchorManifest or a Kubernetes object, most of them with something odd in it."""
    native = {"name": "odd", "command": chance.choice(COMMANDS), "resources": {"cpus": 0.01, "memory": "16M"}}
    aichor = {
        "kind": "AIchorManifest",
        "apiVersion": "0.2.1",
        "spec": {
            "operator": "jobset",
            "image": "none",
            "command": chance.choice(["true", "false"]),
            "types": {"worker": {"count": 1, "resources": {"cpus": 1, "ramRatio": 2, "shmSizeGB": 0}}},
        },
    }
    container = {"name": "main", "image": "none", "command": ["true"]}
    kubernetes = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "odd"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    body: dict[str, Any] = {"native": native, "aichor": aichor, "kubernetes": kubernetes}[kind]
    if chance.random() < 0.7:
        inside, key = chance.choice(_places(body))
        inside[key] = copy.deepcopy(chance.choice(ODD_VALUES))  # the next odd thing may go into it
    return json.dumps(body)  # which is YAML


def batch_file(chance: random.Random) -> bytes:
    lines = [chance.choice(["true", "false", "exit 3", "printf x", "", "# nothing", "'", "²"]) for _ in range(3)]
    text = "\n".join(lines).encode() + b"\n"
    return chance.choice([text, text, b"", b"\n\n", b"printf '\xff'\n", b"true\0\n", text[:-1]])
