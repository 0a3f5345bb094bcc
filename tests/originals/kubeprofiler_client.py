"""How the original KubeProfiler library behaves, written anew from kubeprofiler.md.

It knows nothing of a yard. `ORIGINAL_SNAPSHOTS` stands for its `/snapshots`, which is not there outside a container.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import threading
import urllib.error
import urllib.request
from xml.etree import ElementTree

NOT_HERE = "192.0.2.1"  # of the block for documentation: nobody has it
SNAPSHOTS = os.environ.get("ORIGINAL_SNAPSHOTS", "/snapshots")


class KubeProfiler:
    """The seed version."""

    def __init__(self, job_manager_hostname: str = NOT_HERE, db_hostname: str = NOT_HERE) -> None:
        self.job_manager, self.database = job_manager_hostname, db_hostname
        self.JOBID = os.environ["JOB_UUID"]
        self.PROFILE_EACH = int(os.environ["HEARTBEAT_FREQ"])
        self.RANK = int(os.environ["NODE_RANK"])
        self.NODE_LIST = os.environ["NODELIST"]
        self.NUM_GPUS = int(os.environ["NUM_GPUS"])
        self.NUM_NODES = int(os.environ["NUM_NODES"])
        self.RESTARTED = os.environ["JOB_RESTARTED"] != "FALSE"
        self.BATCH_SIZE = int(os.environ["BATCH_SIZE"])
        self.EPOCHS = int(os.environ["EPOCHS_TO_BE_DONE"])
        self.EPOCHS_DONE = int(os.environ["EPOCHS_DONE"])
        self.TRAINING_SET_SIZE = int(os.environ["TRAINING_SET_SIZE"])
        self.epoch = 0
        self.iterations = 0
        self.mean_seconds = 0.0
        self.has_to_stop = False
        self.root_dir = os.path.join(SNAPSHOTS, self.JOBID)
        if not self.RESTARTED and not os.path.isdir(self.root_dir):
            os.mkdir(self.root_dir)
        self._last: datetime.datetime | None = None
        self._epoch_began = datetime.datetime.now()

    def start_epoch(self) -> None:
        threading.Thread(target=self.ask, args=(datetime.datetime.now(),)).start()

    def measure(self) -> None:
        threading.Thread(target=self._count, args=(datetime.datetime.now(),)).start()
        if self.has_to_stop:
            sys.exit()

    def end_epoch(self) -> None:
        threading.Thread(target=self.tell_end, args=(datetime.datetime.now(),)).start()

    def ask(self, now: datetime.datetime) -> None:
        self._epoch_began = now
        answer = self._call("GET", self.job_manager, "has_to_stop")
        if answer == "1" and self.epoch < self.EPOCHS - 1:
            self.has_to_stop = True

    def tell_end(self, now: datetime.datetime) -> None:
        seconds = (now - self._epoch_began).total_seconds()
        self._call("POST", self.database, "profiling", {**self._profile(), "epochDur": seconds})
        self.epoch += 1

    def _count(self, now: datetime.datetime) -> None:
        if self._last is not None:
            self.iterations += 1
            self.mean_seconds += ((now - self._last).total_seconds() - self.mean_seconds) / self.iterations
        self._last = now
        if self.iterations and self.iterations % self.PROFILE_EACH == 0:
            self._call("POST", self.database, "profiling", self._profile())

    def _profile(self) -> dict[str, object]:
        return {
            "jobid": self.JOBID,
            "timestamp": datetime.datetime.now().isoformat(),
            "iternum": self.iterations,
            "nodelist": self.NODE_LIST,
            "numgpu": self.NUM_GPUS,
            "rank": self.RANK,
            "meandur": self.mean_seconds,
            "gpumem": self._memory_mib(),
        }

    def _memory_mib(self) -> int:
        with os.popen("nvidia-smi -q -x") as answer:
            tree = ElementTree.fromstring(answer.read())
        mine = [each for each in tree.findall("gpu/processes/process_info") if each.findtext("pid") == str(os.getpid())]
        return int(mine[-1].findtext("used_memory", "0 MiB").split()[0]) if mine else 0

    def _call(self, method: str, host: str, verb: str, body: dict[str, object] | None = None) -> str:
        request = urllib.request.Request(
            f"http://{host}/{verb}/{self.JOBID}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request) as answer:
                text: str = answer.read().decode()
                return text
        except (urllib.error.URLError, OSError) as error:
            print(f"{verb}: {error}", flush=True)
            return ""


class LaterKubeProfiler(KubeProfiler):
    """The later version."""

    def __init__(self, *hosts: str) -> None:
        super().__init__(*hosts)
        self.epoch = self.EPOCHS_DONE

    def start_epoch(self) -> None:
        self.ask(datetime.datetime.now())

    def end_epoch(self) -> None:
        self.tell_end(datetime.datetime.now())

    def tell_end(self, now: datetime.datetime) -> None:
        super().tell_end(now)
        self._call("POST", self.job_manager, "end_epoch", {"done": self.epoch})
