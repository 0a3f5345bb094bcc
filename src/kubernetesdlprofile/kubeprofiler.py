"""KubeProfiler class: what does a script that was written for KubeProfiler find?"""

from __future__ import annotations

from datetime import datetime

from jobyard.sdk.job import YardJob, usable_directory
from kubernetesdlprofile.paths import newest_checkpoint, root_directory
from kubernetesdlprofile.variables import ProfilerVariables


class KubeProfiler(ProfilerVariables):
    """Every name of the original, with a default where its variable is missing.

    The process ends, with code 85, only in `start_epoch()` or in the first `measure()` after it, never in `end_epoch()`
    and never when the last epoch is to begin. The host names are kept and not used: reports go to the yard's own file.
    """

    def __init__(self, job_manager_hostname: str = "localhost", db_hostname: str = "localhost") -> None:
        super().__init__()
        self.jmHostname = job_manager_hostname
        self.dbHostname = db_hostname
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
