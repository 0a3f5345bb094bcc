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
ASKED_SECONDS = 5.0  # so long who tells of an end waits for the look that another is at
CHANCES = 10


class Watch:
    """The yard's jobs and those of others alike: of the latter no journal tells."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._is_over = threading.Event()
        self._looking = threading.Lock()  # or two looks would choose somebody each for one job that ended
        # Who had completed at some look; None: there was none. One who is not seen for a while has not ended again.
        self._done: set[Identity] | None = None
        self._told: deque[Identity] = deque()  # who is said to have completed, since the last look
        self._used: set[Identity] = set()  # whose end somebody else's growing was for, or is to be for
        self._saved: dict[Identity, float] = {}
        self._turns = 0  # so many may grow for those that ended
        self._chances = 0  # looks in which the first of them may find room
        self._thread = threading.Thread(target=self._look_on, name="genai-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()

    def completed(self, record: JobMetadata) -> None:
        """Somebody says so of a job that has: it is looked at now. Each end counts once, however often it is told."""
        self._told.append(record.identity)
        if self._looking.acquire(timeout=ASKED_SECONDS):  # or the next look hears of it
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
        except YardError as error:  # a server or a cluster that is away comes back
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
        # Not those who ran at the last look: one may begin and end between two.
        new = (told if self._done is None else told | (done - self._done)) - self._used
        self._done = (self._done or set()) | done
        self._used |= new
        if new:
            self._turns, self._chances = self._turns + len(new), CHANCES
        for sentence in have_grown:
            _say(sentence)
        if self._turns and not any(have_grown):  # else what is free is to be looked at anew
            self._use_room(records)

    def _is_newly_saved(self, record: JobMetadata) -> bool:
        return record.last_checkpoint_time > self._saved.get(record.identity, record.last_checkpoint_time)

    def _use_room(self, records: list[JobMetadata]) -> None:
        """Again at the next looks, where it is not free yet, or somebody is just being resized."""
        try:
            said = self._service.make_use_of_room(records)
        except YardError as error:  # whatever it is: a turn that nobody can take ends
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
