"""Exit codes: which of them mean more than that a command failed?"""

from __future__ import annotations

PREEMPTED_EXIT_CODE = 85  # of a task that stopped at a checkpoint because it was asked to
