"""Does the SDK run wherever a training script runs?"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import jobyard

SOURCE = Path(jobyard.__file__).parent.parent
CALLBACKS = {"lightning.py": "lightning", "keras.py": "keras", "huggingface.py": "transformers"}
FILES = sorted([*(SOURCE / "jobyard" / "sdk").glob("*.py"), *(SOURCE / "kubernetesdlprofile").glob("*.py")])
OLD_PYTHON = next((str(path) for path in Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8")), "/usr/bin/python3.8")
TRAIN = """
import sys
import venv
from jobyard.sdk import yard_job
from kubernetesdlprofile import kubeprofiler
job = yard_job()
for epoch in job.epochs(2):
    job.step(loss=1)
    job.saved()
profiler = kubeprofiler.KubeProfiler()
profiler.start_epoch(); profiler.measure(); profiler.end_epoch(); profiler.end()
print(sys.version_info[:2], job.epochs_done, job.checkpoint_dir.name)
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_imports_only_the_standard_library_the_sdk_and_its_own_framework(path: Path) -> None:
    own = {"jobyard.sdk", "jobyard.agent_protocol.exit_codes"}
    if path.parent.name == "kubernetesdlprofile":
        own.add("kubernetesdlprofile")
    for name in imports(path):
        is_framework = path.name in CALLBACKS and name.split(".")[0] in (CALLBACKS[path.name], "pytorch_lightning")
        is_own = any(name == each or name.startswith(each + ".") for each in own)
        assert is_framework or is_own or name.split(".")[0] in sys.stdlib_module_names


def imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
    return names


def test_importing_the_sdk_brings_in_next_to_nothing() -> None:
    script = "import os, sys; before = set(sys.modules); import jobyard.sdk; print(*sorted(set(sys.modules) - before))"
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-S", "-c", script]
    brought = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()
    others = {name for name in brought if name.split(".")[0] != "jobyard"}
    assert others <= {"__future__", "atexit", "math"}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The SDK alone, as the agent puts it on a task's path."""
    target = tmp_path / "sdk"
    shutil.copytree(SOURCE / "jobyard" / "sdk", target / "jobyard" / "sdk")
    shutil.copytree(SOURCE / "jobyard" / "agent_protocol", target / "jobyard" / "agent_protocol")
    shutil.copytree(SOURCE / "kubernetesdlprofile", target / "kubernetesdlprofile")
    (target / "jobyard" / "__init__.py").write_text("")
    return target


@pytest.mark.parametrize("python", [sys.executable, OLD_PYTHON])
def test_a_copy_on_the_path_is_all_it_needs(copied: Path, python: str, tmp_path: Path) -> None:
    if not os.path.exists(python):
        pytest.skip("there is no Python 3.8 here")
    env = {"PYTHONPATH": str(copied), "YARD_SPOOL": str(tmp_path / "spool")}
    command = [python, "-S", "-W", "error", "-c", TRAIN]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.endswith(" 2 checkpoints\n")
    assert (tmp_path / "spool").read_text().count('"t":"epoch"') == 2


WHICH = "from kubernetesdlprofile import kubeprofiler; print(getattr(kubeprofiler, 'WHOSE', 'ours'))"


@pytest.fixture
def with_original(tmp_path: Path) -> Path:
    """A Python into which another package of the drop-in's name was installed; the directory where that is."""
    venv.create(tmp_path / "venv", with_pip=False)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    put_original(site)
    return site


def put_original(directory: Path) -> None:
    package = directory / "kubernetesdlprofile"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "kubeprofiler.py").write_text("WHOSE = 'original'\n")


def test_of_two_installed_modules_ours_wins_unless_the_original_is_nearer(
    copied: Path, with_original: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script" / "train.py"
    script.parent.mkdir()
    script.write_text(WHICH)

    def whose(path: str) -> str:
        command = [str(tmp_path / "venv/bin/python"), str(script)]
        done = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert whose("") == "original"  # it is installed
    assert whose(str(copied)) == "ours"
    assert whose(f"{with_original}:{copied}") == "original"  # as the agent adds ours to a PYTHONPATH that names it
    put_original(script.parent)
    assert whose(str(copied)) == "original"
