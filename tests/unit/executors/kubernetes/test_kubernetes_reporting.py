"""What a training pod has beside its task: the sidecar that prints its reports, and the SDK."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.builders import a_job

from jobyard.executors.kubernetes.manifest import objects_of
from jobyard.executors.kubernetes.reporting import FOLLOW
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.training import Training

SHELLS = [["sh"], ["bash"], ["busybox", "sh"]]


def training_objects(**spec: Any) -> list[dict[str, Any]]:
    return objects_of(SubmittedJob("5e7a11ce", 7, a_job(image="x", training=Training(), **spec)), 1)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_the_sidecar_prints_all_reports_and_ends_when_it_is_told(shell: list[str], tmp_path: Path) -> None:
    if not shutil.which(shell[0]):
        pytest.skip(f"there is no {shell[0]} here")
    script = FOLLOW.replace("/run/jobyard", str(tmp_path))
    sidecar = subprocess.Popen([*shell, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert sidecar.stdout is not None
    with (tmp_path / "spool").open("a") as spool:
        spool.write('{"step": 1}\n')
        spool.flush()
        assert sidecar.stdout.readline() == '{"step": 1}\n'
        spool.write("".join(f'{{"step": {number}, "text": "a\\\\n b"}}\n' for number in range(2, 500)) + '{"torn')
    sidecar.send_signal(signal.SIGTERM)
    rest, _ = sidecar.communicate(timeout=60)
    os.killpg(sidecar.pid, signal.SIGKILL)  # as everything in a container ends with its first process
    lines = rest.splitlines()
    assert lines[-2] == '{"step": 499, "text": "a\\\\n b"}'
    assert (len(lines), lines[-1], sidecar.returncode) == (499, '{"torn', 0)


def test_only_trainings_have_a_sidecar_and_it_is_small() -> None:
    inside = training_objects()[0]["spec"]["template"]["spec"]
    (sidecar,) = inside["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"], sidecar["image"]) == ("reports", "Always", "x")
    assert sidecar["resources"] == {"requests": {"cpu": "0", "memory": "0"}}  # or what fits a node would not fit
    (plain,) = objects_of(SubmittedJob("5e7a11ce", 7, a_job(image="x")), 1)
    assert "initContainers" not in plain["spec"]["template"]["spec"]


def test_the_sdk_comes_in_one_file_that_python_imports_from(tmp_path: Path) -> None:
    job, sdk = training_objects()
    inside = job["spec"]["template"]["spec"]
    assert {"name": "sdk", "configMap": {"name": sdk["metadata"]["name"]}} in inside["volumes"]
    assert (
        'export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}/opt/jobyard/sdk.zip"' in inside["containers"][0]["command"][2]
    )
    path = tmp_path / "sdk.zip"
    path.write_bytes(base64.b64decode(sdk["binaryData"]["sdk.zip"]))
    code = "import jobyard.sdk, kubernetesdlprofile; print(jobyard.sdk.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(path)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(path))
