"""`execute_remote COMMAND --machine M`: one command on one machine."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Sequence

from jobyard.compat.ml_scheduler import entry
from jobyard.compat.ml_scheduler.batch import RESULTS, BatchContext, Line, has_results, remote_run, set_aside
from jobyard.compat.ml_scheduler.console import show
from jobyard.compat.ml_scheduler.flags import RANDOM_NAME, parse_remote
from jobyard.compat.ml_scheduler.machines import machines_for_a_run
from jobyard.compat.ml_scheduler.running import Interrupted, run_to_end
from jobyard.console import Session, exit_code_of
from jobyard.errors import UserError
from jobyard.model.resources import Resources
from jobyard.wire.views import NodeView

INTERRUPTED = 1  # as ml-scheduler's


def main() -> None:
    entry.main("execute_remote", run)


def run(words: Sequence[str]) -> int:
    """The exit code is the command's own; 1 after Ctrl-C."""
    flags = parse_remote(words)
    here = os.getcwd()
    name = secrets.token_hex(12).upper() if flags.job_name == RANDOM_NAME else flags.job_name
    line = Line(0, name, flags.command, flags.command, flags.copies, has_own_name=True)
    if has_results(here, line):
        raise UserError(f"--job-name: {os.path.join(RESULTS, name)} exists; delete it or choose another name")
    session = Session(None, "table")
    with machines_for_a_run(session, [flags.machine]) as machines, tempfile.TemporaryDirectory() as empty:
        node = machines[0].node
        assert node is not None
        set_aside(here, line)
        job = remote_run(line, resources_of(node), node.id, BatchContext(here, empty, entry.user()))
        try:
            (view,) = run_to_end(
                session.client, [job], shows_gpus=False, tells=False, show=show if flags.is_verbose else None
            )
        except Interrupted:
            return INTERRUPTED
    return exit_code_of(view, pass_through=True)


def resources_of(node: NodeView) -> Resources:
    """Reserves nothing, and sees every GPU that is not reserved whole: it runs beside other tasks."""
    shared = [device for device in node.devices if device.memory_mib > device.reserved_mib + device.foreign_mib]
    return Resources(cpu_millis=0, gpus=len(shared), gpu_memory_mib=1 if shared else 0)


if __name__ == "__main__":
    main()
