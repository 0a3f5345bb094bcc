"""KubeProfiler class: what does a script that was written for KubeProfiler find?"""

from __future__ import annotations

import os
from datetime import datetime

from jobyard.sdk.environment import number_or
from jobyard.sdk.job import YardJob, usable_directory
from kubernetesdlprofile.paths import newest_checkpoint, root_directory


class KubeProfiler:
    """Every name of the original, with a default where its variable is missing.

    The process ends, with code 85, only in `start_epoch()` or in the first `measure()` after it, never in `end_epoch()`
    and never when the last epoch is to begin. The host names are kept and not used: reports go to the yard's own file.
    """

    def __init__(self, job_manager_hostname: str = "localhost", db_hostname: str = "localhost") -> None:
        self.jmHostname = job_manager_hostname
        self.dbHostname = db_hostname
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
        self.last_time: datetime | None = None
        self.start_epoch_time: datetime | None = None
        self.end_epoch_time: datetime | None = None
        self.root_dir = root_directory(self.JOBID)
        usable_directory(self.root_dir)
        self.ckpt_path = newest_checkpoint(self.root_dir)
        self._job = YardJob(
            total=self.EPOCHS,
            done=self.EPOCHS_DONE,
            resumed=self.RESTARTED,
            heartbeat=self.PROFILE_EACH,
            reports=self.LOCAL_RANK <= 0 and self.RANK == 0,
            stops_in_first_step=True,
        )

    @property
    def epoch(self) -> int:
        """Epochs that are over, those of earlier attempts included."""
        return self._job.epochs_done

    @property
    def iterations(self) -> int:
        return self._job.steps

    @property
    def mean_iteration_duration(self) -> float:
        """Seconds; validation and saving between two epochs do not count."""
        return self._job.step_seconds

    @property
    def has_to_stop(self) -> bool:
        """Asked to, and there is more to do than the last epoch."""
        return self._job.should_stop and self._job.can_stop_after(self._job.epochs_done)

    def start_epoch(self) -> None:
        """An epoch begins, unless the yard asked to stop: what was done is saved by now."""
        self.start_epoch_time = datetime.now()
        self._job.start_epoch()

    def measure(self) -> None:
        """One training step is over; the first of an epoch is the last one, if the yard asked to stop meanwhile."""
        self.last_time = datetime.now()
        self._job.measure()

    def end_epoch(self) -> None:
        """An epoch, its validation included, is over. Returns always: people save after it."""
        self.end_epoch_time = datetime.now()
        self._job.end_epoch()

    def end(self) -> None:
        """Does nothing, as in the original: the end of the process is enough."""
