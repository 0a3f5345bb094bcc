"""In which state is a git tree? Asked of real repositories, with a bare one that they are pushed to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from jobyard.errors import UserError
from jobyard.images import git_state
from jobyard.images.git_state import DIFF_BYTES_MOST, look
from tests.images.trees import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_pushed_commit_without_changes_is_clean_and_pushed(tree: Tree) -> None:
    state = look(tree.path)
    assert (state.commit, state.branch, state.remote) == (tree.head, "main", str(tree.bare))
    assert (state.is_dirty, state.is_pushed, state.diff, state.subdir) == (False, True, "", "")
    assert str(state) == f"{tree.head[:12]} on main"


def test_a_file_that_git_does_not_know_counts_whatever_the_settings_say(tree: Tree) -> None:
    tree.git("config", "status.showUntrackedFiles", "no")
    tree.write("more", "")
    assert look(tree.path).is_dirty


def test_a_commit_that_the_remote_does_not_have_is_not_pushed(tree: Tree) -> None:
    tree.write("more", "")
    tree.commit()
    assert look(tree.path).is_pushed is False
    tree.push()
    assert look(tree.path).is_pushed is True


def test_a_branch_that_is_pushed_nowhere_is_not_pushed(tree: Tree) -> None:
    tree.git("switch", "--quiet", "--create", "own")
    state = look(tree.path)
    assert (state.branch, state.is_pushed) == ("own", False)


def test_a_commit_that_somebody_else_pushed_counts_after_a_fetch(tree: Tree, tmp_path: Path) -> None:
    commit = tree.write("more", "") and tree.commit()
    tree.git("push", "--quiet", str(tree.bare), "HEAD:main")  # past the remote's name: nothing is known of it here
    assert tree.git("rev-parse", "origin/main") != commit
    assert look(tree.path).is_pushed is True


def test_a_remote_that_took_the_commit_back_no_longer_has_it(tree: Tree) -> None:
    first = tree.head
    tree.write("more", "")
    tree.commit()
    tree.push()
    subprocess.run(["git", "update-ref", "refs/heads/main", first], cwd=tree.bare, check=True)
    assert look(tree.path).is_pushed is False


def test_whether_a_commit_is_pushed_cannot_be_known_from_a_remote_that_is_gone(tree: Tree) -> None:
    tree.write("more", "")
    tree.commit()
    tree.bare.rename(tree.bare.with_name("gone"))
    state = look(tree.path)
    assert state.is_pushed is None
    assert "perhaps not pushed" in str(state)


def test_without_a_remote_nothing_is_pushed(tree: Tree) -> None:
    tree.git("remote", "remove", "origin")
    state = look(tree.path)
    assert (state.remote, state.is_pushed) == ("", False)


def test_a_branch_that_follows_one_of_the_same_repository_has_no_remote(tree: Tree) -> None:
    tree.git("switch", "--quiet", "--create", "own", "--track", "main")
    state = look(tree.path)
    assert (state.remote, state.is_pushed) == ("", False)


@pytest.fixture
def fork(tree: Tree, tmp_path: Path) -> Path:
    """Where the branch `theirs` comes from and goes to, by its address alone, as `gh pr checkout` writes it."""
    fork = tmp_path / "fork.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", tree.bare, fork], check=True)
    tree.git("switch", "--quiet", "--create", "theirs")
    for name, value in (("remote", str(fork)), ("pushRemote", str(fork)), ("merge", "refs/heads/feature")):
        tree.git("config", f"branch.theirs.{name}", value)
    return fork


def test_a_branch_may_be_pushed_to_an_address_that_no_remote_has(tree: Tree, fork: Path, tmp_path: Path) -> None:
    assert (look(tree.path).remote, look(tree.path).is_pushed) == (str(fork), False)
    tree.git("push", "--quiet", str(fork), "theirs:feature")
    assert look(tree.path).is_pushed is True
    other = tmp_path / "elsewhere"
    subprocess.run(["git", "clone", "--quiet", "--branch=feature", fork, other], check=True)
    tree.git("-C", str(other), "commit", "--quiet", "--allow-empty", "--message", "of somebody else")
    tree.git("-C", str(other), "push", "--quiet")
    assert look(tree.path).is_pushed is True, "the branch there has gone on, and still has the commit"
    tree.write("more", "")
    tree.commit()
    assert look(tree.path).is_pushed is False
    tree.git("push", "--quiet", str(fork), "theirs:theirs")
    assert look(tree.path).is_pushed is True


def test_an_address_that_does_not_answer_leaves_it_open(tree: Tree, fork: Path) -> None:
    fork.rename(fork.with_name("gone"))
    assert look(tree.path).is_pushed is None
    tree.git("config", "branch.theirs.pushRemote", "lab:x.git")
    tree.git("config", "url.file:///nowhere/.insteadOf", "lab:")
    assert look(tree.path).remote == "file:///nowhere/x.git"


def test_without_a_branch_any_branch_of_the_remote_will_do(tree: Tree) -> None:
    tree.git("checkout", "--quiet", "--detach")
    state = look(tree.path)
    assert (state.branch, state.is_pushed) == ("", True)


def test_changes_added_files_and_unknown_files_are_all_in_the_diff_and_it_can_be_applied(
    tree: Tree, tmp_path: Path
) -> None:
    tree.write("greeting.txt", "two\n")
    tree.write("added.txt", "added\n")
    tree.git("add", "added.txt")
    tree.write("not known/é.bin", b"\x00\xff" * 100)
    tree.write("latin.txt", b"caf\xe9\n")
    before = tree.git("status", "--porcelain")
    state = look(tree.path)
    assert state.is_dirty
    assert tree.git("status", "--porcelain") == before, "looking changes nothing"
    copy = tmp_path / "copy"
    subprocess.run(["git", "clone", "--quiet", tree.bare, copy], check=True)
    patch = state.diff.encode("utf-8", "surrogateescape")
    subprocess.run(["git", "apply", "--binary"], cwd=copy, input=patch, check=True)
    for name in ("greeting.txt", "added.txt", "not known/é.bin", "latin.txt"):
        assert (copy / name).read_bytes() == (tree.path / name).read_bytes()


def test_a_file_that_git_does_not_know_makes_a_tree_dirty_and_one_that_it_ignores_does_not(tree: Tree) -> None:
    tree.write(".gitignore", "*.log\n")
    tree.commit()
    tree.write("a.log", "")
    assert not look(tree.path).is_dirty
    tree.write("a.txt", "")
    assert look(tree.path).is_dirty


def test_a_long_diff_is_cut_and_a_large_unknown_file_is_named(tree: Tree) -> None:
    tree.write("greeting.txt", "word\n" * DIFF_BYTES_MOST)
    tree.write("huge.bin", b"\0" * (DIFF_BYTES_MOST + 1))
    diff = look(tree.path).diff
    assert diff.endswith(f"# cut here, after {DIFF_BYTES_MOST} bytes\n")
    assert diff.startswith(f"# left out, being larger than {DIFF_BYTES_MOST} bytes: huge.bin\n")
    assert len(diff) < DIFF_BYTES_MOST + 1000


def test_a_diff_that_git_cannot_finish_says_so(tree: Tree) -> None:
    tree.write(".gitattributes", "*.new filter=broken\n")
    tree.commit()
    tree.git("config", "filter.broken.clean", "false")
    tree.git("config", "filter.broken.required", "true")
    tree.write("a.new", "which only a diff reads\n")
    assert "# cut here, for git diff ended with " in look(tree.path).diff


def test_a_change_of_the_same_size_in_the_same_second_is_in_the_diff(tree: Tree) -> None:
    changed = tree.write("greeting.txt", "two\n")
    index = tree.path / ".git" / "index"
    tree.write("greeting.txt", "one\n")
    for path in (changed, index):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    tree.git("update-index", "--refresh")
    os.utime(index, (1_000_000_000, 1_000_000_000))
    changed.write_text("two\n")
    os.utime(changed, (1_000_000_000, 1_000_000_000))
    assert "+two" in look(tree.path).diff


def test_files_with_the_names_of_pathspecs_are_in_the_diff(tree: Tree) -> None:
    for name in (":weird", ":(top)x", "*", ":!no"):
        tree.write(name, "kept\n")
    diff = look(tree.path).diff
    assert diff.count("+kept") == 4


@pytest.mark.parametrize("has_commit", [False, True])
def test_an_unknown_repository_in_the_tree_is_left_out_and_named(tree: Tree, has_commit: bool) -> None:
    tree.write("nested/file", "")
    subprocess.run(["git", "init", "--quiet"], cwd=tree.path / "nested", check=True)
    if has_commit:
        tree.git("-C", "nested", "add", "file")
        tree.git("-C", "nested", "commit", "--quiet", "--message", "own")
    tree.write("more", "more\n")
    state = look(tree.path)
    assert state.is_dirty
    assert state.diff.startswith("# left out, being a git repository of its own: nested/\n")
    assert "+more" in state.diff
    assert "Subproject" not in state.diff


def with_submodule(tree: Tree, directory: Path) -> Path:
    """The directory of a submodule that is committed and pushed with the tree."""
    other = Tree(directory / "other")
    tree.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.bare), "parts")
    tree.commit()
    tree.push()
    return tree.path / "parts"


def test_changes_inside_a_submodule_are_left_out_and_named_whatever_the_settings_say(
    tree: Tree, tmp_path: Path
) -> None:
    part = with_submodule(tree, tmp_path)
    for setting, value in (
        ("diff.submodule", "log"),
        ("diff.ignoreSubmodules", "all"),
        ("diff.noprefix", "true"),
        ("status.showStash", "true"),
    ):
        tree.git("config", setting, value)
    tree.write("greeting.txt", "two\n")
    tree.git("stash", "--quiet")
    assert not look(tree.path).is_dirty, "what is laid aside is not in the tree"
    (part / "new.txt").touch()
    state = look(tree.path)
    assert state.is_dirty
    assert state.diff == "# left out, being changes inside a submodule: parts\n"
    (part / "greeting.txt").write_text("changed\n")
    tree.git("-C", "parts", "commit", "--quiet", "--all", "--message", "own")
    tree.write("greeting.txt", "two\n")
    diff = look(tree.path).diff
    assert diff.startswith("# left out, being changes inside a submodule: parts\n")
    assert f"+Subproject commit {tree.git('-C', 'parts', 'rev-parse', 'HEAD')}\n" in diff
    assert "+++ b/greeting.txt" in diff
    (part / "new.txt").unlink()
    assert "left out" not in look(tree.path).diff, "the submodule's commit says it all"


def test_what_is_built_is_named_from_the_root_also_through_a_link(tree: Tree, tmp_path: Path) -> None:
    tree.write("parts/one/file", "")
    (tmp_path / "link").symlink_to(tree.path / "parts")
    assert look(tree.path / "parts" / "one").subdir == "parts/one"
    assert look(tmp_path / "link" / "one").subdir == "parts/one"


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://ada:secret@git.lab/x.git", "https://git.lab/x.git"),
        ("https://ghp_token@git.lab/x.git", "https://git.lab/x.git"),
        ("ssh://git@git.lab/x.git", "ssh://git@git.lab/x.git"),
        ("git@git.lab:x.git", "git@git.lab:x.git"),
    ],
)
def test_passwords_in_a_remotes_address_are_not_kept(tree: Tree, url: str, kept: str) -> None:
    tree.git("remote", "set-url", "--push", "origin", url)
    assert look(tree.path).remote == kept


def test_a_directory_without_git_a_tree_without_commits_and_a_machine_without_git_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="is not in a git tree"):
        look(tmp_path)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    with pytest.raises(UserError, match="has no commit yet"):
        look(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="git is not installed"):
        look(tmp_path)


def test_a_tree_of_another_user_is_explained(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own switch for its own tests
    with pytest.raises(UserError, match=r"git does not trust .* safe\.directory"):
        git_state.look(tree.path)
