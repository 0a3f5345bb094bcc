"""Input words: which values stand after `:::` and its kin, as in GNU parallel's command line?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from jobyard.errors import UserError

MARKS = frozenset({":::", ":::+", "::::", "::::+"})
_OWN_MARKS = frozenset({"parallel", "sem", "env_parallel", "parset"})  # programs that read these marks themselves


class InputWords(NamedTuple):
    """The words after one mark: values, or names of files."""

    mark: str
    words: tuple[str, ...]

    @property
    def is_linked(self) -> bool:
        """Row by row with the source before it."""
        return self.mark.endswith("+")

    @property
    def are_files(self) -> bool:
        return self.mark.startswith("::::")


def split_inputs(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[InputWords, ...]]:
    """The command, and the inputs after it. Raises UserError for a mark that nothing follows."""
    marks = [index for index, word in enumerate(words) if word in MARKS]
    if not marks or any(os.path.basename(word) in _OWN_MARKS for word in words[: marks[0]]):
        return tuple(words), ()
    found = [
        InputWords(words[mark], tuple(words[mark + 1 : end]))
        for mark, end in zip(marks, [*marks[1:], len(words)], strict=True)
    ]
    for each in found:
        if not each.words:
            what = "file" if each.are_files else "value"
            raise UserError(f"there is no {what} after {each.mark}; give one at least", field="inputs")
    if found[0].is_linked:
        raise UserError(
            f"there is nothing before {found[0].mark} to link with; begin with {found[0].mark[:-1]}", field="inputs"
        )
    return tuple(words[: marks[0]]), tuple(found)
