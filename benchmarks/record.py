"""What goes with every figure: when, where, of which commit, by which command."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Ratios = Mapping[str, float]
REPOSITORY = Path(__file__).resolve().parent.parent


def line(benchmark: str, *, ratios: Ratios, bars: Ratios, figures: Mapping[str, Any], **more: Any) -> str:
    """One line of JSON. In `ratios`, more than 1 means that we are better; `bars` are the least we promise."""
    return json.dumps(
        {
            "benchmark": benchmark,
            **more,
            "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()},
            "bars": bars,
            "figures": figures,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
            "machine": machine(),
        }
    )


def commit() -> str:
    described = subprocess.run(
        ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True
    )
    return described.stdout.strip() or "uncommitted"


def machine() -> str:
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} x {_cpu_model()}, {system}"


def _cpu_model() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        models = (text.partition(":")[2].strip() for text in lines if text.startswith("model name"))
        return next(models, platform.machine())
