"""Harmless text: does a terminal show it, and do nothing else?"""

from __future__ import annotations

import unicodedata


def assert_harmless(text: str) -> None:
    """Only what we print ourselves: newlines. No test has a terminal, so there are no colours."""
    odd = {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn")}
    assert odd == set()
