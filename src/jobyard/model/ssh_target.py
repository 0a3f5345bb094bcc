"""SSH target: where does ssh log in, and with which words of its command line?"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SshTarget:
    """Where to log in: a name of the user's ssh configuration, or an address with what it needs."""

    host: str
    user: str = ""
    port: int | None = None
    key_path: str = ""

    def arguments(self) -> list[str]:
        words = ["-l", self.user] if self.user else []
        words += ["-p", str(self.port)] if self.port else []
        words += ["-i", os.path.expanduser(self.key_path), "-o", "IdentitiesOnly=yes"] if self.key_path else []
        return [*words, "--", self.host]

    @property
    def by_hand(self) -> str:
        """What a person types to log in there the same way."""
        words = ["-p", str(self.port)] if self.port else []
        words += ["-i", self.key_path] if self.key_path else []
        return shlex.join(["ssh", *words, f"{self.user}@{self.host}" if self.user else self.host])

    @property
    def known_as(self) -> str:
        """Its name in a file of host keys."""
        return f"[{self.host}]:{self.port}" if self.port not in (None, 22) else self.host
