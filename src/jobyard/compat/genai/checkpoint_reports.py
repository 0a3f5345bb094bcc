"""Checkpoint reports: how is what a job reported stored on the job itself, where every process can read it?

On a job of the yard in the yard's annotations, on a PyTorchJob of others in those of the object.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from jobyard.errors import UserError
from jobyard.model.codec import decode, encode

CHECKPOINT = "jobyard.dev/checkpoint"


@dataclass(frozen=True)
class Report:
    """The newest checkpoint that is known of a job, and the one before it."""

    at: float
    before: float | None = None
    completed_epochs: float = 0
    total_epochs: float = 0

    def then(self, later: Report) -> Report:
        return replace(later, before=self.at, total_epochs=later.total_epochs or self.total_epochs)


def annotation_of(report: Report) -> dict[str, str]:
    return {CHECKPOINT: json.dumps(encode(report))}


def report_in(annotations: Mapping[str, str]) -> Report | None:
    """None: there is none, or it is not valid (others may have written it)."""
    if (text := annotations.get(CHECKPOINT)) is None:
        return None
    try:
        report = decode(Report, json.loads(text))
    except (ValueError, RecursionError, UserError):
        return None
    numbers = (report.at, report.before or 0, report.completed_epochs, report.total_epochs)
    return report if all(math.isfinite(each) and each >= 0 for each in numbers) else None
