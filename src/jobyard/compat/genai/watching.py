"""Who has just ended, so that another one may grow? Looked at in a thread, while an app serves."""

from __future__ import annotations

import logging
import threading

from jobyard.compat.genai.desk import Desk
from jobyard.compat.genai.records import COMPLETED
from jobyard.errors import YardError

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0


class Watch:
    """The yard's jobs and those of others alike: of the latter no journal tells."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._is_over = threading.Event()
        self._running: set[str] | None = None  # None: nothing was seen yet
        self._saved: dict[str, float] = {}
        self._thread = threading.Thread(target=self._look_on, name="genai-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()

    def _look_on(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            try:
                self.look()
            except YardError as error:  # a server or a cluster that is away comes back
                log.warning("%s", error)
            except Exception:
                log.exception("looking for jobs that ended failed")

    def look(self) -> None:
        """Once: tidy, see who saved, see who completed."""
        self._desk.tidy()
        records = {each.job_name: each for each in self._desk.records()}
        for name, record in records.items():
            if record.last_checkpoint_time > self._saved.get(name, record.last_checkpoint_time):
                _say(self._desk.has_saved(name))
            self._saved[name] = record.last_checkpoint_time
        was_running, self._running = self._running, {n for n, each in records.items() if not each.has_ended}
        done = [name for name, each in records.items() if each.status == COMPLETED]
        if was_running is not None and was_running & set(done):
            _say(self._desk.make_use_of_room())


def _say(sentence: str) -> None:
    if sentence:
        log.info("%s", sentence)
