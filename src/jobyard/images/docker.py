"""Docker builder: how does Docker build an image? With buildx, or with the engine alone where buildx is missing."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jobyard.errors import BuildFailed, UserError
from jobyard.images.protocol import BuildPlan, Built, Say
from jobyard.images.running import asked, check_build, check_push, need, push_failure, reason_of, run_logged

DIGEST = "containerimage.digest"  # a key of buildx's metadata file
# Docker's advice to remove a variable that only we have set.
NOTICE = ("DEPRECATED: The legacy builder", "BuildKit is currently disabled", "environment-variable.")


class DockerBuilder:
    is_remote = False

    def check(self) -> None:
        need("docker", "docker is not installed here; install it, or choose another builder with --builder podman")
        done = asked(["docker", "version", "--format", "{{.Server.Version}}"])
        if done.returncode == 0:
            return
        said = reason_of(tuple(done.stderr.splitlines()))
        if "permission denied" in said:
            raise UserError("you may not use docker's socket; join the group docker, or use --builder podman")
        raise UserError(f"the docker engine does not run here ({said}); start it, or use --builder podman")

    def default_dockerfile(self, context: Path) -> Path | None:
        path = context / "Dockerfile"
        return path if path.is_file() else None

    def build(self, plan: BuildPlan, say: Say) -> Built:
        digest = self._with_buildx(plan, say) if has_buildx() else self._with_engine(plan, say)
        return Built(plan.pull.untagged, digest, tag=plan.pull.tag)

    def _with_buildx(self, plan: BuildPlan, say: Say) -> str:
        with tempfile.TemporaryDirectory(prefix="yard-build-") as scratch:
            metadata = Path(scratch, "metadata.json")
            words = ["--push", "--progress=plain", f"--metadata-file={metadata}"]
            code, lines = run_logged(["docker", "buildx", "build", *words, *build_words(plan)], say)
            if code != 0 and any("failed to push" in line or "pushing" in line for line in lines[-3:]):
                raise push_failure(plan.push, lines)
            check_build(plan, code, lines)
            digest = json.loads(metadata.read_bytes()).get(DIGEST, "")
        return digest or _pushed_digest(plan)

    def _with_engine(self, plan: BuildPlan, say: Say) -> str:
        env = {"DOCKER_BUILDKIT": "0"}  # BuildKit would need buildx

        def say_all_else(line: str) -> None:
            if not line.strip().startswith(NOTICE):
                say(line)

        check_build(plan, *run_logged(["docker", "build", *build_words(plan)], say_all_else, env))
        check_push(plan.push, *run_logged(["docker", "push", str(plan.push)], say))
        return _pushed_digest(plan)


def has_buildx() -> bool:
    return asked(["docker", "buildx", "version"]).returncode == 0


def build_words(plan: BuildPlan) -> list[str]:
    """What docker, podman and buildah all understand."""
    return [f"--tag={plan.push}", f"--file={plan.dockerfile}", *_optional_words(plan), str(plan.context)]


def _optional_words(plan: BuildPlan) -> Iterator[str]:
    if plan.target:
        yield f"--target={plan.target}"
    for name, value in plan.build_args.items():
        is_in_shell = os.environ.get(name) == value  # its name is enough then: process lists show values
        yield f"--build-arg={name}" if is_in_shell else f"--build-arg={name}={value}"
    for name, value in plan.labels.items():
        yield f"--label={name}={value}"


def _pushed_digest(plan: BuildPlan) -> str:
    """As the engine recorded it when it pushed."""
    done = asked(["docker", "image", "inspect", "--format", "{{json .RepoDigests}}", str(plan.push)])
    found = json.loads(done.stdout) if done.returncode == 0 else []
    for entry in found or []:
        name, _, digest = str(entry).partition("@")
        if name in (plan.push.untagged, plan.push.familiar):
            return digest
    raise BuildFailed(f"docker pushed {plan.push} and does not say its digest")
