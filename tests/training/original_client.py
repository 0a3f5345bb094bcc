"""How the original KubeProfiler library behaves on the wire, written anew from its documented behaviour.

It knows nothing of a yard: it posts to two hosts, asks one of them whether it has to stop, and leaves with exit code 0.
The first host names are those of a cluster that is not here; without arguments it gets through by `http_proxy` only.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
import urllib.error
import urllib.request

NOT_HERE = "192.0.2.1"  # of the block for documentation: nobody has it


class KubeProfiler:
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
        self.epoch = self.EPOCHS_DONE
        self.iterations = 0
        self.mean_seconds = 0.0
        self.has_to_stop = False
        self._last: float | None = None
        self._epoch_began = time.time()

    def start_epoch(self) -> None:
        self._epoch_began = time.time()
        answer = self._call("GET", self.job_manager, "has_to_stop")
        if answer == "1" and self.epoch < self.EPOCHS - 1:
            self.has_to_stop = True

    def measure(self) -> None:
        now = time.time()
        if self._last is not None:
            self.iterations += 1
            self.mean_seconds += (now - self._last - self.mean_seconds) / self.iterations
            if self.iterations % self.PROFILE_EACH == 0:
                self._call("POST", self.database, "profiling", self._profile())
        self._last = now
        if self.has_to_stop:
            sys.exit()

    def end_epoch(self) -> None:
        duration = time.time() - self._epoch_began
        self._call("POST", self.database, "profiling", {**self._profile(), "epochDur": duration})
        self.epoch += 1
        self._call("POST", self.job_manager, "end_epoch", {"done": self.epoch})

    def _profile(self) -> dict[str, object]:
        return {
            "jobid": self.JOBID,
            "timestamp": datetime.datetime.now().isoformat(),
            "iternum": self.iterations,
            "nodelist": self.NODE_LIST,
            "numgpu": self.NUM_GPUS,
            "rank": self.RANK,
            "meandur": self.mean_seconds,
            "gpumem": 0,
        }

    def _call(self, method: str, host: str, verb: str, body: dict[str, object] | None = None) -> str:
        """Errors of the connection are printed and training goes on; there is no second try."""
        request = urllib.request.Request(
            f"http://{host}/{verb}/{self.JOBID}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                text: str = answer.read().decode()
                return text
        except (urllib.error.URLError, OSError) as error:
            print(f"{verb}: {error}", flush=True)
            return ""
