"""Open yard: what do routes work with? One open yard: its loop, database and knobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Engine

from jobyard import settings
from jobyard.server.access import Revocations
from jobyard.server.environments import Environments
from jobyard.server.housekeeping import Housekeeping
from jobyard.server.lifetime import Lifetime
from jobyard.server.loop import YardLoop
from jobyard.server.machines import Machines
from jobyard.server.output_files import OutputFiles
from jobyard.settings import ServerKnobs


@dataclass(frozen=True)
class Yard:
    """What routes work with."""

    loop: YardLoop
    machines: Machines
    engine: Engine
    lifetime: Lifetime
    directory: str
    yard_id: str
    listen: str
    database: str
    started_at: float
    build: str
    environments: Environments
    housekeeping: Housekeeping
    output_files: OutputFiles
    revocations: Revocations = field(default_factory=Revocations)
    refusal_seconds: float = field(default_factory=lambda: settings.knobs(ServerKnobs).refusal_seconds)
    heartbeat_seconds: float = field(default_factory=lambda: settings.knobs(ServerKnobs).heartbeat_seconds)
