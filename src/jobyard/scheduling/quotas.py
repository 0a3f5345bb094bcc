"""Quotas: how much of a cluster may the yard still use? The sum of all that it holds there stays within a quota."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from jobyard.model.gpu_kinds import means_slices
from jobyard.model.job import Reason
from jobyard.model.node import Quota
from jobyard.model.resources import Resources
from jobyard.model.units import show_cpus, show_mib
from jobyard.scheduling.snapshot import Wait

Amounts = Counter[str]  # by the names of the fields of a Quota

_IN_WORDS: dict[str, Callable[[int], str]] = {
    "cpu_millis": lambda amount: f"{show_cpus(amount)} cpu{'' if amount == 1000 else 's'}",
    "memory_mib": lambda amount: f"{show_mib(amount)} memory",
    "gpus": lambda amount: f"{amount} GPU{'' if amount == 1 else 's'}",
    "tasks": lambda amount: f"room for {amount} task{'' if amount == 1 else 's'}",
}


def whole_gpus(resources: Resources) -> int:
    """Those that a quota counts: slices of GPUs are resources of their own."""
    return 0 if means_slices(resources.gpu_kind) else resources.gpus


def amounts_of(asked: Iterable[tuple[Resources, int]]) -> Amounts:
    """What so many slots of each take of a quota."""
    total: Amounts = Counter()
    for resources, count in asked:
        total["cpu_millis"] += resources.cpu_millis * count
        total["memory_mib"] += resources.memory_mib * count
        total["gpus"] += whole_gpus(resources) * count
        total["tasks"] += count
    return total


class Allowance:
    """What is left of a cluster's quota during one cycle. Mutable: openings take from it."""

    def __init__(self, cluster: str, quota: Quota) -> None:
        self.cluster = cluster
        self._most = {name: most for name in _IN_WORDS if (most := getattr(quota, name)) is not None}
        self._left: Amounts = Counter(self._most)
        self._kept: Amounts = Counter()  # for earlier jobs, which wait
        self._ahead = ""  # the first of them

    def give(self, resources: Resources, slots: int = 1) -> None:
        """So many slots get what they hold. Asked for each slot in each plan: no counter is made for it."""
        left = self._left
        left["cpu_millis"] -= slots * resources.cpu_millis
        left["memory_mib"] -= slots * resources.memory_mib
        left["gpus"] -= slots * whole_gpus(resources)
        left["tasks"] -= slots

    def take_back(self, resources: Resources) -> None:
        self.give(resources, -1)

    def give_amounts(self, amounts: Amounts) -> None:
        self._left.subtract(amounts)

    def take_back_amounts(self, amounts: Amounts) -> None:
        self._left.update(amounts)

    def copy(self) -> Allowance:
        other = Allowance(self.cluster, Quota())
        other._most, other._ahead = self._most, self._ahead
        other._left, other._kept = self._left.copy(), self._kept.copy()
        return other

    def could_ever(self, amounts: Amounts) -> bool:
        return all(amounts[name] <= most for name, most in self._most.items())

    def keep(self, amounts: Amounts, called: str, jobs: int = 1) -> None:
        """No later job may take what this one waits for, and so many in all that want the same; `called` is its name
        for people."""
        self._kept += Counter({name: jobs * min(amounts[name], most) for name, most in self._most.items()})
        self._ahead = self._ahead or called

    def lacking(self, amounts: Amounts) -> list[str]:
        """Which amounts are too small for this, whatever is kept for others. An omitted amount is never lacking."""
        return [name for name in self._most if 0 < amounts[name] > self._left[name]]

    def allows(self, amounts: Amounts) -> bool:
        return not any(0 < amounts[name] > self._left[name] - self._kept[name] for name in self._most)

    def why_not(self, amounts: Amounts) -> Wait:
        """In words, where it is not allowed."""
        lacking = self.lacking(amounts)
        if not lacking:
            sentence = f"job {self._ahead} is ahead of it and waits for the same quota of cluster {self.cluster}"
            return Wait(Reason.PRIORITY, sentence)
        told = [self._told(name, amounts[name]) for name in lacking]
        return Wait(Reason.QUOTA, f"{' and '.join(told)} in the quota of cluster {self.cluster}")

    def _told(self, name: str, asked: int) -> str:
        words, most = _IN_WORDS[name], self._most[name]
        if asked > most:
            return f"needs {words(asked)}, and there is never more than {words(most)}"
        return f"needs {words(asked)}, and {words(max(0, self._left[name]))} of {words(most)} is left"
