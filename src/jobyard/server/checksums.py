"""Checksums of the journal's rows: is a row as it was written, and if not, which jobs did it concern?"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

NOT_KNOWN = ""  # of rows older than this column
THE_YARD = "*"  # machines, clusters: no list of jobs is complete


def row_checksum(version: int, at: float, events: str) -> str:
    return _digest(f"{version} {at!r} {events}")


def jobs_column(jobs: Collection[str] | None) -> str:
    """None: the row concerns the yard as a whole."""
    text = THE_YARD if jobs is None else " ".join(sorted(jobs))
    return f"{_digest(text)}:{text}"


def jobs_of(column: str) -> frozenset[str] | None:
    """None: the jobs are not known, or the row concerns more than jobs."""
    digest, _, text = column.partition(":")
    if column == NOT_KNOWN or digest != _digest(text) or text == THE_YARD:
        return None
    return frozenset(text.split())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
