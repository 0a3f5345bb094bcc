"""Fake GPUs: how do they behave? Memory that ramps up, strangers, out of memory.

Usage: python -m jobyard.agent.devices.fake_gpu hold 20GiB --ramp 10 --util 60 --device 0 -- CMD...
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import Any, Dict, Iterator, List, Optional

from jobyard.agent.devices.gpus import Device, Usage
from jobyard.agent.system import processes

_SPEC = re.compile(r"(\d+)x(?:([A-Z][\w.-]*):)?(\d+(?:\.\d+)?)([MGT])(?:i?B)?", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([MGT]?)(?:i?B)?", re.IGNORECASE)
_LETTERS = {"": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}
_TICK_SECONDS = 0.05


def parse_devices(spec: str) -> List[Device]:
    """`4x80GiB` as devices, or of kinds `2xH100:80GiB,1xA100:40GiB`. Raises ValueError with what can be written."""
    found = []  # type: List[Device]
    for part in spec.split(","):
        match = _SPEC.fullmatch(part.strip())
        if not match:
            shown = "COUNTxSIZE or COUNTxKIND:SIZE, for example 4x80GiB or 2xH100:80GiB,1xA100:40GiB"
            raise ValueError("fake GPUs: cannot read %r; write %s" % (spec, shown))
        name, mib = "fake %s" % (match[2] or "GPU"), int(float(match[3]) * _LETTERS[match[4].upper()])
        first = len(found)
        found += [Device(i, name, mib, "FAKE-GPU-%d" % i, True) for i in range(first, first + int(match[1]))]
    return found


def parse_mib(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError("cannot read %r as a size; write 512MiB, 20GiB or a number of MiB" % text)
    return int(float(match[1]) * _LETTERS[match[2].upper()])


def default_directory() -> str:
    return os.environ.get("JOBYARD_FAKE_GPU_DIR") or "/tmp/jobyard-fake-gpus-%d" % os.getuid()


class FakeGpus:
    """Simulated devices: one small file per process that holds memory on one of them."""

    def __init__(self, devices: List[Device], directory: str = "") -> None:
        self._devices = devices
        self._directory = directory or default_directory()
        os.makedirs(self._directory, mode=0o700, exist_ok=True)

    def devices(self) -> List[Device]:
        return self._devices

    def usage(self) -> List[Usage]:
        holds = self._holds()
        result = []
        for device in self._devices:
            mine = [hold for hold in holds if hold["device"] == device.index]
            by_pid: Dict[int, int] = {}
            for hold in mine:
                by_pid[hold["pid"]] = by_pid.get(hold["pid"], 0) + _mib_now(hold)
            utilisation = min(100, sum(int(hold["utilisation"]) for hold in mine))
            result.append(Usage(device.index, sum(by_pid.values()), utilisation, by_pid))
        return result

    def ran_out_of_memory(self, pid: int, start_time: int) -> bool:
        try:
            os.unlink(self._mark(pid, start_time))
        except OSError:
            return False
        return True

    def hold(self, device: int, mib: int, ramp: float, utilisation: int) -> None:
        """From now on this process allocates on a device. Raises ValueError if there is no such device."""
        if device not in [known.index for known in self._devices]:
            raise ValueError("no fake GPU %d; there are %d" % (device, len(self._devices)))
        pid = os.getpid()
        content = {"pid": pid, "start_time": processes.start_time(pid), "device": device, "mib": mib, "ramp": ramp}
        content.update(begin=time.time(), utilisation=utilisation)
        draft = os.path.join(self._directory, ".%d.tmp" % pid)
        with open(draft, "w") as file:
            json.dump(content, file)
        os.replace(draft, self._path(pid))

    def let_go(self) -> None:
        _remove(self._path(os.getpid()))

    def fails(self, device: int) -> bool:
        """Is the device over its size, and this process the last that asked for more?

        Then what it holds is freed, and its session is marked. Who has all it wants is never the one to fail.
        """
        with self._locked():
            holds = [hold for hold in self._holds() if hold["device"] == device]
            if sum(map(_mib_now, holds)) <= self._devices[device].memory_mib:
                return False
            last = max(holds, key=lambda hold: (float(hold["begin"]) + float(hold["ramp"]), int(hold["pid"])))
            if last["pid"] != os.getpid():
                return False
            leader = os.getsid(0)
            with open(self._mark(leader, processes.start_time(leader)), "w"):
                pass
            self.let_go()
            return True

    def _holds(self) -> List[Dict[str, Any]]:
        found = []
        for name in os.listdir(self._directory):
            if not name.endswith(".hold"):
                continue
            path = os.path.join(self._directory, name)
            try:
                with open(path) as file:
                    hold = json.load(file)
                alive = processes.is_alive(hold["pid"], hold["start_time"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if alive:
                found.append(hold)
            else:
                _remove(path)
        return found

    def _path(self, pid: int) -> str:
        return os.path.join(self._directory, "%d.hold" % pid)

    def _mark(self, pid: int, start_time: int) -> str:
        return os.path.join(self._directory, "%d-%d.out-of-memory" % (pid, start_time))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _mib_now(hold: Dict[str, Any]) -> int:
    ramp = float(hold["ramp"])
    share = 1.0 if ramp <= 0 else min(1.0, max(0.0, (time.time() - hold["begin"]) / ramp))
    return int(hold["mib"] * share)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _run_holding(gpus: FakeGpus, device: int, command: List[str]) -> int:
    """Run a command as long as the device has room; its exit code, or 1 when the device is full."""
    child = subprocess.Popen(command) if command else None
    if child is not None:
        # The child gets SIGTERM with the whole group; what it makes of it is its own affair.
        signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number))
    while True:
        if gpus.fails(device):
            print("OutOfMemoryError: CUDA out of memory (fake GPU %d of Jobyard is full)" % device, file=sys.stderr)
            if child is not None:
                child.kill()
                child.wait()
            return 1
        if child is None:
            time.sleep(_TICK_SECONDS)
            continue
        try:
            code = child.wait(timeout=_TICK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return code if code >= 0 else 128 - code


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="fake_gpu",
        usage="%(prog)s hold SIZE [options] [-- CMD...]",
        description="Hold memory of a fake GPU while a command runs.",
    )
    parser.add_argument("verb", choices=["hold"])
    parser.add_argument("size", help="how much in the end: 512MiB, 20GiB")
    parser.add_argument("--ramp", type=float, default=0.0, metavar="SECONDS", help="grow to it over this time")
    parser.add_argument("--device", type=int, help="default: the first of CUDA_VISIBLE_DEVICES, or 0")
    parser.add_argument(
        "--util",
        "--utilisation",
        dest="utilisation",
        type=int,
        choices=range(101),
        default=100,
        metavar="PERCENT",
        help="how busy it keeps the device",
    )
    words = sys.argv[1:] if argv is None else argv
    split = words.index("--") if "--" in words else len(words)
    options, command = parser.parse_args(words[:split]), words[split + 1 :]
    device = options.device
    if device is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
        if not visible:
            print("fake_gpu: no device is visible (CUDA_VISIBLE_DEVICES is empty); give --device", file=sys.stderr)
            return 2
        device = int(visible.split(",")[0])
    try:
        gpus = FakeGpus(parse_devices(os.environ.get("JOBYARD_FAKE_GPUS") or "1x80GiB"))
        gpus.hold(device, parse_mib(options.size), options.ramp, options.utilisation)
    except ValueError as error:
        print("fake_gpu: %s" % error, file=sys.stderr)
        return 2
    try:
        return _run_holding(gpus, device, command)
    finally:
        gpus.let_go()


if __name__ == "__main__":
    sys.exit(main())
