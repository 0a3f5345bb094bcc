"""Reporting sidecar: how do reports of a training leave its pod, and how does the SDK get in?

A sidecar follows the spool and prints it, so that reports are a container's log: it can be read until the pod is
deleted, also after it has ended. The stop file is written into the same directory.
"""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Mapping
from functools import cache
from typing import Any

from jobyard.agent_protocol import sdk_files
from jobyard.executors.kubernetes.variables import REPORTS, SDK, SDK_DIRECTORY, unexpanded

Object = dict[str, Any]
CONTAINER = "reports"  # the sidecar, whose log the reports are
VOLUME = "reports"
SDK_VOLUME = "sdk"  # and the end of the ConfigMap's name

# The kubelet stops it after the task has ended. A last line in the spool tells the reader that nothing follows, so
# that it ends when all is printed and not before. The reader then ends the shell itself: busybox would also wait for
# tail, which never ends. Only what both busybox and coreutils have is used.
FOLLOW = f"""cd {REPORTS}
: >> spool
trap 'printf "\\nend\\n" >> spool' TERM
trap 'exit 0' USR1
tail -n +1 -F spool 2> /dev/null | while IFS= read -r line; do
  [ "$line" != end ] || {{ kill -USR1 $$; exit 0; }}
  [ -z "$line" ] || printf '%s\\n' "$line"
done &
wait $!
wait $!
exit 0"""


def sidecar(image: str) -> Object:
    """An init container that goes on: it is there before the task begins and is stopped after it has ended."""
    return {
        "name": CONTAINER,
        "image": image,
        "restartPolicy": "Always",
        "command": ["sh", "-c", unexpanded(FOLLOW)],
        "resources": {"requests": {"cpu": "0", "memory": "0"}},  # it sleeps, and takes nothing of the task's share
        "volumeMounts": [{"name": VOLUME, "mountPath": REPORTS}],
    }


def has_sidecar(pod: Mapping[str, Any]) -> bool:
    return any(container["name"] == CONTAINER for container in pod["spec"].get("initContainers") or ())


def volumes(name: str) -> list[Object]:
    return [
        {"name": VOLUME, "emptyDir": {}},
        {"name": SDK_VOLUME, "configMap": {"name": f"{name}-{SDK_VOLUME}"}},
    ]


def mounts() -> list[Object]:
    return [
        {"name": VOLUME, "mountPath": REPORTS},
        {"name": SDK_VOLUME, "mountPath": SDK_DIRECTORY, "readOnly": True},
    ]


def sdk_map(name: str) -> Object:
    """The ConfigMap with the SDK, so that an image need not have it."""
    data = {SDK.removeprefix(f"{SDK_DIRECTORY}/"): sdk_zip()}
    metadata = {"name": f"{name}-{SDK_VOLUME}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "binaryData": data}


@cache
def sdk_zip() -> str:
    """The same files as agents unpack for tasks, as Python imports them from one file; in base64."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(sdk_files.sources().items()):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return base64.b64encode(target.getvalue()).decode()
