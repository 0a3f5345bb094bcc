"""Receiving: how does `--receive` take a snapshot in?"""

from __future__ import annotations

import errno
import sys

from jobyard.agent.bridge import EXIT_READ_ONLY
from jobyard.agent.files import places, snapshots
from jobyard.agent_protocol.messages import snapshot_id


def run(yard: str, snapshot: str) -> int:
    """Unpack what comes over stdin; `ok` on stdout, or one sentence on stderr."""
    state = ""
    try:
        state = places.of_yard(yard).state
        snapshots.receive(state, snapshot_id(snapshot), sys.stdin.buffer)
    except (snapshots.BadArchive, ValueError) as error:
        print("jobyard agent: %s" % error, file=sys.stderr)
        return 1
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full" if is_full else "the job's files cannot be written"
        print("jobyard agent: %s: %s/snapshots: %s" % (why, state, error.strerror), file=sys.stderr)
        return EXIT_READ_ONLY
    print("ok", flush=True)
    return 0
