"""A training that uses the original library: original_script.py STATE_FILE [HOST]. It saves after end_epoch().

Its first attempt waits in its third epoch for the file STATE_FILE.go; so it is known to run while it is asked to stop.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from original_client import KubeProfiler  # type: ignore[import-not-found]

state = Path(sys.argv[1])
prof = KubeProfiler(*sys.argv[2:], *sys.argv[2:])
done = int(state.read_text()) if prof.RESTARTED else 0
print(f"begins with {done} epochs saved, told {prof.EPOCHS_DONE}", flush=True)
assert done == prof.EPOCHS_DONE
for epoch in range(done, prof.EPOCHS):
    prof.start_epoch()
    for _ in range(prof.TRAINING_SET_SIZE // prof.BATCH_SIZE):
        prof.measure()
    while epoch == 2 and not os.path.exists(f"{state}.go"):
        time.sleep(0.02)
    prof.end_epoch()
    state.write_text(str(epoch + 1))
print("trained to its end", flush=True)
