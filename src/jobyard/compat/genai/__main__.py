"""Command line: `python -m jobyard.compat.genai deploy|scale|delete|monitor|status`."""

from __future__ import annotations

import os
import sys
import time

import click

from jobyard.compat.genai.configuration import CLUSTER, service_here
from jobyard.compat.genai.deploying import deploy, spec_to_deploy
from jobyard.compat.genai.listening import serve
from jobyard.compat.genai.records import JobMetadata
from jobyard.console import echo, exit_with, guarded, harmless, print_table, user_here
from jobyard.errors import NotFound
from jobyard.manifests.context import SubmitContext
from jobyard.model.units import show_seconds

PROGRAM = "jobyard.compat.genai"
HEADERS = ("JOB", "GPUS", "RANGE", "EPOCHS", "CHECKPOINT", "RESTARTS", "STATUS", "WHY")


@click.group()
def group() -> None:
    """Jobs with a range of GPUs on Kubernetes: IBM's genai-workload-manager, by a yard.

    \b
    Exit codes: 0 it is done, 1 it is not possible now, 2 the request is wrong, 3 no yard can be reached.
    """


@group.command("deploy")
@click.option("-f", "--filename", required=True, metavar="FILE", help="A Pod, Job or PyTorchJob; - for stdin.")
def deploy_command(filename: str) -> int:
    """Run what a manifest describes, as large as fits between its requests and limits of nvidia.com/gpu."""
    context = SubmitContext(os.getcwd(), dict(os.environ), user_here())
    spec = spec_to_deploy(filename, context, os.environ.get(CLUSTER) or "kubernetes")
    echo(deploy(service_here(), spec))
    return 0


@group.command("scale")
@click.option("-n", "--name", metavar="NAME", help="Which job; without it, the one that is next.")
def scale_command(name: str | None) -> int:
    """Give a job as many GPUs as fit."""
    echo(service_here().scale(name))
    return 0


@group.command("delete")
@click.option("-n", "--name", "names", required=True, multiple=True, metavar="NAME", help="May be repeated.")
def delete_command(names: tuple[str, ...]) -> int:
    """Stop jobs and remove what is left of them in the cluster."""
    service, code = service_here(), 0
    for name in names:
        try:
            echo(service.delete(name))
        except NotFound as error:
            echo(f"404: {error}")
            code = 1
    return code


@group.command("monitor")
def monitor_command() -> int:
    """Serve the endpoints at MHOST:MPORT (127.0.0.1:6000), and let jobs grow when others have completed."""
    serve()
    return 0


@group.command("status")
def status_command() -> int:
    """List the jobs: GPUs that they have and may have, epochs, the last checkpoint."""
    records = sorted(service_here().records(), key=lambda each: each.job_arrival_time)
    print_table(HEADERS, [row_of(each, time.time()) for each in records])
    return 0


def row_of(record: JobMetadata, now: float) -> tuple[str, ...]:
    epochs = f"{record.completed_epochs:g}{f'/{record.total_epochs:g}' if record.total_epochs else ''}"
    has_saved = record.last_checkpoint_time > record.job_arrival_time
    return (
        record.job_name,
        f"{record.gpu_assigned}/{record.gpu_lim}",
        f"{record.gpu_req}..{record.gpu_lim}",
        epochs if record.completed_epochs or record.total_epochs else "-",
        f"{show_seconds(max(0.0, now - record.last_checkpoint_time))} ago" if has_saved else "-",
        str(record.restarts),
        record.status if record.is_ours else f"{record.status}, not the yard's",
        harmless(record.message),
    )


def main() -> None:
    words = sys.argv[1:]
    exit_with(guarded(lambda: group.main(words, prog_name=PROGRAM, standalone_mode=False), PROGRAM, words))


if __name__ == "__main__":
    main()
