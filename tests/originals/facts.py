"""What is known of the originals, from the short descriptions beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


def ml_scheduler() -> dict[str, Any]:
    return _read("ml_scheduler.yaml")


def genai() -> dict[str, Any]:
    return _read("genai.yaml")


def launch() -> dict[str, Any]:
    return _read("launch.yaml")


def aichor() -> dict[str, Any]:
    return _read("aichor.yaml")


@cache
def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name(name).read_text())
    return found
