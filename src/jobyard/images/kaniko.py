"""Kaniko builder: how is an image built in a cluster? In a pod: git fetches the commit, kaniko builds and pushes it.

No file of this machine is sent there. What the pod needs for a private remote or registry is in the namespace, in two
optional Secrets: `yard-git` (`ssh-privatekey`, or `username` and `password`) and `yard-registry` (`.dockerconfigjson`).
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from jobyard.errors import BuildFailed, Unavailable, UserError, YardError
from jobyard.images.protocol import BuildPlan, Built, Say
from jobyard.images.running import LAST_LINES, check_build, push_failure, reason_of

Object = dict[str, Any]
KANIKO_IMAGE = "gcr.io/kaniko-project/executor:v1.24.0"
GIT_IMAGE = "docker.io/alpine/git:v2.49.1"
FETCH, BUILD = "fetch", "kaniko"
NAMES = ("Dockerfile.kaniko", "Dockerfile")  # the first one that is there
SOURCE = "/kaniko/source"  # kaniko takes nothing below /kaniko into an image
GIT_SECRET, REGISTRY_SECRET = "yard-git", "yard-registry"
GIT_DIRECTORY = "/var/run/yard-git"
LONGEST_SECONDS = 4 * 3600  # a pod whose builder was killed ends after so long
NO_NODE_SECONDS = 600.0  # until a pod that has no node is given up
SILENCE_SECONDS = 60.0  # how long a build survives an API server that does not answer
REMOVE_TRIES = 5
POLL_SECONDS = 0.5
REASON_POLLS = 10  # from the end of a container to the reason in its pod
RETRY_SECONDS = 2.0
HOPELESS = frozenset(
    {"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"}
)
PLAIN_REASONS = frozenset({"Error", "Completed"})  # the program itself ended, and its log says why
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PUSH = re.compile(r"error pushing|failed to push", re.I)
# A server may refuse to hand out a commit by its name alone; then all of the branch is fetched. The password is for the
# remote's own host: a submodule may be anywhere.
FETCH_SCRIPT = f"""\
set -eu
export HOME=/tmp GIT_TERMINAL_PROMPT=0
git config --global --add safe.directory '*'
git config --global advice.detachedHead false
if [ -e {GIT_DIRECTORY}/ssh-privatekey ]; then
    cat {GIT_DIRECTORY}/ssh-privatekey > /tmp/key && chmod 600 /tmp/key
    export GIT_SSH_COMMAND='ssh -i /tmp/key -o StrictHostKeyChecking=accept-new'
fi
if [ -e {GIT_DIRECTORY}/password ] && [ -n "$4" ]; then
    git config --global "credential.$4.helper" \\
        '!f() {{ for key in username password; do echo "$key=$(cat {GIT_DIRECTORY}/$key)"; done; }}; f'
fi
git -c init.defaultBranch=main init --quiet {SOURCE}
cd {SOURCE}
git remote add origin "$1"
git fetch --depth=1 origin "$2" || git fetch origin ${{3:+"$3"}}
git checkout --quiet --detach "$2"
if [ -e .gitmodules ]; then git submodule update --init --recursive --depth=1; fi
"""


class BuildCluster(Protocol):
    """What a builder asks of a cluster, with the rights of the caller.

    Raises UserError in the API server's words, and Unavailable where it does not answer.
    """

    @property
    def namespace(self) -> str: ...

    def create_pod(self, pod: Object) -> None: ...

    def pod(self, name: str) -> Object | None:
        """None: it is gone."""

    def remove_pod(self, name: str) -> None:
        """At once. Gone already: nothing."""

    def log(self, pod: str, container: str) -> Iterator[str]:
        """Its lines from the first one on, as they come, until the container ends or the link does."""


class EndedContainer(NamedTuple):
    """One of a pod's containers, after its end."""

    code: int
    lines: tuple[str, ...]  # the last ones of its log
    message: str  # the last one of its own
    why: str  # it was killed, for example out of memory; empty: it ended by itself


@dataclass(frozen=True)
class KanikoBuilder:
    cluster: BuildCluster
    annotations: Mapping[str, str] = field(default_factory=dict)  # who builds, and where that was asked for
    kaniko_image: str = KANIKO_IMAGE
    git_image: str = GIT_IMAGE
    warn: Say | None = None  # gets a warning about what is left behind; None: the log does
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    is_remote = True

    def check(self) -> None:
        """Nothing to check here: the cluster says at the build whether it accepts the pod."""

    def default_dockerfile(self, context: Path) -> Path | None:
        return next((context / name for name in NAMES if (context / name).is_file()), None)

    def build(self, plan: BuildPlan, say: Say) -> Built:
        """The pod is removed whatever happens, Ctrl-C included."""
        pod = pod_for(plan, self.kaniko_image, self.git_image, self.annotations)
        name = pod["metadata"]["name"]
        try:
            self.cluster.create_pod(pod)
            say(f"pod {name} builds it in namespace {self.cluster.namespace}")
            code, lines, _, why = self._finish(name, FETCH, say)
            if code != 0:
                raise BuildFailed(
                    f"pod {name} could not fetch commit {plan.git.commit[:12]} from {plan.git.remote}: "
                    f"{why or reason_of(lines) or f'exit code {code}'}",
                    lines,
                )
            code, lines, message, why = self._finish(name, BUILD, say)
            if code != 0 and why:
                raise BuildFailed(f"the image was not built, for pod {name} was ended: {why}", lines)
            if code != 0 and any("push permission" in line for line in lines):  # kaniko checks that before it builds
                raise BuildFailed(
                    f"nothing was built, for the registry {plan.push.registry.host} does not take "
                    f"{plan.push.untagged}: {reason_of(lines)}",
                    lines,
                )
            if code != 0 and any(map(_PUSH.search, lines[-3:])):
                raise push_failure(plan.push, lines)
            check_build(plan, code, lines)
            found = _DIGEST.search(message)
            if found is None:
                raise BuildFailed(f"kaniko pushed {plan.push} and does not say its digest", lines)
            return Built(plan.pull.untagged, found[0], tag=plan.pull.tag)
        finally:
            self._remove(name, self.warn or say)

    def _remove(self, name: str, warn: Say) -> None:
        """Retries a cluster that does not answer. A pod that is left is a warning: the build has its own error."""
        for left in reversed(range(REMOVE_TRIES)):
            try:
                self.cluster.remove_pod(name)
                return
            except YardError as error:
                if left and isinstance(error, Unavailable):
                    self.sleep(RETRY_SECONDS)
                    continue
                where = f"-n {self.cluster.namespace}"
                warn(f"warning: pod {name} may be left behind: {error}; remove it: kubectl {where} delete pod {name}")
                return

    def _finish(self, name: str, container: str, say: Say) -> EndedContainer:
        """Raises UserError where the caller may not see its log."""
        last: deque[str] = deque(maxlen=LAST_LINES)
        self._await_begin(name, container, say)
        seen = 0
        while True:
            for number, line in enumerate(self.cluster.log(name, container), 1):
                if number > seen:  # a link that was cut begins again with the first line
                    seen = number
                    last.append(line)
                    say(line)
            state = self._state(name, container)
            if ended := state.get("terminated"):
                code, message = int(ended["exitCode"]), str(ended.get("message") or "")
                return EndedContainer(code, tuple(last), message, self._why_ended(name, ended) if code else "")
            self.sleep(POLL_SECONDS)

    def _why_ended(self, name: str, ended: Object) -> str:
        """Empty: by itself. Of an eviction or a deadline the pod knows, perhaps a moment after its container's end."""
        own = "" if ended.get("reason") in PLAIN_REASONS else _told(ended)
        for _ in range(REASON_POLLS):
            found = self._found(name)
            if found is None:
                return own or "somebody removed it"
            status = found.get("status") or {}
            if own or status.get("phase") == "Failed":
                return _told(status) or own
            self.sleep(POLL_SECONDS)
        return ""

    def _await_begin(self, name: str, container: str, say: Say) -> None:
        is_told, waited = False, 0.0
        while not {"running", "terminated"} & (state := self._state(name, container)).keys():
            waiting = state.get("waiting") or {}
            if waiting.get("reason") in HOPELESS:
                raise BuildFailed(f"pod {name} cannot begin: {waiting.get('message') or waiting['reason']}")
            if why := self._why_nowhere(name):
                if waited >= NO_NODE_SECONDS:
                    raise BuildFailed(f"pod {name} found no node in {NO_NODE_SECONDS / 60:.0f} minutes: {why}")
                if not is_told:
                    is_told = True
                    say(f"pod {name} waits for a node: {why}")
            self.sleep(POLL_SECONDS)
            waited += POLL_SECONDS

    def _why_nowhere(self, name: str) -> str:
        """Empty: it has a node."""
        conditions = self._look(name).get("conditions") or ()
        found = (each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False")
        return next((str(each.get("message") or each.get("reason") or "") for each in found), "")

    def _state(self, name: str, container: str) -> Object:
        """Of a container; empty: nothing is known of it yet. Raises BuildFailed where the pod has ended without it."""
        status = self._look(name)
        statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
        state: Object = next((each.get("state") or {} for each in statuses if each["name"] == container), {})
        if status.get("phase") == "Failed" and "terminated" not in state:
            raise BuildFailed(f"pod {name} was ended: {_told(status) or 'nobody says why'}")
        return state

    def _look(self, name: str) -> Object:
        found = self._found(name)
        if found is None:
            raise BuildFailed(f"pod {name} is gone: somebody removed it")
        status: Object = found.get("status") or {}
        return status

    def _found(self, name: str) -> Object | None:
        since = self.clock()
        while True:
            try:
                return self.cluster.pod(name)
            except Unavailable:
                if self.clock() - since >= SILENCE_SECONDS:
                    raise
            self.sleep(RETRY_SECONDS)


def _told(status: Object) -> str:
    """`Evicted: The node was low on resource: memory`, of a pod or a container; empty: nothing is said."""
    return ": ".join(str(status[word]) for word in ("reason", "message") if status.get(word))


def pod_for(plan: BuildPlan, kaniko_image: str, git_image: str, annotations: Mapping[str, str]) -> Object:
    """Pure but for the name. Raises UserError where a pod could not fetch the commit."""
    remote = fetchable(plan.git.remote)
    fetch = {
        "name": FETCH,
        "image": git_image,
        "command": [
            *("sh", "-c", _literal(FETCH_SCRIPT), FETCH),
            *map(_literal, (remote, plan.git.commit, plan.git.branch, _credential_scope(remote))),
        ],
        "volumeMounts": [
            {"name": "source", "mountPath": SOURCE},
            {"name": "git", "mountPath": GIT_DIRECTORY, "readOnly": True},
        ],
    }
    build = {
        "name": BUILD,
        "image": kaniko_image,
        "command": ["/kaniko/executor"],
        "args": [_literal(word) for word in kaniko_words(plan)],
        "env": [{"name": "DOCKER_CONFIG", "value": "/kaniko/.docker"}],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "volumeMounts": [
            {"name": "source", "mountPath": SOURCE},
            {"name": "registry", "mountPath": "/kaniko/.docker", "readOnly": True},
        ],
    }
    login = {"secretName": REGISTRY_SECRET, "optional": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"yard-build-{secrets.token_hex(4)}",
            "labels": {"app.kubernetes.io/name": "yard-build", "app.kubernetes.io/managed-by": "jobyard"},
            "annotations": {**annotations, "jobyard.dev/commit": plan.git.commit, "jobyard.dev/image": str(plan.push)},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LONGEST_SECONDS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "initContainers": [fetch],
            "containers": [build],
            "volumes": [
                {"name": "source", "emptyDir": {}},
                {"name": "git", "secret": {"secretName": GIT_SECRET, "optional": True, "defaultMode": 0o400}},
                {
                    "name": "registry",
                    "secret": {**login, "items": [{"key": ".dockerconfigjson", "path": "config.json"}]},
                },
            ],
        },
    }


def _literal(word: str) -> str:
    """Kubernetes expands `$(NAME)`, and makes one `$` of every two."""
    return word.replace("$", "$$")


def _credential_scope(remote: str) -> str:
    """As git's settings name whom a password is for; empty: a remote that takes none."""
    parts = urlsplit(remote)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.scheme in ("http", "https") else ""


def fetchable(remote: str) -> str:
    """The remote, as a pod can reach it."""
    if not remote:
        raise UserError(
            "kaniko fetches the commit from a remote, and the branch has none; run: git push -u REMOTE BRANCH"
        )
    if remote.startswith(("/", ".", "~", "file:")):
        raise UserError(f"kaniko runs in a pod, which cannot fetch from {remote}; push to a remote with an address")
    return remote


def kaniko_words(plan: BuildPlan) -> list[str]:
    context = os.path.normpath(os.path.join(SOURCE, plan.git.subdir))
    words = [
        f"--context=dir://{context}",
        f"--dockerfile={os.path.normpath(os.path.join(context, plan.dockerfile_in_context))}",
        f"--destination={plan.push}",
        "--digest-file=/dev/termination-log",
        "--log-format=text",
        "--force",  # it is in a container, whether it sees that or not
    ]
    if plan.push.registry.is_plain:
        words.append(f"--insecure-registry={plan.push.registry.host}")
    if plan.target:
        words.append(f"--target={plan.target}")
    words += [f"--build-arg={name}={value}" for name, value in plan.build_args.items()]
    words += [f"--label={name}={value}" for name, value in plan.labels.items()]
    return words
