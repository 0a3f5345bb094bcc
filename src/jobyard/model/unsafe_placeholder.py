"""Unsafe placeholder: what is said where a value would be code, or may be, and what can be written instead?"""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.errors import UserError
from jobyard.model.placeholders import PLACEHOLDER

# Not `"$YARD_LINE"`: a user might write `eval "$YARD_LINE"`, which is what was refused.
WAY_OUT = (
    "lines that are commands go as a list (yard run FILE), "
    f"and lines that are data as arguments of a script (-- ./SCRIPT {PLACEHOLDER})"
)
# `x='a[$(touch f)]'; echo $((x))` makes the file: arithmetic reads names, indexes of names, and all that is in those.
IN_ARITHMETIC = "bash runs the $(...) of a value such as a[$(...)]"
IS_CALCULATED = f"which is calculated, for which {IN_ARITHMETIC}"
CALCULATING = (
    "calculate with expr, as in expr {} + 1, and compare with [ ], as in [ {} -gt 1 ]; "
    "or give it to a script as an argument (-- ./SCRIPT {})"
)
COMPARING = "compare with [ ], as in [ {} = b ] or [ {} -gt 1 ], or with case {} in"
OTHER_NAME = "choose another name for the variable"


class UnsafePlaceholder(UserError):
    """A placeholder stands where a value would be code, or may be."""

    def __init__(self, where: str, way_out: str = WAY_OUT, texts: Sequence[str] = (PLACEHOLDER,)) -> None:
        named = " or ".join(texts[:3])
        way_out = way_out.replace(PLACEHOLDER, texts[0]) if texts else way_out
        super().__init__(f"{named} {where}: a line could be run as a command there; {way_out}", field="command")
