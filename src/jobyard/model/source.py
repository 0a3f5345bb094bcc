"""Image source: from which git tree was a job's image built, and how is it to be built?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobyard.model.limits import Bytes, Line, Path


@dataclass(frozen=True, slots=True)
class GitState:
    """A git tree at the moment of a build. With the commit and the diff, the same image can be made again."""

    commit: Line
    branch: Line = ""  # empty: no branch was checked out
    remote: Line = ""  # where the branch is pushed to, without passwords; empty: nowhere
    is_dirty: bool = False  # also when there are only files that git does not know
    is_pushed: bool | None = None  # does the remote have the commit? None: it could not be asked
    subdir: Path = ""  # what was built, seen from the root of the tree
    diff: Bytes = ""  # from the commit to the tree as it was; bytes that are not UTF-8 are surrogates

    def __str__(self) -> str:
        """`3f2a9c1d20ab on main, with changes, not pushed`."""
        parts = [
            self.commit[:12] + (f" on {self.branch}" if self.branch else ""),
            "with changes" if self.is_dirty else "",
            {True: "", False: "not pushed", None: "perhaps not pushed"}[self.is_pushed],
        ]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """How a manifest wants its image built. Only the submitter uses it: the yard is sent the image, not this."""

    image: str = ""  # its name, in the registry; empty: as the directory
    registry: str = ""
    context: str = "."  # relative to the directory of submission
    dockerfile: str = ""  # relative to the context; empty: the one that is there
    target: str = ""
    build_args: Mapping[str, str] = field(default_factory=dict)
    is_skipped: bool = False  # the image of an earlier job is used
    earlier_job: str = ""  # of this one; empty: the image is there under its own name
    must_find: bool = False  # and where there is none, it is not built either
