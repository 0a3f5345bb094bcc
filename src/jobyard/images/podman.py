"""Podman builder: how do podman and buildah build? No daemon, and no root where the user has a subuid range.

Their own variables say how: BUILDAH_ISOLATION=chroot and STORAGE_DRIVER=vfs where containers cannot be had.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from jobyard.errors import BuildFailed, UserError
from jobyard.images.docker import build_words
from jobyard.images.protocol import BuildPlan, Built, Say
from jobyard.images.running import asked, check_build, check_push, reason_of, run_logged

PROGRAMS = ("buildah", "podman")  # podman builds with buildah's code; buildah itself needs less
NAMES = ("Containerfile", "Dockerfile")  # in the order in which they look


class PodmanBuilder:
    is_remote = False

    def check(self) -> None:
        done = asked([self._program(), "info"])
        if done.returncode != 0:
            raise UserError(
                f"{self._program()} cannot build here: {reason_of(tuple(done.stderr.splitlines()))}; "
                f"see what `{self._program()} info` says"
            )

    def default_dockerfile(self, context: Path) -> Path | None:
        return next((context / name for name in NAMES if (context / name).is_file()), None)

    def build(self, plan: BuildPlan, say: Say) -> Built:
        program = self._program()
        check_build(plan, *run_logged([program, "build", *build_words(plan)], say))
        with tempfile.TemporaryDirectory(prefix="yard-build-") as scratch:
            digest = Path(scratch, "digest")
            words = [f"--digestfile={digest}", *(["--tls-verify=false"] if plan.push.registry.is_plain else [])]
            check_push(plan.push, *run_logged([program, "push", *words, str(plan.push), f"docker://{plan.push}"], say))
            found = digest.read_text().strip() if digest.exists() else ""
        if not found:
            raise BuildFailed(f"{program} pushed {plan.push} and does not say its digest")
        return Built(plan.pull.untagged, found, tag=plan.pull.tag)

    def _program(self) -> str:
        for name in PROGRAMS:
            if shutil.which(name):
                return name
        raise UserError("neither buildah nor podman is installed here; install one, or use --builder docker")
