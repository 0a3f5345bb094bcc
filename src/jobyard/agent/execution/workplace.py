"""Workplace: where does an attempt run? In the job's directory, or in a private copy of the tree that came along."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Any, Dict, List

from jobyard.agent.execution.spawn import CannotStart
from jobyard.agent.files import results, snapshots, trees
from jobyard.agent.files.trees import Difference
from jobyard.agent_protocol import records
from jobyard.agent_protocol.records import Paths


class Workplace:
    """The places of one lane's attempts, one after another.

    A copy that an attempt has done with is made like new for the next one: what the task touched is put right, the
    rest need not be copied again. The kernel's own change times tell what was touched; a task cannot set those.
    """

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._directory = "/"
        self._collects = False
        self._snapshot = ""
        self._subdir = ""
        self._copy_back: List[str] = []
        self._made_ns = 0
        self._spare = ""

    def enter_job(self, message: Dict[str, Any]) -> None:
        self.drop_spare()
        self._directory = message.get("workdir") or os.path.expanduser("~")
        self._collects = bool(message.get("collects"))
        self._snapshot = message.get("snapshot") or ""
        self._subdir = message.get("subdir") or ""
        self._copy_back = message.get("copy_back") or []

    def record_line(self) -> bytes:
        """For the record, so that somebody else can gather the results if the lane cannot."""
        return records.collect_line(self._snapshot, self._copy_back) if self._collects else b""

    def prepare(self, files: Paths) -> str:
        """The directory in which this attempt starts. Raises CannotStart with what a shell would have answered."""
        directory = self._directory
        if self._snapshot:
            self._copy(files)
            directory = os.path.join(files.work, self._subdir) if self._subdir else files.work
        try:
            os.chdir(directory)
        except OSError as error:
            message = "cannot enter the working directory %s: %s" % (self._subdir or directory, error.strerror)
            raise CannotStart(127, message) from error
        return directory

    def _copy(self, files: Paths) -> None:
        spare, self._spare = self._spare, ""
        try:
            if spare and _moved(spare, files.work):
                return
            trees.copy_tree(self._tree, files.work)
            self._made_ns = _touch(files.work, self._tree)
        except OSError as error:
            snapshots.remove_tree(files.work)
            raise CannotStart(126, "cannot copy the job's files: %s" % error.strerror) from error

    @property
    def _tree(self) -> str:
        return snapshots.tree(self._state_dir, self._snapshot)

    def gather(self, files: Paths, keep_for_next: bool) -> None:
        """The attempt is over: pack its results, and clear its copy away. Never raises."""
        if not self._collects:
            return
        os.chdir("/")
        if not self._snapshot:
            results.gather(files, (), [], has_tree=False)
            return
        try:
            changes = list(trees.differences(self._tree, files.work, self._made_ns))
        except OSError as error:
            results.give_up(files, error, has_tree=True)
            return
        if not results.gather(files, changes, self._copy_back, has_tree=True):
            return
        if keep_for_next and not _is_inhabited(files.work):
            try:
                _restore(self._tree, files.work, changes)
                self._made_ns = _touch(files.work, self._tree)
                self._spare = files.work
                return
            except OSError:
                pass  # then without
        snapshots.remove_tree(files.work)

    def drop_spare(self) -> None:
        """Nothing comes next: leave no copies lying about."""
        if self._spare:
            os.chdir("/")
            snapshots.remove_tree(self._spare)
        self._spare = ""


def _moved(spare: str, work: str) -> bool:
    try:
        os.rename(spare, work)
    except OSError:  # somebody has removed it
        snapshots.remove_tree(spare)
        return False
    return True


def _touch(work: str, tree: str) -> int:
    """When the copy was done, by the clock that the kernel writes into files."""
    found = os.lstat(tree)
    os.utime(work, ns=(found.st_mtime_ns, found.st_mtime_ns))
    return os.lstat(work).st_ctime_ns


def _restore(tree: str, work: str, changes: List[Difference]) -> None:
    """Make a used copy like new. Raises OSError where that does not work."""
    kept = [(work, os.lstat(tree))]
    for change in changes:
        source, target = tree + "/" + change.name, work + "/" + change.name
        was, now = change.before, change.after
        if was is not None and now is not None and stat.S_ISDIR(was.st_mode) and stat.S_ISDIR(now.st_mode):
            kept.append((target, was))
            continue
        if now is not None:
            with suppress(FileNotFoundError, NotADirectoryError):  # gone with its directory
                _remove(target, now)
        if was is not None:
            trees.copy_entry(source, target, was)
    for target, before in reversed(kept):
        os.chmod(target, stat.S_IMODE(before.st_mode))
        os.utime(target, ns=(before.st_mtime_ns, before.st_mtime_ns))


def _remove(path: str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        snapshots.remove_tree(path)
    else:
        os.unlink(path)


def _is_inhabited(work: str) -> bool:
    """Does a process live there that left its task's session? It must not meet the next attempt."""
    inside = os.path.realpath(work) + "/"
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if (os.readlink("/proc/%s/cwd" % name) + "/").startswith(inside):
                    return True
    return False
