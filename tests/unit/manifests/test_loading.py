"""Which way of writing a job down is this file?"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jobyard.errors import UserError

if TYPE_CHECKING:
    from tests.unit.manifests.conftest import Load


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"


@pytest.mark.parametrize(
    ("name", "text", "source"),
    [
        ("a.yaml", "command: ls", "native"),
        ("a.YML", "command: ls", "native"),
        ("a.json", '{"command": "ls"}', "native"),
        ("a.txt", "ls", "batch"),
        ("a", "command: ls", "native"),
        ("stdin", "name: x\ncommand: echo y\nretries: 1\n", "native"),
        ("stdin", "---\n# why\ncommand:\n- echo\n- y\nenv: {\n  A: b\n}\n", "native"),
        ("stdin", "groups:\n  a:\n    command: |\n      cd x\n      make\n", "native"),
        ("stdin", "command : x\ncommand : y", "batch"),
        ("stdin", "command -v x\n: nothing", "batch"),
        ("stdin", "command: x\npython train.py", "batch"),
        ("stdin", "echo command: x\nname: y", "batch"),
        ("stdin", "name: x\nretries: 1", "batch"),
        ("b.txt", "echo kind: x", "batch"),
        ("stdin", ' {"command": "ls"}\n', "native"),
        ("stdin", "{ ls; }", "batch"),
    ],
)
def test_a_file_is_told_by_content_and_name(name: str, text: str, source: str, load: Load) -> None:
    assert load(text, name).submitter.source == source


@pytest.mark.parametrize(
    ("wrong", "says"), [("retrys: 1", "stdin: line 2: unknown key 'retrys'.*retries"), ("env: {a", "stdin: line ")]
)
def test_a_mistake_in_a_manifest_makes_no_list_of_it(load: Load, wrong: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load(f"command: echo y\n{wrong}\n", "stdin")


@pytest.mark.parametrize("name", ["pod.yaml", "pod"])
@pytest.mark.parametrize("text", [POD, '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}'])
def test_a_kubernetes_object_names_where_it_can_run(name: str, text: str, load: Load) -> None:
    with pytest.raises(UserError, match="kind: a Pod runs on a Kubernetes cluster only; add --on kubernetes"):
        load(text, name)


def test_a_plain_command_does_not_pay_for_yaml() -> None:
    imports = "import sys, jobyard.manifests.load, jobyard.manifests.command"
    code = f"{imports}; print({{'yaml', 'subprocess'}} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout.strip() == "set()"
