"""GPU kinds: is a GPU of the kind that a task asks for? Known by the words of its name, as NVIDIA's driver tells it.

`h100` means every GPU with that word in its name, `a100-80gb` those with both words. A profile of MIG is a kind too:
`mig-1g.10gb`. A slice of a GPU is never meant by a kind that does not say MIG.
"""

from __future__ import annotations

import re
from functools import lru_cache

from jobyard.errors import UserError

KIND_MOST = 100  # characters
KIND_PATTERN = r"[A-Za-z0-9][A-Za-z0-9 ._+-]*"
MIG = "mig"
_KIND = re.compile(KIND_PATTERN)
_WORD = re.compile(r"[0-9a-z.]+")


def parse_gpu_kind(text: str, field: str) -> str:
    """A kind as it was written. Raises UserError where no GPU could ever be called so."""
    kind = text.strip()
    if not _KIND.fullmatch(kind) or len(kind) > KIND_MOST:
        raise UserError(
            f"{text!r:.120} is no kind of GPU; write a word of its name, as in h100, or mig-1g.10gb", field=field
        )
    return kind


@lru_cache(maxsize=4096)
def is_of_kind(kind: str, name: str, profile: str = "") -> bool:
    """Whether a GPU of this name is one; `profile` is that of a slice which its cluster counts apart.

    Who names no kind takes any GPU, but for such slices.
    """
    wanted, words = _words(kind), _words(f"{name} mig {profile}" if profile else name)
    if not wanted:
        return not profile
    return wanted <= words and (MIG in wanted or MIG not in words)


def means_slices(kind: str) -> bool:
    return bool(kind) and MIG in _words(kind)


def _words(text: str) -> frozenset[str]:
    """Profiles are written `1g.10gb+me` by the driver, and `1g.10gb.me` in Kubernetes."""
    return frozenset(_WORD.findall(text.casefold().replace("+", ".")))
