"""`--kind`: our own jobs as objects of other operators."""

from __future__ import annotations

import pytest
from tests.unit.manifests.conftest import Load

from jobyard.errors import UserError
from jobyard.manifests.overrides import Overrides
from jobyard.model.kubernetes import Volume

BASE = "command: python train.py\nimage: x\non: kubernetes\n"


def test_a_pytorchjob_is_a_gang_of_the_same_workers(load: Load) -> None:
    spec = load(BASE + "kind: PyTorchJob\nworkers: 3\n")
    assert (spec.kubernetes.kind, spec.gang, spec.size, len(spec.groups)) == ("PyTorchJob", True, 3, 1)
    assert load(BASE, overrides=Overrides(kind="pytorchjob")).gang
    elastic = load(BASE + "kind: pytorchjob\nworkers: 1..4\n").elastic
    assert elastic is not None
    assert elastic.workers == (1, 4)


def test_a_rayjob_has_a_head_and_workers_and_the_range_is_for_ray(load: Load) -> None:
    spec = load(BASE + "workers: 2..4\nresources: {gpus: 1, cpus: 3}\n", overrides=Overrides(kind="rayjob"))
    head, worker = spec.groups
    assert (head.name, head.size, head.resources.gpus) == ("head", 1, 0)
    assert (worker.name, worker.count, worker.count_most, worker.resources.gpus) == ("worker", 2, 4, 1)
    assert (spec.gang, spec.elastic, spec.training) == (True, None, None)
    assert load(BASE + "kind: rayjob\ntraining: {epochs: 3}\n").training is not None
    assert [group.count for group in load(BASE + "kind: rayjob\n").groups] == [1, 1]


def test_volumes_are_claims_and_paths(load: Load) -> None:
    assert load(BASE + "volumes: [data:/data:ro, 'scratch:/s']\n").kubernetes.volumes == (
        Volume("data", "/data", read_only=True),
        Volume("scratch", "/s"),
    )
    spec = load(BASE + "volumes: a:/b\n", overrides=Overrides(volume=("c:/d",)))
    assert spec.kubernetes.volumes == (Volume("c", "/d"),)


@pytest.mark.parametrize(
    ("text", "flags", "says"),
    [
        (BASE + "volumes: data\n", Overrides(), "line 4: volumes: 'data' is not a volume; write CLAIM:PATH"),
        (BASE, Overrides(kind="mpijob"), "--kind: unknown kind 'mpijob'; write pytorchjob or rayjob"),
        (BASE + "kind: Job\n", Overrides(), "line 4: kind: unknown kind 'Job'; write pytorchjob or rayjob"),
        (BASE + "array: 0-3\n", Overrides(kind="rayjob"), "--kind: a RayJob has one command and workers of one kind"),
        (BASE + "kind: rayjob\ngroups: {a: {}, b: {}}\n", Overrides(), "line 4: kind: a RayJob has one command"),
        (
            "command: x\nkind: pytorchjob\n",
            Overrides(),
            "job.yaml: line 2: kind: a PyTorchJob runs on a Kubernetes cluster only; add on: kubernetes",
        ),
        (BASE + "resources: {gpus: 1..4}\n", Overrides(kind="rayjob"), "--kind: the GPUs of a RayJob's workers cannot"),
    ],
)
def test_what_such_an_object_cannot_be_gets_one_sentence(text: str, flags: Overrides, says: str, load: Load) -> None:
    with pytest.raises(UserError) as caught:
        load(text, overrides=flags)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
