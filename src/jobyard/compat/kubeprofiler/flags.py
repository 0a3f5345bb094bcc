"""Flags of `run-scheduler`: which are there, and what do they mean?"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from jobyard.compat.kubeprofiler.entry import Parser
from jobyard.errors import UserError

TRUE = frozenset({"true", "t", "yes", "y", "1", "on"})
FALSE = frozenset({"false", "f", "no", "n", "0", "off"})
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class RunFlags:
    """None: not given."""

    job_name: str
    script_path: str
    image_name: str = ""
    custom_dir: str | None = None
    snapshots_dir: str | None = None
    batch_size: int | None = None
    training_set_size: int | None = None
    max_epochs: int | None = None
    is_single_gpu: bool = True
    disable_gpu_sharing: bool = False
    estimated_memory: int | None = None
    port_mapping: tuple[tuple[int, int], ...] = ()
    est_nhours: float | None = None
    # Not KubeProfiler's:
    container: bool = False
    priority: int = 0
    on: str | None = None


def parse_run(words: Sequence[str]) -> RunFlags:
    """Raises UserError with one sentence that names the flag and the way out."""
    parser = Parser(prog="run-scheduler", description="Submit a training script to the yard and print the job's id.")
    parser.add_argument("job_name", help="the job's name")
    parser.add_argument("--image_name", default="", metavar="IMAGE", help="used with --container; kept otherwise")
    parser.add_argument("--script_path", required=True, metavar="PATH", help="run as `python PATH`, as in /custom/a.py")
    parser.add_argument("--custom_dir", metavar="DIR", help="your directory, /custom to the script")
    parser.add_argument("--snapshots_dir", metavar="DIR", help="where checkpoints go, /snapshots to the script")
    parser.add_argument("--batch_size", metavar="N", help="samples in a step")
    parser.add_argument("--training_set_size", metavar="N", help="samples in an epoch, of the training split alone")
    parser.add_argument("--max_epochs", metavar="N", help="epochs in all")
    parser.add_argument("--is_single_gpu", metavar="true|false", default="true", help="never more than one GPU (true)")
    parser.add_argument(
        "--disable_gpu_sharing", metavar="true|false", default="false", help="alone on its GPU (default false)"
    )
    parser.add_argument("--estimated_memory", metavar="MIB", help="GPU memory; rather too much than too little")
    parser.add_argument("--port_mapping", metavar="NODE:CONT,...", help="ports of a container; see --container")
    parser.add_argument("--est_nhours", metavar="HOURS", help="your guess of the whole, more than 1")
    parser.add_argument(
        "--container", action="store_true", help="run in the image, with docker or podman; the yard's own"
    )
    parser.add_argument("--priority", metavar="N", default="0", help="higher goes first (default 0); the yard's own")
    parser.add_argument("--on", metavar="WHERE", help="machines that share the directories; the yard's own")
    given = parser.parse_args(list(words))
    return RunFlags(
        job_name=given.job_name,
        script_path=given.script_path,
        image_name=given.image_name,
        custom_dir=given.custom_dir,
        snapshots_dir=given.snapshots_dir,
        batch_size=_whole(given.batch_size, "--batch_size"),
        training_set_size=_whole(given.training_set_size, "--training_set_size"),
        max_epochs=_whole(given.max_epochs, "--max_epochs"),
        is_single_gpu=parse_bool(given.is_single_gpu, "--is_single_gpu"),
        disable_gpu_sharing=parse_bool(given.disable_gpu_sharing, "--disable_gpu_sharing"),
        estimated_memory=_whole(given.estimated_memory, "--estimated_memory", " of MiB"),
        port_mapping=parse_ports(given.port_mapping or ""),
        est_nhours=None if given.est_nhours is None else parse_hours(given.est_nhours),
        container=given.container,
        priority=_priority(given.priority),
        on=given.on,
    )


def parse_bool(text: str, flag: str) -> bool:
    """A value, not a switch: `--is_single_gpu false`."""
    word = text.strip().lower()
    if word not in TRUE | FALSE:
        raise UserError(f"{flag}: {text!r} is neither true nor false; write {flag} true or {flag} false")
    return word in TRUE


def parse_hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        raise UserError(f"--est_nhours: {text!r} is not a number; write hours, as in --est_nhours 2.5") from None
    if not math.isfinite(hours) or not 1 < hours < 10 * 365 * 24:
        raise UserError(
            f"--est_nhours: {text} must be more than 1 and less than ten years; for a shorter job write 1.1"
        )
    return hours


def parse_ports(text: str) -> tuple[tuple[int, int], ...]:
    """`node:container` pairs with commas between."""
    pairs = []
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"([0-9]{1,5}):([0-9]{1,5})", piece)
        ports = (int(match[1]), int(match[2])) if match else (0, 0)
        if not all(1 <= port <= 65535 for port in ports):
            raise UserError(f"--port_mapping: {piece!r} is not a pair of ports; write NODE:CONTAINER, as in 8080:80")
        pairs.append(ports)
    return tuple(pairs)


def _whole(text: str | None, flag: str, unit: str = "") -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"\s*\+?[0-9]{1,10}\s*", text) or not 1 <= int(text) <= _LARGEST:
        raise UserError(
            f"{flag}: {text!r} is not a whole number{unit} from 1 to {_LARGEST}; write for example {flag} 64"
        )
    return int(text)


def _priority(text: str) -> int:
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,7}\s*", text):
        raise UserError(f"--priority: {text!r} is not a whole number; write for example --priority 5")
    return int(text)
