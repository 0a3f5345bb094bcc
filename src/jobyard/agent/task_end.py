"""End of a task: how does `--until-end` tell whoever forwards its ports that it runs, and when it no longer does?"""

from __future__ import annotations

import os
import select
import signal
import sys

from jobyard.agent import running_task
from jobyard.agent.running_task import CannotReach

EXIT_REFUSED = EXIT_ENDED = 2
RUNS = b"jobyard task runs\n"
_LOOK_SECONDS = 0.5


def run(state_dir: str, attempt: str, called: str) -> int:
    """One line once it is known to run; returns when it has ended, or when stdin has. A refusal is on stderr."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        running_task.become_owner(state_dir)
        task = running_task.find(state_dir, attempt)
    except (CannotReach, ValueError) as error:
        print("yard: %s %s" % (called, error), file=sys.stderr)
        return EXIT_REFUSED
    os.write(1, RUNS)
    while task.is_alive:
        if select.select([0], [], [], _LOOK_SECONDS)[0] and not os.read(0, 4096):
            return 0
    return EXIT_ENDED
