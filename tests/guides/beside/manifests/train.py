"""A training of some seconds, to be stopped at a checkpoint and resized."""

import time

from jobyard.sdk import yard_job

job = yard_job()
for _ in job.epochs(20):
    time.sleep(0.3)
    job.saved()
