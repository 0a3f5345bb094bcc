"""Git state: which commit is a tree at, is it clean or dirty, and is it pushed?"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from jobyard.errors import UserError
from jobyard.model.source import GitState

DIFF_BYTES_MOST = 1 << 20
FETCH_SECONDS = 60.0
# Not interactive: no question for a password, and no lock that would block a commit in another window. Paths
# are literal: a file may be named `:(top)`.
_QUIETLY = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_LITERAL_PATHSPECS": "1", "LC_ALL": "C"}

# Regardless of the user's own git settings.
_STATUS = ("status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=none")
# A form that `git apply` reads, likewise. What is changed inside a submodule would be there as `-dirty` and no more.
_DIFF = (
    *("diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"),
    *("--submodule=short", "--ignore-submodules=dirty"),
)
NO_REMOTE = "."  # as git calls this repository itself, in a branch that follows another one of it


class GitError(Exception):
    """The error message of git."""


def look(directory: Path) -> GitState:
    """The state of the tree that this directory is in. Fetches, to learn what the remote has. Raises UserError."""
    root = root_of(directory)
    try:
        commit = git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitError:
        raise UserError(f"{root} has no commit yet; run: git add -A && git commit") from None
    try:
        branch = git(root, "branch", "--show-current")
        remote = _push_remote(root, branch)
        changes = _changes(root)
        return GitState(
            commit=commit,
            branch=branch,
            remote=_without_password(_address(root, remote)) if remote else "",
            is_dirty=bool(changes),
            is_pushed=_is_pushed(root, branch, remote),
            subdir="" if (below := os.path.relpath(os.path.realpath(directory), root)) == "." else below,
            diff=_diff(root, _changed_inside(changes)) if changes else "",
        )
    except GitError as error:
        raise UserError(f"the git tree {root} cannot be read: {error}") from error


def root_of(directory: Path) -> Path:
    """The root of the work tree, with links resolved. Raises UserError."""
    if shutil.which("git") is None:
        raise UserError("git is not installed, and an image is named after its commit; install git")
    try:
        return Path(os.path.realpath(git(directory, "rev-parse", "--show-toplevel")))
    except GitError as error:
        if "dubious ownership" in str(error):
            raise UserError(
                f"git does not trust {directory}, which another user owns; run: "
                f"git config --global --add safe.directory {directory}"
            ) from None
        raise UserError(
            f"{directory} is not in a git tree, and an image is named after its commit; "
            "run: git init && git add -A && git commit"
        ) from None


def git(directory: Path, *words: str, env: Mapping[str, str] | None = None, seconds: float | None = None) -> str:
    """What a git command answers, without the last newline. Raises GitError with the line that says why."""
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=directory,
            env={**os.environ, **_QUIETLY, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise GitError(f"git {words[0]} took longer than {seconds:g}s") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        why = next((line for line in said if line.startswith("fatal: ")), said[-1] if said else "")
        raise GitError(why.removeprefix("fatal: ") or f"git {words[0]} ended with {done.returncode}")
    return os.fsdecode(done.stdout).rstrip("\n")


def tracks(root: Path, path: Path) -> bool:
    """Does the commit have this file, if perhaps as it was before a change? One of a submodule counts too."""
    name = os.path.relpath(path, root)
    try:
        is_known = bool(git(root, "ls-files", "--recurse-submodules", "-z", "--", name))
        return is_known and not git(
            root, "diff", "--cached", "--name-only", "--diff-filter=A", "-z", "HEAD", "--", name
        )
    except GitError as error:
        raise UserError(f"the git tree {root} cannot be read: {error}") from error


def _changes(root: Path) -> list[str]:
    """As in `git status`, one line each. The user's settings may add other lines."""
    return [entry for entry in git(root, *_STATUS).split("\0") if entry and not entry.startswith("#")]


def _changed_inside(changes: list[str]) -> list[str]:
    """The submodules with changes that no commit of theirs has: their state reads `S<commit><changed><unknown>`."""
    fields = (entry.split(" ", 8) for entry in changes if entry.startswith("1 "))
    return [path for _, _, state, *_, path in fields if state.startswith("S") and state[2:] != ".."]


def _push_remote(root: Path, branch: str) -> str:
    """Where this branch would be pushed to, by name or as an address; without a branch, the only remote, or origin.
    Empty: nowhere."""
    if branch:
        name = git(root, "for-each-ref", "--format=%(push:remotename)", f"refs/heads/{branch}")
        if name:
            return "" if name == NO_REMOTE else name
    remotes = _remotes(root)
    return remotes[0] if len(remotes) == 1 else "origin" if "origin" in remotes else ""


def _remotes(root: Path) -> list[str]:
    return git(root, "remote").split()


def _address(root: Path, remote: str) -> str:
    """A branch may be pushed to an address that no remote has, as that of a fork."""
    if remote in _remotes(root):
        return git(root, "remote", "get-url", "--push", remote)
    return git(root, "ls-remote", "--get-url", remote)


def _is_pushed(root: Path, branch: str, remote: str) -> bool | None:
    """None: the remote does not answer, and what we know of it does not have the commit."""
    if not remote:
        return False
    if remote not in _remotes(root):
        return _is_at_address(root, branch, remote)
    try:
        git(root, "fetch", "--quiet", "--no-tags", remote, seconds=FETCH_SECONDS)
        is_fetched = True
    except GitError:
        is_fetched = False
    has_it = _has_commit(root, branch, remote)
    return has_it if is_fetched or has_it else None


def _has_commit(root: Path, branch: str, remote: str) -> bool:
    """Does the branch that this one is pushed to have it? Without a branch (as CI checks out): does any?"""
    if not branch:
        return bool(git(root, "for-each-ref", "--count=1", "--contains", "HEAD", f"refs/remotes/{remote}/"))
    return _is_in(root, f"{branch}@{{push}}")


def _is_at_address(root: Path, branch: str, address: str) -> bool | None:
    """For a plain address git has no remote branches: ask it for the branch of this name, and for the upstream one."""
    own = f"refs/heads/{branch}"
    followed = git(root, "config", "--default", own, "--get", f"branch.{branch}.merge")
    try:
        listed = git(root, "ls-remote", address, own, followed, seconds=FETCH_SECONDS)
        for commit, ref in (line.split("\t", 1) for line in listed.splitlines()):
            git(root, "fetch", "--quiet", "--no-tags", address, ref, seconds=FETCH_SECONDS)
            if _is_in(root, commit):
                return True
    except GitError:
        return None
    return False


def _is_in(root: Path, name: str) -> bool:
    """Is the commit that is checked out part of this one?"""
    try:
        git(root, "merge-base", "--is-ancestor", "HEAD", name)
    except GitError:
        return False
    return True


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if not parts.scheme or "@" not in parts.netloc:
        return url
    name, _, host = parts.netloc.rpartition("@")
    user = name.partition(":")[0] if parts.scheme == "ssh" else ""  # of https it is often a token
    return urlunsplit(parts._replace(netloc=f"{user}@{host}" if user else host))


def _diff(root: Path, changed_inside: list[str]) -> str:
    """A diff that turns the commit into the present tree with `git apply`. Untracked files are new ones.

    What a diff cannot contain is named before it.
    """
    small, large, nested = _untracked(root)
    with tempfile.TemporaryDirectory(prefix="yard-git-") as scratch:
        index = Path(scratch, "index")  # a copy: the user's own index must not change
        own = Path(root, git(root, "rev-parse", "--git-path", "index"))
        if own.exists():
            shutil.copy2(own, index)  # with its time, by which git finds files that changed in the same second
        env = {"GIT_INDEX_FILE": str(index)}
        for start in range(0, len(small), 500):  # a command line holds so many
            git(root, "add", "--intent-to-add", "--", *small[start : start + 500], env=env)
        text = _read_diff(root, env)
    notes = [
        *(f"# left out, being larger than {DIFF_BYTES_MOST} bytes: {path}" for path in large),
        *(f"# left out, being a git repository of its own: {path}" for path in nested),
        *(f"# left out, being changes inside a submodule: {path}" for path in changed_inside),
    ]
    return "\n".join([*notes, text]) if notes else text


def _untracked(root: Path) -> tuple[list[str], list[str], list[str]]:
    """Those that fit into a diff, those that do not, and other repositories, which a diff has no place for."""
    listed = git(root, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    small, large, nested = list[str](), list[str](), list[str]()
    for path in filter(None, listed):
        if path.endswith("/"):
            nested.append(path)
            continue
        is_large = os.lstat(root / path).st_size > DIFF_BYTES_MOST if os.path.lexists(root / path) else True
        (large if is_large else small).append(path)
    return small, large, nested


def _read_diff(root: Path, env: Mapping[str, str]) -> str:
    """Cut after so many bytes, and said so: a diff is read by people, and kept with every job."""
    with subprocess.Popen(
        ["git", *_DIFF, "HEAD", "--"],
        cwd=root,
        env={**os.environ, **_QUIETLY, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        data = process.stdout.read(DIFF_BYTES_MOST + 1)
        is_long = len(data) > DIFF_BYTES_MOST
        if is_long:
            process.kill()
    text = data[:DIFF_BYTES_MOST].decode("utf-8", "surrogateescape")
    if is_long:
        return f"{text}\n# cut here, after {DIFF_BYTES_MOST} bytes\n"
    if process.returncode:
        return f"{text}\n# cut here, for git diff ended with {process.returncode}\n"
    return text
