"""Change set: what has changed since the planner last looked? It may be thrown away: then the planner looks at all."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Changes:
    slots: dict[str, None] = field(default_factory=dict)  # they may take more tasks or must close; oldest change first
    measured: dict[str, None] = field(default_factory=dict)  # jobs whose use of GPUs, or whose epoch, is new
    begun: dict[str, None] = field(default_factory=dict)  # jobs that got a slot, until they can wait for no deadline
    wants: dict[str, None] = field(default_factory=dict)  # jobs that may want something else from the scheduler now
    nodes: bool = False  # what nodes have, or which there are
    plan: bool = False  # anything that the scheduler should look at
