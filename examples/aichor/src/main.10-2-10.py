"""Scenario 4: the split of scenario 3; only how many tasks run at once is different."""

import os
import time

TOTAL = 1000
REPLICAS = 10
COMPLETIONS = 10


def items_of(environ):
    """The first and last item of this task, counted from 1: a replica's large slice, cut by completion."""
    replica = int(environ.get("JOB_INDEX", 0))
    completion = int(environ.get("JOB_COMPLETION_INDEX", 0))
    large = TOTAL // REPLICAS
    small = large // COMPLETIONS
    first = replica * large + completion * small + 1
    return first, first + small - 1


def main():
    first, last = items_of(os.environ)
    replica, completion = os.environ.get("JOB_INDEX", 0), os.environ.get("JOB_COMPLETION_INDEX", 0)
    print(f"replica {replica}, completion {completion}: items {first} to {last}")
    time.sleep(0.2)  # the work would be here


if __name__ == "__main__":
    main()
