"""What the controllers and the kubelet make of our objects, as far as a pod's environment and command go.

Follows JobSet 0.11 (`labelAndAnnotateObject`), the Job controller of 1.36 and its expansion of `$(NAME)`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

Object = dict[str, Any]
NODE = "node-1"
_FIELD = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class PlayedPod(NamedTuple):
    group: str
    replica: int
    completion: int
    env: dict[str, str]
    command: list[str]
    host: str

    def run(self, files: dict[str, str], directory: Path) -> dict[str, str]:
        """The environment that its command finds; the command must be `env -0`."""
        for name, text in files.items():
            (directory / name).write_text(text)
        words = [word.replace("/etc/jobyard", str(directory)) for word in self.command]
        done = subprocess.run(words, env={"PATH": "/usr/bin:/bin", **self.env}, capture_output=True, check=True)
        pairs = (pair.partition("=") for pair in done.stdout.decode().split("\0") if pair)
        return {name: value for name, _, value in pairs}


def pods_of(objects: list[Object], failures: int = 0) -> Iterator[PlayedPod]:
    first = objects[0]
    name = first["metadata"]["name"]
    if first["kind"] == "Job":
        group = first["spec"]["template"]["spec"]["containers"][0]["name"]
        for completion in range(first["spec"].get("completions", 1)):
            yield _pod(first["spec"], {}, group, 0, completion, failures, f"{name}-{completion}")
        return
    if first["kind"] == "PyTorchJob":
        yield from _workers_of(first)
        return
    replicated = first["spec"]["replicatedJobs"]
    everyone = sum(each["replicas"] for each in replicated)
    before = 0
    for each in replicated:
        for replica in range(each["replicas"]):
            labels = {
                "replicatedjob-name": each["name"],
                "replicatedjob-replicas": str(each["replicas"]),
                "global-replicas": str(everyone),
                "job-index": str(replica),
                "job-global-index": str(before + replica),
            }
            labels = {f"jobset.sigs.k8s.io/{key}": value for key, value in labels.items()}
            for completion in range(each["template"]["spec"]["completions"]):
                host = f"{name}-{each['name']}-{replica}-{completion}.{name}"
                yield _pod(each["template"]["spec"], labels, each["name"], replica, completion, failures, host)
        before += each["replicas"]


def _workers_of(job: Object) -> Iterator[PlayedPod]:
    """As training-operator 1.9 makes them (pytorch/envvar.go): its variables come behind ours."""
    name, replicas = job["metadata"]["name"], job["spec"]["pytorchReplicaSpecs"]
    size = sum(each["replicas"] for each in replicas.values())
    rank = 0
    for kind, each in replicas.items():
        for index in range(each["replicas"]):
            env = {"MASTER_PORT": "23456", "PET_MASTER_PORT": "23456"}
            env |= {"MASTER_ADDR": f"{name}-master-0", "PET_MASTER_ADDR": f"{name}-master-0", "WORLD_SIZE": str(size)}
            env |= {"RANK": str(rank), "PET_NODE_RANK": str(rank), "PET_NNODES": str(size), "PYTHONUNBUFFERED": "1"}
            template = json.loads(json.dumps(each["template"]))
            (container,) = template["spec"]["containers"]
            container["env"] += [{"name": key, "value": value} for key, value in env.items()]
            host = f"{name}-{kind.lower()}-{index}"
            yield _pod({"template": template}, {}, "task", 0, rank, 0, host)
            rank += 1


def files_of(objects: list[Object]) -> dict[str, str]:
    return next((dict(each["data"]) for each in objects if each["kind"] == "ConfigMap" and "data" in each), {})


def expanded(text: str, known: dict[str, str]) -> str:
    """Kubernetes' rule: `$$` is a `$`, `$(NAME)` the variable if there is one and else itself."""

    def replaced(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return known.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replaced, text)


def _pod(
    spec: Object, labels: dict[str, str], group: str, replica: int, completion: int, failures: int, host: str
) -> PlayedPod:
    template = spec["template"]
    metadata = {
        "labels": {
            **template["metadata"].get("labels", {}),
            **labels,
            "batch.kubernetes.io/job-completion-index": str(completion),
        },
        "annotations": {
            **template["metadata"].get("annotations", {}),
            "batch.kubernetes.io/job-index-failure-count": str(failures),
        },
    }
    (container,) = template["spec"]["containers"]
    env: dict[str, str] = {}
    for variable in container["env"]:
        assert variable["name"] not in env
        if "value" in variable:
            env[variable["name"]] = expanded(variable["value"], env)
            continue
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        if path == "spec.nodeName":
            env[variable["name"]] = NODE
            continue
        match = _FIELD.fullmatch(path)
        assert match, path
        env[variable["name"]] = metadata[match[1]].get(match[2], "")  # as the kubelet has it
    command = [expanded(word, env) for word in container["command"]]
    return PlayedPod(group, replica, completion, env, command, host)
