"""What is known of the originals, from the short descriptions beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def ml_scheduler() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("ml_scheduler.yaml").read_text())
    return found
