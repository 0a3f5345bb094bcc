"""Launches on one machine: which go out to its agent, and what becomes of those that cannot?"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from jobyard.agent_protocol import faults
from jobyard.errors import Unavailable, YardError
from jobyard.executors.agent_link import AgentLink, line
from jobyard.executors.agent_messages import Addresses, LaunchMessages
from jobyard.executors.machine_room import MachineRoom
from jobyard.executors.protocol import SubmittedJob, YardView
from jobyard.model.effects import Launch
from jobyard.model.events import AttemptsFinished, AttemptsWithdrawn, Event, Finished
from jobyard.model.job import Reason
from jobyard.model.task import AttemptId, Outcome, Slot

log = logging.getLogger(__name__)


class Launches:
    """Over one link. A launch that was not sent is absent in the next reconcile; one that is impossible fails."""

    def __init__(
        self,
        room: MachineRoom,
        yard: YardView,
        link: AgentLink,
        messages: LaunchMessages,
        tell: Callable[[list[Event]], None],
    ) -> None:
        self._room = room
        self._yard = yard
        self._link = link
        self._messages = messages
        self._tell = tell
        self._known_jobs: dict[str, int] = {}  # by this agent, with as many tasks as they had

    def forget_jobs(self) -> None:
        """After a new connection each job is sent again before its next launch."""
        self._known_jobs = {}

    def addresses(self) -> Addresses:
        """For the launches that follow now: a gang has thousands of them, and each of its ranks is on some machine."""
        return cache(lambda job: self._yard.gang_addresses(job))

    def launch(self, slot: Slot, attempts: Sequence[AttemptId], addresses: Addresses) -> None:
        """Over a link that is up. An error concerns these attempts alone."""
        try:
            self._launch(slot, attempts, addresses)
        except Unavailable as error:  # the next reconcile tries again
            log.warning("job %s on %s: %s", slot.job, self._room.node, error)
        except Exception as error:
            self._cannot_launch(attempts, error)

    def launch_absent(self, absent: Iterable[str]) -> None:
        """Launch attempts that the agent has no record of; withdraw those that were asked to stop meanwhile."""
        held = set(self._yard.quarantined_jobs())
        missing = {attempt for text in absent if (attempt := AttemptId.parse(text)).job not in held}
        by_slot: defaultdict[Slot, list[AttemptId]] = defaultdict(list)
        withdrawn = []
        for item in self._yard.live_attempts(self._room.node):
            if item.attempt in missing and item.is_stopping:
                withdrawn.append(item.attempt)
            elif item.attempt in missing:
                by_slot[item.slot].append(item.attempt)
        if withdrawn:
            self._tell([AttemptsWithdrawn(tuple(withdrawn), time.time())])
        if self._link.is_up:
            addresses = self.addresses()
            for slot, attempts in by_slot.items():
                self.launch(slot, sorted(attempts), addresses)

    def refuse(self, attempts: Iterable[AttemptId], sentence: str) -> None:
        """They have ended before they began."""
        now = time.time()
        outcome = Outcome(now, now, reason=Reason.REFUSED, message=sentence)
        self._tell([AttemptsFinished(tuple(Finished(attempt, outcome) for attempt in attempts), now)])

    def preview(self, job: SubmittedJob, launch: Launch) -> str:
        # The submitting shell's environment goes along as well; it is long, private, and not ours to print.
        job = job._replace(spec=job.spec.with_shell({}))
        shared = self._messages.job(job)
        described, addresses = self._room.described, self.addresses()
        messages = [shared, self._messages.launch(job, launch.slot, launch.attempts, described, addresses)]
        return "\n".join(json.dumps(message, indent=2) for message in messages)

    def _launch(self, slot: Slot, attempts: Sequence[AttemptId], addresses: Addresses) -> None:
        job = self._yard.job(slot.job)
        if self._room.owner_only and job.spec.submitter.submitted_with:
            # Placed when this machine ran tasks as another user. Under the server's own account it must not start.
            self._tell([AttemptsWithdrawn(tuple(attempts), time.time())])
            return
        launch = line(self._messages.launch(job, slot, attempts, self._room.described, addresses))
        if self._known_jobs.get(slot.job) != job.spec.size:  # an elastic job may have another size now
            self._link.write(line(self._messages.job(job)))
            self._known_jobs[slot.job] = job.spec.size
        faults.point("server-launching")
        self._link.write(launch)

    def _cannot_launch(self, attempts: Sequence[AttemptId], error: Exception) -> None:
        """It was not sent, and never can be: these attempts fail, and no others."""
        told = str(error) if isinstance(error, YardError) else f"{type(error).__name__}: {error}"
        sentence = f"it cannot be launched ({told})"
        self._yard.count_error("launch", f"job {attempts[0].job} on {self._room.node}: {sentence}", error)
        self.refuse(attempts, sentence)
