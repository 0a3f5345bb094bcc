"""Kubernetes objects: which job is an object that a user wrote? It is sent unchanged; we only read what it needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from jobyard.errors import UserError
from jobyard.kubernetes import quantities
from jobyard.kubernetes.gpus import GPU
from jobyard.kubernetes.paths import RESOURCES
from jobyard.manifests.context import SubmitContext, as_notes
from jobyard.manifests.declarations import flags_of, spelled
from jobyard.manifests.files import name_from_file
from jobyard.manifests.job_fields import TRAINING
from jobyard.manifests.overrides import Overrides, apply
from jobyard.manifests.parts import Part
from jobyard.manifests.training import with_gpus
from jobyard.model.container import ContainerSpec
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.kubernetes import KubernetesSpec, Toleration
from jobyard.model.policy import RunPolicy
from jobyard.model.ray import DEFAULT_SUBMITTER
from jobyard.model.resources import Resources
from jobyard.model.submitter import Submitter
from jobyard.yaml_text import value_of

GANGS = frozenset({"PyTorchJob", "RayJob"})
GRACE_SECONDS = 30  # the default of Kubernetes
# Flags that are allowed with a user's own object.
_TAKEN = frozenset({"name", "priority", "after", "retries", "on", *flags_of(TRAINING)})


def refuse_several(documents: list[Part]) -> None:
    """One object is one job; what belongs to it must be in the cluster already."""
    kinds = [each.text_of("kind") or "one without a kind" for each in documents]
    if len(kinds) > 1:
        raise UserError(
            f"{documents[0].file}: line {documents[1].line}: it has {len(kinds)} objects ({', '.join(kinds[:3])});"
            " a job is one of them: create the others with kubectl apply and submit that one alone"
        )


def spec_from_object(document: Part, overrides: Overrides, context: SubmitContext) -> JobSpec:
    """The job that an object and the flags describe. Raises UserError with file, line, field and the way out."""
    kind = _kind(document)
    _refuse_flags(document, overrides)
    metadata = _map(document, "metadata", "")
    name = _text(metadata, "name", "metadata") or _text(metadata, "generateName", "metadata").rstrip("-.")
    namespace = _text(metadata, "namespace", "metadata")
    for key in ("labels", "annotations"):
        _texts(metadata, key, "metadata")
    groups = [_group(*each) for each in _templates(document, kind)]
    if kind == "RayJob":
        groups[0] = replace(groups[0], resources=_with_submitter(document.at("spec"), groups[0].resources))
    if entrypoint := document.at("spec").text_of("entrypoint"):
        groups[0] = replace(groups[0], command=Command(shell=entrypoint))
    if len({group.name for group in groups}) < len(groups):
        raise document.error("spec", "two of its groups have the same name; rename one of them")
    notes = (f"it runs in the namespace {namespace!r} only",) if namespace else ()
    spec = JobSpec(
        name=name or name_from_file(document.file),
        groups=tuple(groups),
        gang=kind in GANGS,
        workdir=context.workdir,
        policy=RunPolicy(grace_seconds=_grace(document, kind)),
        submitter=Submitter(context.user, source="kubernetes", notes=as_notes(notes)),
        kubernetes=KubernetesSpec(kind, manifest=json.dumps(plain(document), separators=(",", ":"))),
        container=ContainerSpec(_image(document, kind)),
    )
    return apply(_with_range(document, spec, kind), overrides, context)


def plain(part: Part) -> Any:
    """The part as JSON has it."""
    match part.value:
        case dict():
            return {key: plain(value) for key, value in part.value.items()}
        case list():
            return [plain(value) for value in part.value]
        case text if part.sort == "text":
            return text
        case text if part.sort == "null":
            return None
        case text:
            value = value_of(text)
            return float(value) if isinstance(value, str) else value


def _kind(document: Part) -> str:
    kind, version = document.text_of("kind"), document.text_of("apiVersion")
    taken = ", ".join(RESOURCES)
    if kind == "List":
        items = document.get("items")
        inside = [each.text_of("kind") for each in items.value] if items and isinstance(items.value, list) else []
        words = f" of {', '.join(inside[:3])}" if inside else ""
        raise document.at("kind").error("kind", f"a List{words} is several objects; submit one of {taken} alone")
    if not kind:
        raise document.at("kind").error("kind", f"is missing; an object with an apiVersion is one of {taken}")
    if kind not in RESOURCES:
        raise document.at("kind").error("kind", f"{kind!r} is no job; a yard takes {taken}")
    if version != RESOURCES[kind].api_version:
        raise document.at("apiVersion").error(
            "apiVersion",
            f"{version!r} is not the version of a {kind} that a yard knows; write {RESOURCES[kind].api_version}",
        )
    return kind


def _refuse_flags(document: Part, overrides: Overrides) -> None:
    kind = document.text_of("kind")
    if "on" not in overrides:
        raise document.at("kind").error("kind", f"a {kind} runs on a Kubernetes cluster only; add --on kubernetes")
    for name in overrides:
        if name not in _TAKEN:
            raise UserError(
                f"the {kind} in {document.file} says itself what its pods are; change it there", field=spelled(name)
            )


Found = tuple[str, int, int, int | None, Part, str]  # name, count, completions, parallelism, pod template, its path


def _templates(document: Part, kind: str) -> Iterator[Found]:
    """The groups of pods that it makes."""
    spec = _map(document, "spec", "", required=True)
    match kind:
        case "Pod":
            yield "", 1, 1, None, document, ""
        case "Job":
            yield ("", 1, *_counts(spec, "spec"), _map(spec, "template", "spec", required=True), "spec.template")
        case "JobSet":
            yield from _replicated(spec)
        case "PyTorchJob":
            replicas = _map(spec, "pytorchReplicaSpecs", "spec", required=True)
            path = "spec.pytorchReplicaSpecs"
            for name, part in _items(replicas, path):
                if name not in ("Master", "Worker"):
                    raise part.error(f"{path}.{name}", "a PyTorchJob has a Master and Workers")
                count = _whole(part, "replicas", f"{path}.{name}", 1)
                template = _map(part, "template", f"{path}.{name}", required=True)
                if count:
                    yield name.lower(), count, 1, None, template, f"{path}.{name}.template"
        case _:
            yield from _ray_groups(spec)


def _replicated(spec: Part) -> Iterator[Found]:
    for path, part in _list(spec, "replicatedJobs", "spec"):
        name = _text(part, "name", path)
        if not name:
            raise part.error(f"{path}.name", "is missing; every replicated job has a name")
        job = _map(_map(part, "template", path, required=True), "spec", f"{path}.template", required=True)
        completions, parallelism = _counts(job, f"{path}.template.spec")
        template = _map(job, "template", f"{path}.template.spec", required=True)
        replicas = _whole(part, "replicas", path, 1)
        if replicas:
            yield name, replicas, completions, parallelism, template, f"{path}.template.spec.template"


def _ray_groups(spec: Part) -> Iterator[Found]:
    if spec.get("clusterSelector") is not None:
        raise spec.at("clusterSelector").error(
            "spec.clusterSelector", "a yard makes the Ray cluster of a job; write rayClusterSpec instead"
        )
    if spec.text_of("shutdownAfterJobFinishes").lower() != "true":
        raise spec.at("shutdownAfterJobFinishes").error(
            "spec.shutdownAfterJobFinishes", "must be true: KubeRay holds no other RayJob back until there is room"
        )
    path = "spec.rayClusterSpec"
    cluster = _map(spec, "rayClusterSpec", "spec", required=True)
    head = _map(cluster, "headGroupSpec", path, required=True)
    template = _map(head, "template", f"{path}.headGroupSpec", required=True)
    yield "head", 1, 1, None, template, f"{path}.headGroupSpec.template"
    if cluster.get("workerGroupSpecs") is None:
        return
    for where, part in _list(cluster, "workerGroupSpecs", path):
        name = _text(part, "groupName", where)
        least = _whole(part, "minReplicas", where, 0)
        count = max(_whole(part, "replicas", where, least), least) * _whole(part, "numOfHosts", where, 1)
        if count:
            template = _map(part, "template", where, required=True)
            yield name or "worker", count, 1, None, template, f"{where}.template"


def _with_submitter(spec: Part, head: Resources) -> Resources:
    """The pod that submits the command has no slot of its own: its resources are counted with the head."""
    if (spec.text_of("submissionMode") or "K8sJobMode") != "K8sJobMode":
        return head
    taken, path = DEFAULT_SUBMITTER, "spec.submitterPodTemplate.spec"
    if spec.get("submitterPodTemplate") is not None:
        pod = _map(_map(spec, "submitterPodTemplate", "spec"), "spec", "spec.submitterPodTemplate", required=True)
        taken = _resources(pod, list(_list(pod, "containers", path, least=0)), path)
    return replace(head, cpu_millis=head.cpu_millis + taken.cpu_millis, memory_mib=head.memory_mib + taken.memory_mib)


def _counts(spec: Part, path: str) -> tuple[int, int | None]:
    """Completions and parallelism of a Job. One that does not say how many must succeed has as many as run at once."""
    parallelism = _whole(spec, "parallelism", path, 1)
    completions = _whole(spec, "completions", path, max(1, parallelism))
    return max(1, completions), min(parallelism, completions) if 0 < parallelism < completions else None


def _group(name: str, count: int, completions: int, parallelism: int | None, template: Part, path: str) -> GroupSpec:
    where = f"{path}.spec" if path else "spec"
    spec = _map(template, "spec", path, required=True)
    containers = list(_list(spec, "containers", where))
    return GroupSpec(
        _command(containers[0][1], containers[0][0]),
        name,
        count,
        completions,
        parallelism,
        _resources(spec, containers, where),
        node_selector=_texts(spec, "nodeSelector", where),
        tolerations=_tolerations(spec, where),
    )


def _command(container: Part, path: str) -> Command:
    """For people: what the container runs."""
    words = [
        _scalar(word, f"{path}.{key}[{index}]")
        for key in ("command", "args")
        for index, word in enumerate(_plain_list(container, key, path))
    ]
    return Command(argv=tuple(words)) if words else Command(shell=f"(as the image {container.text_of('image')} says)")


def _image(document: Part, kind: str) -> str:
    """For people: that of the first container."""
    template = next(iter(_templates(document, kind)))[4]
    containers = template.at("spec", "containers").value
    return containers[0].text_of("image") if isinstance(containers, list) else ""


def _grace(document: Part, kind: str) -> float:
    seconds = (
        _whole(each[4].at("spec"), "terminationGracePeriodSeconds", "spec", GRACE_SECONDS)
        for each in _templates(document, kind)
    )
    return float(max(seconds))


def _resources(spec: Part, containers: list[tuple[str, Part]], path: str) -> Resources:
    """What a pod takes: its containers together, or the largest of those that run before them."""
    own = [_asked(part, where) for where, part in containers]
    before: list[tuple[int, int, int]] = []
    if spec.get("initContainers") is not None:
        for where, part in _list(spec, "initContainers", path, least=0):
            asked = _asked(part, where)
            (own if part.text_of("restartPolicy") == "Always" else before).append(asked)
    cpu, memory, gpus = (sum(each[index] for each in own) for index in range(3))
    for each in before:
        cpu, memory, gpus = max(cpu, each[0]), max(memory, each[1]), max(gpus, each[2])
    return Resources(cpu, memory, gpus)


def _asked(container: Part, path: str) -> tuple[int, int, int]:
    """Requests; where there is none, Kubernetes takes the limit for it."""
    resources = _map(container, "resources", path)
    amounts = {
        **_texts(resources, "limits", f"{path}.resources"),
        **_texts(resources, "requests", f"{path}.resources"),
    }
    try:
        return (
            quantities.asked_cpu_millis(amounts.get("cpu", "0"), f"{path}.resources.cpu"),
            quantities.asked_mib(amounts.get("memory", "0"), f"{path}.resources.memory"),
            quantities.asked_whole(amounts.get(GPU, "0"), f"{path}.resources.{GPU}"),
        )
    except UserError as error:
        raise UserError(f"{container.file}: line {resources.line}: {error}") from None


def _with_range(document: Part, spec: JobSpec, kind: str) -> JobSpec:
    """Requests and limits of GPUs that differ mean a range: so many at least, so many at most."""
    ranges = [found for each in _templates(document, kind) if (found := _gpu_range(each[4], each[5]))]
    if not ranges:
        return spec
    path, part, span = ranges[0]
    if len(spec.groups) > 1 or spec.size > 1 or kind in ("JobSet", "RayJob"):
        raise part.error(path, "a range of GPUs needs a job of one pod; make requests and limits the same")
    if len(ranges) > 1 or not 1 <= span[0] < span[1]:
        raise part.error(path, f"requests {span[0]} to limits {span[1]} GPUs is no range; begin with at least 1")
    group = replace(spec.groups[0], resources=replace(spec.groups[0].resources, gpus=span[0]))
    return with_gpus(replace(spec, groups=(group,)), span)


def _gpu_range(template: Part, path: str) -> tuple[str, Part, tuple[int, int]] | None:
    where = f"{path}.spec" if path else "spec"
    least = most = 0
    found = None
    for inside, container in _list(template.at("spec"), "containers", where):
        resources = _map(container, "resources", inside)
        texts = {key: _texts(resources, key, f"{inside}.resources") for key in ("requests", "limits")}
        low, high = (
            quantities.asked_whole(text.get(GPU, "0"), f"{inside}.resources.{key}") for key, text in texts.items()
        )
        has_both = all((resources.get(key) or resources).get(GPU) is not None for key in ("requests", "limits"))
        if has_both and low != high:
            found = (f"{inside}.resources", resources)
        if not has_both:  # one of them alone means both
            low = high = max(low, high)
        least, most = least + low, most + high
    return (*found, (least, most)) if found else None


# What parts there are, and of which sort they must be.


def _map(part: Part, key: str, path: str, *, required: bool = False) -> Part:
    found = part.get(key)
    where = f"{path}.{key}" if path else key
    if found is None or found.sort == "null":
        if required:
            raise part.error(where, "is missing")
        return Part({}, "map", part.file, part.line)
    if not isinstance(found.value, dict):
        raise found.error(where, f"must be a mapping, not {found.shown}")
    return found


def _items(part: Part, path: str) -> Iterator[tuple[str, Part]]:
    assert isinstance(part.value, dict)
    for name, value in part.value.items():
        if not isinstance(value.value, dict):
            raise value.error(f"{path}.{name}", f"must be a mapping, not {value.shown}")
        yield name, value


def _plain_list(part: Part, key: str, path: str) -> list[Part]:
    found = part.get(key)
    if found is None or found.sort == "null":
        return []
    if not isinstance(found.value, list):
        raise found.error(f"{path}.{key}", f"must be a list, not {found.shown}")
    return found.value


def _list(part: Part, key: str, path: str, least: int = 1) -> Iterator[tuple[str, Part]]:
    """Of mappings, each with its path."""
    items = _plain_list(part, key, path)
    if len(items) < least:
        raise part.error(f"{path}.{key}", "is missing or empty; there must be at least one")
    for index, item in enumerate(items):
        where = f"{path}.{key}[{index}]"
        if not isinstance(item.value, dict):
            raise item.error(where, f"must be a mapping, not {item.shown}")
        yield where, item


def _scalar(part: Part, path: str) -> str:
    if not isinstance(part.value, str):
        raise part.error(path, f"must be text, not {part.shown}")
    return part.value


def _text(part: Part, key: str, path: str) -> str:
    found = part.get(key)
    if found is None or found.sort == "null":
        return ""
    if found.sort != "text":
        raise found.error(f"{path}.{key}", f"must be text, not {found.shown}; put it in quotes")
    return _scalar(found, f"{path}.{key}")


def _texts(part: Part, key: str, path: str) -> dict[str, str]:
    found = _map(part, key, path)
    assert isinstance(found.value, dict)
    return {name: _scalar(value, f"{path}.{key}.{name}") for name, value in found.value.items()}


def _whole(part: Part, key: str, path: str, default: int) -> int:
    found = part.get(key)
    if found is None or found.sort == "null":
        return default
    value = plain(found) if found.sort == "whole" else None
    if not isinstance(value, int) or not 0 <= value < 2**31:
        raise found.error(f"{path}.{key}", f"must be a whole number, 0 or more, not {found.shown}")
    return value


def _tolerations(spec: Part, path: str) -> tuple[Toleration, ...]:
    found = []
    for where, part in _list(spec, "tolerations", path, least=0):
        said = {key: _text(part, key, where) for key in ("key", "operator", "value", "effect")}
        found.append(Toleration(**{**said, "operator": said["operator"] or "Equal"}))
    return tuple(found)
