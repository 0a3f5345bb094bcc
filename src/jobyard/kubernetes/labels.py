"""Label: how are objects of yards told from others, and pods found by what they belong to?"""

from __future__ import annotations

YARD = "jobyard.dev/yard"  # on all that a yard made: its id
JOB = "jobyard.dev/job"  # on all that was made for a job: its id
POD_OF_PYTORCHJOB = "training.kubeflow.org/job-name"
