"""Watch for ended jobs: which job has just ended, so that another one may grow? A thread beside the HTTP app."""

from __future__ import annotations

import logging
import threading
from collections import deque

from jobyard.compat.genai.records import Identity, JobMetadata
from jobyard.compat.genai.service import Service
from jobyard.errors import YardError

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
ASKED_SECONDS = 5.0  # how long a caller waits for a look that another thread is doing
CHANCES = 10


class Watch:
    """By polling, because jobs of others are in no journal."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._is_over = threading.Event()
        self._looking = threading.Lock()  # otherwise two looks could each let a job grow for one ended job
        # Jobs that were completed at some look; None: no look yet. A job that is missing once has not ended again.
        self._done: set[Identity] | None = None
        self._told: deque[Identity] = deque()  # jobs that were reported as completed, since the last look
        self._used: set[Identity] = set()  # ended jobs for which another one has grown, or is to grow
        self._saved: dict[Identity, float] = {}
        self._turns = 0  # how many jobs may grow for those that ended
        self._chances = 0  # remaining tries for the first of them to find room
        self._thread = threading.Thread(target=self._look_on, name="genai-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()

    def completed(self, record: JobMetadata) -> None:
        """A job was reported as completed: look now. Each end counts once, however often it is reported."""
        self._told.append(record.identity)
        if self._looking.acquire(timeout=ASKED_SECONDS):  # otherwise the next look finds it
            try:
                self._look_safely()
            finally:
                self._looking.release()

    def look(self) -> None:
        with self._looking:
            self._look()

    def _look_on(self) -> None:
        while True:
            with self._looking:
                self._look_safely()
            if self._is_over.wait(LOOK_SECONDS):
                return

    def _look_safely(self) -> None:
        try:
            self._look()
        except YardError as error:  # a server or a cluster that does not answer may come back
            log.warning("%s", error)
        except Exception:
            log.exception("looking for jobs that ended failed")

    def _look(self) -> None:
        """Once: tidy, see who saved, see who completed."""
        records, done = self._service.look()
        self._service.tidy(records)
        have_grown = [self._service.has_saved(each) for each in records if self._is_newly_saved(each)]
        self._saved = {each.identity: each.last_checkpoint_time for each in records}
        told = {self._told.popleft() for _ in range(len(self._told))}
        # Not only jobs that ran at the last look: a job may start and end between two looks.
        new = (told if self._done is None else told | (done - self._done)) - self._used
        self._done = (self._done or set()) | done
        self._used |= new
        if new:
            self._turns, self._chances = self._turns + len(new), CHANCES
        for sentence in have_grown:
            _say(sentence)
        if self._turns and not any(have_grown):  # otherwise what is free must be read again first
            self._use_room(records)

    def _is_newly_saved(self, record: JobMetadata) -> bool:
        return record.last_checkpoint_time > self._saved.get(record.identity, record.last_checkpoint_time)

    def _use_room(self, records: list[JobMetadata]) -> None:
        """Tried again at the next looks, where nothing is free yet, or a job is being resized."""
        try:
            said = self._service.grow_next(records)
        except YardError as error:  # whatever the error is: after some tries the turn is dropped
            self._chances -= 1
            if not self._chances:
                self._turns = 0
                _say(f"nobody grows: {error}")
            return
        if said:
            self._turns, self._chances = self._turns - 1, CHANCES
            _say(said)


def _say(sentence: str) -> None:
    if sentence:
        log.info("%s", sentence)
