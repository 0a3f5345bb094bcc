"""Deployment: which job does a deployed manifest describe, and what did it get?"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from jobyard.compat.genai.errors import NotPossible
from jobyard.compat.genai.service import Service
from jobyard.console import harmless
from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import JobSpec, State
from jobyard.model.training import Training
from jobyard.wire.views import JobView

PLACING_SECONDS = 10.0  # how long to wait for its placement; a yard that can place it does so within one second
POLL_SECONDS = 0.1


def spec_to_deploy(file: str, context: SubmitContext, cluster: str) -> JobSpec:
    """Raises UserError with one sentence. A job with a range may be stopped and restarted at another size."""
    if file != "-" and not os.path.lexists(os.path.expanduser(file)):
        raise UserError(f"--filename: there is no file {file!r}")
    if file != "-" and not os.path.isfile(os.path.expanduser(file)):
        raise UserError(f"--filename: {file!r} is not a file")
    with _as_document(file) as path:
        spec = spec_from_file(path, Overrides(on=cluster), context)
    if not spec.kubernetes.manifest:
        raise UserError(f"{file}: it is no Kubernetes object; deploy takes a Pod, a Job or a PyTorchJob")
    spec = spec.with_shell({})
    if spec.elastic is None:
        return spec
    return replace(spec, training=replace(spec.training or Training(), preemptible=True))


@contextmanager
def _as_document(file: str) -> Iterator[Path]:
    """Whatever the file's name is: it must be YAML or JSON."""
    if Path(file).suffix in (".yaml", ".yml", ".json"):
        yield Path(file)
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"{'stdin' if file == '-' else Path(file).name}.yaml"
        path.write_bytes(sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes())
        yield path


def deploy(service: Service, spec: JobSpec) -> str:
    """Submit it; what it got, or why it waits, in one sentence. Raises NotPossible where one of its name is there."""
    known = next((each for each in service.records() if each.job_name == spec.name and not each.has_ended), None)
    if known is not None:
        raise NotPossible(f"job {spec.name} exists already ({known.status}); `delete -n {spec.name}` makes room for it")
    view = service.client.submit(spec)
    deadline = time.monotonic() + PLACING_SECONDS
    while view.state is State.PENDING and not view.message and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        view = service.client.job(view.id)
    return sentence_of(view)


def sentence_of(view: JobView) -> str:
    name = f"{view.name} ({view.id})"
    if view.state is State.PENDING:
        return f"{name} waits: {harmless(view.message) or 'it is being placed'}"
    if view.state.is_final:
        why = f": {harmless(view.message)}" if view.message else ""
        return f"{name} has ended ({view.state.value.lower()}){why}"
    if view.training and view.training.gpus_range:
        low, high = view.training.gpus_range
        return f"{name} gets {_gpus(view.training.gpus)} of {low}..{high}"
    return f"{name} gets {_gpus(sum(group.resources.gpus * group.count * group.completions for group in view.groups))}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"
