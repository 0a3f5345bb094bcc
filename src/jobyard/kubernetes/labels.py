"""Labels: how are objects of yards told from others, and pods found by what they belong to?"""

from __future__ import annotations

YARD = "jobyard.dev/yard"  # on all that a yard made: its id
JOB = "jobyard.dev/job"  # on all that was made for a job: its id
POD_OF_PYTORCHJOB = "training.kubeflow.org/job-name"
# Annotations, by the Job controller where a Job has a limit of failures for each index: pods of the index that failed,
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
# and those that it replaced for other reasons; not there where there were none.
INDEX_REPLACED = "batch.kubernetes.io/job-index-ignored-failure-count"
