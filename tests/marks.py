"""Which parameters of a test are the long rest? `make test` runs the others, `make test-all` all of them."""

from __future__ import annotations

from typing import Any

import pytest


def long(*values: Any) -> list[Any]:
    """Each of these as a parameter that is marked `long`; a tuple stands for several arguments."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long) for value in values
    ]
