"""The examples are valid, and their work is split without gaps or overlaps."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
import yaml

from jobyard.executors.environment import job_environment, task_environment
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.native import schema
from jobyard.manifests.overrides import Overrides
from jobyard.model.resources import Placement

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
CONTEXT = SubmitContext(str(ROOT), dict(os.environ), "ada")
NATIVE = sorted(path for path in (EXAMPLES / "native").iterdir() if path.suffix in (".yaml", ".json"))
AICHOR = sorted((EXAMPLES / "aichor").glob("manifest.*.yaml"))


@pytest.mark.parametrize("path", NATIVE, ids=lambda path: path.name)
def test_a_native_example_is_valid_for_reader_and_schema(path: Path) -> None:
    assert spec_from_file(path, Overrides(), CONTEXT).submitter.source == "native"
    text = path.read_text()
    jsonschema.validate(json.loads(text) if path.suffix == ".json" else yaml.safe_load(text), schema())


def test_the_batch_example_is_valid() -> None:
    spec = spec_from_file(EXAMPLES / "batch" / "commands.txt", Overrides(), CONTEXT)
    assert (spec.size, spec.policy.retries) == (6, 1)


def test_there_is_a_basic_manifest_and_four_scenarios() -> None:
    names = ["10-1-1", "10-10-10", "10-2-10", "5-1-1", "wkr-heavy-1-1-1"]
    assert [path.name for path in AICHOR] == [f"manifest.{name}.yaml" for name in names]


@pytest.mark.parametrize("path", AICHOR, ids=lambda path: path.name)
def test_every_item_is_worked_on_exactly_once(path: Path) -> None:
    spec = spec_from_file(path, Overrides(cpus="0.1"), CONTEXT)
    assert all(group.resources.memory_mib < 1024 for group in spec.groups)
    script = path.parent / spec.groups[0].command.shell.split()[-1]
    items_of = runpy.run_path(str(script))["items_of"]
    shared = job_environment("j", 1, spec)
    done: Counter[int] = Counter()
    for task in range(spec.size):
        own = task_environment("j", spec, task, 1, Placement("here", spec.groups[0].resources))
        first, last = items_of({**shared, **own})
        done.update(range(first, last + 1))
    assert done == Counter(range(1, 1001))


def test_a_script_says_its_range() -> None:
    env = {"JOB_INDEX": "8", "JOB_COMPLETION_INDEX": "5"}
    script = EXAMPLES / "aichor" / "src" / "main.10-2-10.py"
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "replica 8, completion 5: items 851 to 860\n"
