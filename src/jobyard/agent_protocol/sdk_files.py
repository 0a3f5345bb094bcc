"""SDK files: how do tasks get the SDK? From this agent, whatever is installed where they run."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zipfile
from contextlib import suppress
from typing import Callable, Dict, Iterable, Iterator

FOLDER = "sdk/"  # within the zipapp, so that the agent itself does not find it
_PROTOCOL = "jobyard/agent_protocol/"
_SOURCES = ("jobyard/sdk", "kubernetesdlprofile", _PROTOCOL + "__init__.py", _PROTOCOL + "exit_codes.py")
_INIT = '''"""The part of Jobyard that tasks use. An installed Jobyard further on the path remains in reach."""

from importlib import import_module
from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
__version__ = %r


def __getattr__(name):
    """`from jobyard import Yard`, where Jobyard itself is installed."""
    try:
        return getattr(import_module(__name__ + ".python_api"), name)
    except ImportError as error:
        raise AttributeError("module 'jobyard' has no attribute %%r in a task without Jobyard" %% name) from error
'''
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


def sources() -> Dict[str, bytes]:
    """The files by name, from the zipapp or from the source tree; none if this build has no SDK."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    return _from_archive(archive) if archive else _from_tree(_tree())


def _tree() -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    return os.path.dirname(os.path.dirname(here))


def _from_archive(path: str) -> Dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name[len(FOLDER) :]: archive.read(name) for name in archive.namelist() if name.startswith(FOLDER)}


def read_tree(root: str, sources: Iterable[str]) -> Dict[str, bytes]:
    """The source files of these packages and modules, by name."""
    files = {}
    for source in sources:
        for name in [source] if source.endswith(".py") else _modules(root, source):
            with open(os.path.join(root, name), "rb") as file:
                files[name] = file.read()
    return files


def _modules(root: str, package: str) -> Iterator[str]:
    for directory, _, names in os.walk(os.path.join(root, package)):
        for name in names:
            if name.endswith(".py"):
                yield os.path.relpath(os.path.join(directory, name), root)


def _from_tree(root: str) -> Dict[str, bytes]:
    if not os.path.isdir(os.path.join(root, "jobyard", "sdk")):
        return {}
    files = read_tree(root, _SOURCES)
    files["jobyard/__init__.py"] = (_INIT % _version(root)).encode()
    return files


def _version(root: str) -> str:
    try:
        with open(os.path.join(root, "jobyard", "__init__.py")) as file:
            found = _VERSION.search(file.read())
    except OSError:
        return ""
    return found[1] if found else ""


def unpack(state_dir: str, log: Callable[[str], None]) -> str:
    """A directory with these files, for PYTHONPATH. It appears whole, once per build; empty: there is none."""
    try:
        files = sources()
        if not files:
            return ""
        digest = hashlib.sha256()
        for name, content in sorted(files.items()):
            digest.update(b"%s %d\n" % (name.encode(), len(content)))
            digest.update(content)
        path = "%s/sdk-%s" % (state_dir, digest.hexdigest()[:16])
        if not os.path.isdir(path):
            _write(path, files)
        return path
    except (OSError, zipfile.BadZipFile) as error:  # a full disk: tasks run without it
        log("the SDK cannot be unpacked: %s" % error)
        return ""


def remove_others(state_dir: str, path: str) -> None:
    """Let go of what other builds unpacked. Only while no task is left that one of their agents started."""
    with suppress(OSError):
        for name in os.listdir(state_dir):
            other = "%s/%s" % (state_dir, name)
            if name.startswith("sdk-") and other != path:
                shutil.rmtree(other, ignore_errors=True)


def _sync(path: str) -> None:
    """A directory that appears whole must be whole after a crash of the machine too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: str, files: Dict[str, bytes]) -> None:
    draft = "%s.%d.tmp" % (path, os.getpid())
    try:
        for name, content in files.items():
            target = os.path.join(draft, name)
            os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
            with open(target, "wb") as file:
                file.write(content)
        for name in files:  # after all were written: the first fsync writes most of the others too
            _sync(os.path.join(draft, name))
        os.rename(draft, path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
