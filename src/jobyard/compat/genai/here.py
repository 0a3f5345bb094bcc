"""Which yard, which of its clusters, and when do jobs grow? As the environment says."""

from __future__ import annotations

import os

from jobyard.cli.output.text import warn
from jobyard.cli.session import Session
from jobyard.compat.genai.desk import Desk
from jobyard.errors import UserError

CLUSTER, SCALE = "GENAI_CLUSTER", "GENAI_SCALE"
NOW, CHECKPOINT = "now", "checkpoint"


def desk_here() -> Desk:
    when = os.environ.get(SCALE, CHECKPOINT)
    if when not in (NOW, CHECKPOINT):
        raise UserError(f"{SCALE}: {when!r} is neither {NOW} nor {CHECKPOINT}")
    return Desk(lambda: Session(None, "table").client, os.environ.get(CLUSTER, ""), at_once=when == NOW, warn=warn)
