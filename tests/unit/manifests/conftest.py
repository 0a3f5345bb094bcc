from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobyard.manifests.context import SubmitContext
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import JobSpec

Load = Callable[..., JobSpec]


@pytest.fixture
def context(tmp_path: Path) -> SubmitContext:
    return SubmitContext(str(tmp_path), {"HOME": "/home/ada", "TOKEN": "s3cret"}, "ada")


@pytest.fixture
def load(tmp_path: Path, context: SubmitContext) -> Load:
    """Write a text to a file and read it as `yard run FILE` would."""

    def from_text(text: str | bytes, name: str = "job.yaml", overrides: Overrides | None = None) -> JobSpec:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return spec_from_file(Path(name), overrides or Overrides(), context)

    return from_text
