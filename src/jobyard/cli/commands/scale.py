"""`yard scale`: give a training job another size."""

from __future__ import annotations

import click

from jobyard.cli.option_values import WholeNumber
from jobyard.cli.output.json import print_json
from jobyard.cli.output.summary import title
from jobyard.cli.output.text import echo
from jobyard.cli.session import Session, with_session
from jobyard.errors import UserError
from jobyard.model.units import whole_number
from jobyard.quoting import quoted

AUTO = "auto"


@click.command("scale")
@with_session
@click.argument("job", metavar="JOB")
@click.argument("size", metavar="[N|auto]", required=False)
@click.option("--gpus", type=WholeNumber(min=1), metavar="N", help="Of a job that can change both.")
@click.option("--workers", type=WholeNumber(min=1), metavar="N", help="Likewise.")
def command(session: Session, job: str, size: str | None, gpus: int | None, workers: int | None) -> int:
    """Give a training job that was submitted with a range (--gpus 1..8, --workers 1..4) another size.

    N is GPUs for a job with a range of GPUs, workers for one with a range of workers; it keeps that size. With `auto`
    the scheduler chooses again. A job that runs stops at its next checkpoint first, and resumes from there.
    """
    if (size is None) == (gpus is None and workers is None):
        raise UserError(
            f"scale: say one size, as in `yard scale {quoted(job)} 4`, `yard scale {quoted(job)} auto` or --gpus 4"
        )
    number = _number(size)
    view = session.client.scale_job(job, number, gpus=gpus, workers=workers)
    if session.is_json:
        print_json(view)
        return 0
    unit = "workers" if view.training and view.training.sizes.endswith("workers") else "GPUs"
    wanted = [_count(gpus, "GPUs"), _count(workers, "workers"), _count(number, unit)]
    what = "what the scheduler chooses" if size == AUTO else " and ".join(filter(None, wanted))
    echo(f"{title(view)} gets {what}, from its next checkpoint or start")
    return 0


def _count(number: int | None, unit: str) -> str:
    return f"{number} {unit.removesuffix('s') if number == 1 else unit}" if number else ""


def _number(size: str | None) -> int | None:
    if size is None or size == AUTO:
        return None
    number = whole_number(size)
    if number is None or not 1 <= number < 2**31:
        raise UserError(f"scale: {size!r} is no size; write a number of GPUs or workers, or auto")
    return number
