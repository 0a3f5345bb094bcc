"""Who has just ended, so that another one may grow? Looked at in a thread, while an app serves."""

from __future__ import annotations

import logging
import threading

from jobyard.compat.genai.desk import Desk, NotPossible
from jobyard.compat.genai.records import COMPLETED
from jobyard.errors import YardError

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
CHANCES = 10


class Watch:
    """The yard's jobs and those of others alike: of the latter no journal tells."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._is_over = threading.Event()
        self._done: set[str] | None = None  # who had completed at the last look; None: there was none
        self._saved: dict[str, float] = {}
        self._chances = 0  # looks in which what a job left is still to be given to another
        self._thread = threading.Thread(target=self._look_on, name="genai-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()

    def _look_on(self) -> None:
        while True:
            try:
                self.look()
            except YardError as error:  # a server or a cluster that is away comes back
                log.warning("%s", error)
            except Exception:
                log.exception("looking for jobs that ended failed")
            if self._is_over.wait(LOOK_SECONDS):
                return

    def look(self) -> None:
        """Once: tidy, see who saved, see who completed."""
        self._desk.tidy()
        records = {each.job_name: each for each in self._desk.records()}
        for name, record in records.items():
            if record.last_checkpoint_time > self._saved.get(name, record.last_checkpoint_time):
                _say(self._desk.has_saved(name))
            self._saved[name] = record.last_checkpoint_time
        # Not those who ran at the last look: one may begin and end between two.
        before, self._done = self._done, {each.key for each in records.values() if each.status == COMPLETED}
        if before is not None and self._done - before:
            self._chances = CHANCES
        if self._chances:
            self._use_room()

    def _use_room(self) -> None:
        """Again at the next looks, where it is not free yet, or somebody else is just being resized."""
        self._chances -= 1
        try:
            said = self._desk.make_use_of_room()
        except NotPossible as error:
            if not self._chances:
                _say(f"nobody grows: {error}")
            return
        if said:
            self._chances = 0
            _say(said)


def _say(sentence: str) -> None:
    if sentence:
        log.info("%s", sentence)
