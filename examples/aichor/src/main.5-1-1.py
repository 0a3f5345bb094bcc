"""Basic: each of the workers takes an equal share of the items."""

import os
import time

TOTAL = 1000


def items_of(environ):
    """The first and last item of this worker, counted from 1. Run by hand, without the variables, it takes them all."""
    worker = int(environ.get("JOB_INDEX", 0))
    workers = int(environ.get("GLOBAL_REPLICAS", 1))
    share = TOTAL // workers
    first = worker * share + 1
    return first, first + share - 1


def main():
    first, last = items_of(os.environ)
    print(f"worker {os.environ.get('JOB_INDEX', 0)}: items {first} to {last}")
    time.sleep(0.2)  # the work would be here


if __name__ == "__main__":
    main()
