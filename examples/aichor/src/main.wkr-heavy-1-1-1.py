"""Scenario 2: the heavy worker takes the first 300 items, each other worker a hundred of the rest."""

import os
import time

HEAVY = 300
SHARE = 100


def items_of(environ):
    """The first and last item of this worker, counted from 1."""
    if environ.get("REPLICATED_JOB_NAME", "worker-heavy") == "worker-heavy":
        return 1, HEAVY
    # JOB_INDEX counts within the type; JOB_GLOBAL_INDEX would depend on how the types are named.
    first = HEAVY + int(environ["JOB_INDEX"]) * SHARE + 1
    return first, first + SHARE - 1


def main():
    first, last = items_of(os.environ)
    kind, index = os.environ.get("REPLICATED_JOB_NAME", "worker-heavy"), os.environ.get("JOB_INDEX", 0)
    print(f"{kind} {index}: items {first} to {last}")
    time.sleep(0.2)  # the work would be here


if __name__ == "__main__":
    main()
