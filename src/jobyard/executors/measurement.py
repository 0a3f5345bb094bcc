"""Measurement: what does what an agent measured mean for the yard?"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from jobyard.model.events import NodeMeasured
from jobyard.model.node import DeviceUse, Foreign

# Each change in what others hold starts a scheduling cycle, so amounts are rounded to steps.
MEMORY_STEP_MIB = 256
PERCENT_STEP = 10


class Measurements:
    """Reads the `measured` messages of one machine.

    The agent subtracts what our attempts use of memory. Of a GPU's compute it can only tell how busy the whole device
    is. So others' share is measured while no slot of this yard is on the device; from then on it is believed to stay
    as it was, or to be what the whole device shows, if that is less.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._percent: dict[int, int] = {}  # what others use of a device

    def read(self, message: dict[str, Any], ours: Collection[int], at: float) -> NodeMeasured:
        """`ours` are the devices on which this yard has a slot now."""
        use = tuple(DeviceUse(seen["index"], seen["used_mib"], seen["utilisation"]) for seen in message["devices"])
        for device in use:
            before = self._percent.get(device.index, 0) if device.index in ours else 100
            self._percent[device.index] = min(before, round(device.percent / PERCENT_STEP) * PERCENT_STEP)
        foreign = message["foreign"]
        percents = {int(index): percent for index, percent in foreign.get("device_percent", {}).items()}
        for index, percent in self._percent.items():  # what is reserved counts before it is used
            percents[index] = max(percent, percents.get(index, 0))
        return NodeMeasured(
            self._node,
            Foreign(
                cpu_millis=foreign["cpu_millis"],
                memory_mib=-(-foreign["memory_mib"] // MEMORY_STEP_MIB) * MEMORY_STEP_MIB,
                device_mib=tuple(sorted((int(index), mib) for index, mib in foreign["device_mib"].items() if mib)),
                whole_devices=tuple(foreign.get("whole_devices", ())),
                holders=tuple(foreign.get("holders", ())),
                doubts=tuple(foreign.get("doubts", ())),
                device_percent=tuple((index, percent) for index, percent in sorted(percents.items()) if percent),
            ),
            at,
            message["load"],
            use,
        )
