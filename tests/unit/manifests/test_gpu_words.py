"""How kinds and sizes of GPUs are written, in flags, manifests and lines of Slurm."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders import a_job

from jobyard.manifests.context import SubmitContext
from jobyard.manifests.overrides import Overrides, apply
from jobyard.model.job import GroupSpec
from jobyard.model.training import Elastic


def asked(group: GroupSpec) -> tuple[int, str, int]:
    return group.resources.gpus, group.resources.gpu_kind, group.least_device_mib


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"gpus": "h100:2"}, (2, "h100", 0)),
        ({"gpus": 2, "gpu_type": "h100"}, (2, "h100", 0)),
        ({"gpu_type": "mig-1g.10gb"}, (1, "mig-1g.10gb", 0)),
        ({"gpus": "h100:1", "gpu_type": "h100"}, (1, "h100", 0)),
        ({"gpu_type": "a100-80gb", "min_gpu_mem": "40"}, (1, "a100-80gb", 40960)),
        ({"gpus": "h100:0"}, (0, "", 0)),
    ],
)
def test_flags_say_a_kind_beside_the_number_or_by_itself(
    flags: dict[str, Any], expected: tuple[int, str, int], context: SubmitContext
) -> None:
    assert asked(apply(a_job(), Overrides(**flags), context).groups[0]) == expected


def test_a_range_may_be_of_a_kind(context: SubmitContext) -> None:
    spec = apply(a_job(), Overrides(gpus="h100:1..8"), context)
    assert (asked(spec.groups[0]), spec.elastic) == ((1, "h100", 0), Elastic(gpus=(1, 8)))


GROUPS = """
resources: {gpus: a100:1, min_gpu_mem: 40}
groups:
  all: {command: a}
  none: {command: b, resources: {gpus: 0}}
  other: {command: c, resources: {gpu_type: h100, min_gpu_mem: 70G}}
"""


def test_a_manifests_groups_have_what_the_top_says_and_those_without_gpus_none(load: Any) -> None:
    spec = load(GROUPS, "x.yaml")
    assert {group.name: asked(group) for group in spec.groups} == {
        "all": (1, "a100", 40960),
        "none": (0, "", 0),
        "other": (1, "h100", 71680),
    }


def test_a_flag_wins_over_a_manifest_and_a_plain_number_leaves_its_kind(load: Any) -> None:
    text = "command: true\nresources: {gpus: a100:1}\n"
    assert asked(load(text, "x.yaml", Overrides(gpus="h100:2")).groups[0]) == (2, "h100", 0)
    assert asked(load(text, "x.yaml", Overrides(gpus=2)).groups[0]) == (2, "a100", 0)
    assert asked(load(text, "x.yaml", Overrides(gpus=0)).groups[0]) == (0, "", 0)


@pytest.mark.parametrize("line", ["--gres=gpu:a100:2", "--gpus=a100:2", "-G a100:2", "--gpus-per-node=a100:2"])
def test_a_type_in_lines_of_slurm_is_a_kind(line: str, load: Any) -> None:
    spec = load(f"#!/bin/sh\n#SBATCH {line}\ntrue\n", "x.sh")
    assert (asked(spec.groups[0]), spec.submitter.notes) == ((2, "a100", 0), ())
