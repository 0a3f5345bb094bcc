"""Task environment: what does the agent give each task? The SDK, and where to report over HTTP."""

from __future__ import annotations

from typing import Dict, NamedTuple

from jobyard.agent_protocol.records import Paths

KUBEFLOW_PATH = "/kubeflow/"
_KUBEFLOW_URL = "KUBEFLOW_TRAINER_SERVER_URL"


class TaskEnvironment(NamedTuple):
    """The same for all tasks of one agent. What is empty could not be had."""

    sdk: str = ""  # a directory for the end of PYTHONPATH
    report_address: str = ""  # HOST:PORT of the report endpoint
    token_file: str = ""  # what a client of the Kubeflow protocol shows there

    def add_to(self, env: Dict[str, str], given: Dict[str, str], attempt: str, files: Paths) -> None:
        """Complete the environment of an attempt. `given` is what the job itself asked for."""
        env["YARD_SPOOL"] = files.spool
        env["YARD_STOP_FILE"] = files.stop
        if self.sdk:
            before = env.get("PYTHONPATH")
            env["PYTHONPATH"] = before + ":" + self.sdk if before else self.sdk
        if not self.report_address:
            return
        env["YARD_REPORT_ADDRESS"] = self.report_address
        if _KUBEFLOW_URL not in given:
            env[_KUBEFLOW_URL] = "http://" + self.report_address + KUBEFLOW_PATH + attempt
            env["KUBEFLOW_TRAINER_SERVER_TOKEN"] = self.token_file
            env.pop("KUBEFLOW_TRAINER_SERVER_CA_CERT", None)  # of some other server: ours is plain HTTP, and local
        if "http_proxy" in env or "HTTP_PROXY" in env:
            _bypass_proxy(env)


def _bypass_proxy(env: Dict[str, str]) -> None:
    """A proxy cannot reach an address that only this machine has."""
    for name in ("no_proxy", "NO_PROXY"):
        known = env.get(name, "")
        if "127.0.0.1" not in known.split(",") and known.strip() != "*":
            env[name] = known + ",127.0.0.1" if known else "127.0.0.1"
