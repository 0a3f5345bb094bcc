"""Translation into a job: which JobSpec is a call of `run-scheduler`?"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from jobyard.compat.kubeprofiler.directories import Directories, command_of, directories_of, words_inside
from jobyard.compat.kubeprofiler.flags import RunFlags
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.notation import parse_name, parse_on
from jobyard.model.container import ContainerSpec, PortMapping
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.policy import RunPolicy
from jobyard.model.resources import Resources
from jobyard.model.staging import StagingSpec
from jobyard.model.training import ALL, Elastic, Training

SOURCE = "kubeprofiler"
HERE = "local"  # the executor of this machine: only here are the directories what the flags say


def spec_of(flags: RunFlags, here: str, environ: Mapping[str, str], user: str) -> JobSpec:
    """Raises UserError with one sentence. `here` is where a relative path starts."""
    directories = directories_of(flags, here, environ.get("HOME", "/"))
    group = GroupSpec(Command(argv=_argv(flags, directories, here, environ)), resources=resources_of(flags))
    return JobSpec(
        name=parse_name(flags.job_name, "job_name"),
        groups=(group,),
        on=HERE if flags.on is None else parse_on(flags.on, "--on"),
        env=directories.env_inside if flags.container else directories.env,
        workdir=directories.custom or here,
        policy=RunPolicy(priority=flags.priority),
        submitter=SubmitContext(here, environ, user).submitter(
            SOURCE, notes_of(flags, directories, group.command.argv[0])
        ),
        staging=StagingSpec(no_copy=flags.on is not None),
        container=container_of(flags, directories),
        training=Training(
            epochs=flags.max_epochs,
            batch_size=flags.batch_size,
            training_set_size=flags.training_set_size,
            estimated_seconds=None if flags.est_nhours is None else flags.est_nhours * 3600,
        ),
        elastic=None if flags.is_single_gpu else Elastic(gpus=(1, ALL)),
    )


def container_of(flags: RunFlags, directories: Directories) -> ContainerSpec:
    if not flags.container:
        return ContainerSpec(flags.image_name)
    ports = tuple(PortMapping(*ports) for ports in flags.port_mapping)
    return ContainerSpec(flags.image_name, on_machines=True, mounts=directories.mounts, ports=ports)


def _argv(flags: RunFlags, directories: Directories, here: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    if flags.container:
        return ("python", *words_inside(flags.script_path, directories))
    return (python_of(environ), *command_of(flags.script_path, directories, here))


def resources_of(flags: RunFlags) -> Resources:
    """CPUs are shared by all: none is reserved. Without an estimate it is not known how much of a GPU is left."""
    shared_mib = 0 if flags.disable_gpu_sharing else flags.estimated_memory or 0
    return Resources(cpu_millis=0, gpus=1, gpu_memory_mib=shared_mib)


def python_of(environ: Mapping[str, str]) -> str:
    """As the job will find it on its path: some systems have no plain `python`."""
    return "python" if shutil.which("python", path=environ.get("PATH")) else "python3"


def notes_of(flags: RunFlags, directories: Directories, python: str) -> tuple[str, ...]:
    notes = []
    if not flags.container:
        notes += _without_container(flags, directories, python)
    if not flags.disable_gpu_sharing and flags.estimated_memory is None:
        notes.append("without --estimated_memory the rest of a GPU cannot be shared, so the job gets whole GPUs")
    return tuple(notes)


def _without_container(flags: RunFlags, directories: Directories, python: str) -> list[str]:
    notes = []
    if flags.image_name:
        notes.append(
            f"image {flags.image_name!r} is kept and not used: without --container the script runs with the "
            f"{python} on your PATH"
        )
    known = {mount: path for mount, path in directories.by_mount.items() if path}
    if known:
        meant = ", ".join(f"{mount} is {path}" for mount, path in known.items())
        names = ", ".join(directories.env)
        notes.append(
            f"without a container {meant}; --script_path was translated, what the script itself names is not: "
            f"it finds them in {names}"
        )
    if flags.port_mapping:
        ports = ", ".join(f"{container}" for _, container in flags.port_mapping)
        notes.append(
            f"--port_mapping is not honoured without a container: what listens on {ports} is reached there directly"
        )
    return notes
