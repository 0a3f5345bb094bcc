"""Configuration from the environment: which yard, which of its clusters, and when do jobs grow?"""

from __future__ import annotations

import os
from collections.abc import Mapping

from jobyard.compat.genai.service import Service
from jobyard.console import Session, warn
from jobyard.errors import UserError

CLUSTER, SCALE = "GENAI_CLUSTER", "GENAI_SCALE"
NOW, CHECKPOINT = "now", "checkpoint"


def service_here() -> Service:
    """Connects nowhere. Raises UserError where the environment is wrong."""
    cluster, at_once = os.environ.get(CLUSTER, ""), grows_at_once(os.environ)
    return Service(lambda: Session(None, "table").client, cluster, at_once, warn=warn)


def grows_at_once(environ: Mapping[str, str]) -> bool:
    when = environ.get(SCALE) or CHECKPOINT
    if when not in (NOW, CHECKPOINT):
        raise UserError(f"{SCALE}: {when!r} is neither {NOW} nor {CHECKPOINT}")
    return when == NOW
