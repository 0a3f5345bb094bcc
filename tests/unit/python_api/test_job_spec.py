"""Do keywords in Python mean what the keys of a manifest mean, and are they refused in the same words?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import jobyard
from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import JobSpec
from jobyard.model.submitter import Submitter
from jobyard.python_api.field_types import JobFields
from jobyard.python_api.spec import refused_as_said, spec_from
from jobyard.python_api.typed_fields import fields, module

TYPES = Path(jobyard.__file__).parent / "python_api" / "field_types.py"


def asked(what: Any = "echo hello", **said: Any) -> JobSpec:
    return replace(spec_from(what, said, environ={}), submitter=Submitter())


def in_a_manifest(directory: Path, text: str) -> JobSpec:
    path = directory / "echo.yaml"
    path.write_text(f"command: echo hello\n{text}\n")
    return replace(spec_from_file(path, Overrides(), SubmitContext(str(Path.cwd()))), submitter=Submitter())


def test_the_types_are_those_of_the_tables() -> None:
    assert TYPES.read_text() == module(), f"run: python -m jobyard.python_api.typed_fields > {TYPES.name}"
    assert get_type_hints(JobFields).keys() == fields().keys()


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ({"cpus": 0.5, "memory": "2G", "gpus": 1}, "resources: {cpus: 0.5, memory: 2G, gpus: 1}"),
        ({"timeout": 90, "retries": 2, "limit": 3}, "timeout: 90\nretries: 2\nlimit: 3"),
        ({"timeout": "1h30m", "array": "0-9"}, "timeout: 1h30m\narray: 0-9"),
        ({"env": {"A": 1, "B": "two"}, "on": "local", "name": "x"}, "env: {A: 1, B: two}\non: local\nname: x"),
        ({"epochs": 3, "gpus": "1..4"}, "training: {epochs: 3}\nresources: {gpus: 1..4}"),
        ({"after": [3, "afterany:4"], "gang": True, "array": 2}, "after: [3, afterany:4]\ngang: true\narray: 2"),
        ({"workdir": Path("/tmp"), "gpus": None}, "workdir: /tmp"),
    ],
)
def test_a_keyword_is_a_key(tmp_path: Path, said: Mapping[str, Any], written: str) -> None:
    assert asked(**said) == in_a_manifest(tmp_path, written)


def test_a_manifest_is_a_mapping_and_keywords_win_over_it() -> None:
    manifest = {"command": ["echo", 1], "resources": {"cpus": 2, "gpus": 1}, "name": "a"}
    assert asked(manifest, cpus=3) == asked(["echo", 1], cpus=3, gpus=1, name="a")
    assert asked(manifest, cpus=None) == asked(["echo", 1], cpus=2, gpus=1, name="a")


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"cpus": "many"}, "cpus: cannot read 'many' as a number of cores; write 2, 0.5 or 500m"),
        ({"gpu": 1}, "unknown key 'gpu'; did you mean 'gpus'?"),
        ({"inputs": ["a"]}, r"unknown key 'inputs'; write sweep=\{'x': \['a', 'b'\]\}, and \{x\} in the command"),
        ({"epochs": 0}, "epochs: 0 is out of range; write a whole number from 1"),
        ({"array": {1, 2}}, "array: a set is nothing|array: a job cannot hold a set; write text"),
        ({"what": "", "cpus": 1}, "command: is empty; write what to run"),
        ({"what": []}, "command: is an empty list"),
        ({"what": {"comand": "x"}}, "unknown key 'comand'; did you mean 'command'?"),
        ({"what": {"command": "x", "resources": {"cpus": "b"}}}, "resources.cpus: cannot read 'b'"),
        ({"gang": "yes"}, "gang: must be true or false, not the text 'yes'"),
    ],
)
def test_a_refusal_names_the_keyword_and_no_file(said: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=f"^({sentence})"):
        asked(said.pop("what", "echo"), **said)


def test_the_servers_refusals_name_keywords_too() -> None:
    spec = asked(after="7")
    with (
        pytest.raises(UserError, match=r"^after: there is no job 7; `yard ls -a` lists them$"),
        refused_as_said(spec),
    ):
        raise UserError("there is no job 7; `yard ls -a` lists them", field="--after")


def test_the_package_costs_nothing_until_the_yard_is_touched() -> None:
    heavy = "{'asyncio', 'cloudpickle', 'jobyard.client', 'jobyard.manifests', 'typing', 'IPython'}"
    code = f"import sys, jobyard; print({heavy} & set(sys.modules), len([m for m in sys.modules if 'jobyard.' in m]))"
    assert run(code) == "set() 0"


def test_the_yard_costs_no_yaml_no_server_and_no_tables() -> None:
    heavy = "{'yaml', 'click', 'rich', 'fastapi', 'sqlalchemy', 'IPython', 'jobyard.cli', 'jobyard.server'}"
    assert run(f"import sys; from jobyard import Yard; print({heavy} & set(sys.modules))") == "set()"


def test_every_name_of_the_package_is_there_and_is_typed() -> None:
    typed = (Path(jobyard.__file__).with_suffix(".pyi")).read_text()
    names = [name for name in dir(jobyard) if name not in vars(jobyard)]
    assert {"Yard", "Job", "as_completed"} <= set(names)
    for name in names:
        assert getattr(jobyard, name).__name__ == name
        assert f"import {name} as {name}\n" in typed
    with pytest.raises(AttributeError, match="module 'jobyard' has no attribute 'Yrad'"):
        jobyard.Yrad  # type: ignore[attr-defined]  # noqa: B018


def run(code: str) -> str:
    environ = {"PYTHONPATH": ":".join(sys.path)}
    return subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=environ
    ).stdout.strip()
