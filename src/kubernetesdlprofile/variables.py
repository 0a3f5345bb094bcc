"""Variables of KubeProfiler: what does the environment tell a script, and what is assumed where it says nothing?"""

from __future__ import annotations

import os

from jobyard.sdk.environment import number_or


class ProfilerVariables:
    """Read once. Scripts read these names from their profiler, so they keep the spelling of the original."""

    def __init__(self) -> None:
        self.JOBID = os.environ.get("JOB_UUID") or os.environ.get("YARD_JOB_ID") or "local"
        self.PROFILE_EACH = number_or("HEARTBEAT_FREQ", 100, least=1)
        self.RANK = number_or("NODE_RANK", 0)
        self.NODE_LIST = os.environ.get("NODELIST") or os.environ.get("YARD_NODE") or "localhost"
        self.NUM_GPUS = number_or("NUM_GPUS", 1)
        self.NUM_NODES = number_or("NUM_NODES", 1, least=1)
        self.RESTARTED = os.environ.get("JOB_RESTARTED", "").strip().upper() not in ("", "FALSE", "0", "NO")
        self.BATCH_SIZE = number_or("BATCH_SIZE", 32, least=1)
        self.EPOCHS = number_or("EPOCHS_TO_BE_DONE", number_or("YARD_EPOCHS", 1, least=1), least=1)
        self.EPOCHS_DONE = number_or("EPOCHS_DONE", number_or("YARD_EPOCHS_DONE", 0))
        self.TRAINING_SET_SIZE = number_or("TRAINING_SET_SIZE", 1000)
        self.LOCAL_RANK = number_or("LOCAL_RANK", -1, least=-1)
        devices = max(1, self.NUM_GPUS) * self.NUM_NODES
        self.iterationPerEpoch = int(self.TRAINING_SET_SIZE / (self.BATCH_SIZE * devices))
        self.maxIterations = self.iterationPerEpoch * self.EPOCHS
