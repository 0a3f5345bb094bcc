"""Service state, in memory: which jobs are to grow, and which checkpoints were reported? Lost when the process ends."""

from __future__ import annotations

import threading

from jobyard.compat.genai.checkpoint_reports import Report
from jobyard.compat.genai.records import Identity, JobMetadata, with_report


class ServiceState:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: dict[str, Report] = {}  # by the name of a job
        self._waiting: set[Identity] = set()  # jobs that grow at their next checkpoint
        self.added: set[str] = set()  # names of PyTorchJobs that were added by hand
        self.sized: dict[str, int] = {}  # jobs that we gave a size; when they have it, the scheduler may choose again

    def tell(self, name: str, report: Report) -> None:
        with self._lock:
            known = self._reports.get(name)
            if known is None or report.at > known.at:
                self._reports[name] = known.then(report) if known else report

    def see(self, record: JobMetadata) -> JobMetadata:
        """The record with the reports added; what the yard knows of its checkpoints is remembered too."""
        if record.has_saved:
            epochs, total = record.completed_epochs, record.total_epochs
            self.tell(record.job_name, Report(record.last_checkpoint_time, None, epochs, total))
        known = self._reports.get(record.job_name)
        # A name may be used again: reports of an earlier job do not count for this one.
        return with_report(record, known if known and known.at >= record.job_arrival_time else None)

    def let_wait(self, record: JobMetadata) -> None:
        with self._lock:
            self._waiting.add(record.identity)

    def is_waiting(self, record: JobMetadata) -> bool:
        return record.identity in self._waiting

    def take(self, record: JobMetadata) -> bool:
        """Was it waiting for its next checkpoint?"""
        with self._lock:
            if record.identity not in self._waiting:
                return False
            self._waiting.remove(record.identity)
            return True
