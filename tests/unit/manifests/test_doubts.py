"""What a job may ask for, but hardly means."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import a_job

from jobyard.manifests.context import SubmitContext
from jobyard.manifests.overrides import Overrides, apply

if TYPE_CHECKING:
    from tests.unit.manifests.conftest import Load

LITTLE = "20 MiB of a GPU's memory is very little; a number without a unit is MiB, write 20G for GiB"


@pytest.mark.parametrize(("text", "notes"), [("20", (LITTLE,)), ("20G", ()), ("20480", ()), ("256", ())])
def test_so_little_memory_of_a_gpu_is_likely_meant_in_another_unit(
    text: str, notes: tuple[str, ...], context: SubmitContext, load: Load
) -> None:
    assert apply(a_job(), Overrides(gpu_mem=text), context).submitter.notes == notes
    assert load(f"command: x\nresources: {{gpu_memory: {text}}}\n").submitter.notes == notes


def test_it_is_told_on_a_cluster_too(context: SubmitContext) -> None:
    spec = a_job(gpus=1)
    spec = replace(spec, submitter=replace(spec.submitter, notes=("here",), cluster_notes=("there",)))
    told = apply(spec, Overrides(gpu_mem="20"), context).submitter
    assert (told.notes, told.cluster_notes) == (("here", LITTLE), ("there", LITTLE))
