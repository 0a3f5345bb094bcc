"""Functions as jobs: how does a function become a job of the yard?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial, update_wrapper
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from jobyard.client.api import YardClient
from jobyard.errors import NotFound, UserError
from jobyard.manifests.files import name_from_file
from jobyard.model.job import ArrayRange, JobSpec
from jobyard.python_api.call_command import command_of
from jobyard.python_api.call_file import CallFile, Calls, delete_forgotten, read_counts, write
from jobyard.python_api.call_folder import FOLDER
from jobyard.python_api.function_job import FunctionJob
from jobyard.python_api.pickling import Arguments, name_of, pickled_arguments, pickled_function
from jobyard.python_api.spec import refused_as_said, spec_from
from jobyard.wire.views import JobView

P = ParamSpec("P")
T = TypeVar("T")
SOURCE = "function"
KUBERNETES = "kubernetes"
_NOT_FOR_FUNCTIONS = {
    "array": "map() makes an array of the arguments",
    "each_line": "pass the lines to map()",
    **dict.fromkeys(
        ("each_json", "sweep", "colsep", "header", "nul", "values_per_task", "skip_existing"),
        "pass the values to map()",
    ),
    "workers": "a function is called once for each of its arguments; use map() with gang=True",
    "kind": "functions do not run on Kubernetes yet",
    "volumes": "functions do not run on Kubernetes yet",
}


class YardFunction(Generic[P, T]):
    """A function with the keywords of its jobs: `submit` and `map` run it in the yard, a plain call here."""

    def __init__(
        self, client: Callable[[], YardClient], function: Callable[P, T], python: str, said: Mapping[str, Any]
    ) -> None:
        self._client = client
        self._function = function
        self._python = python
        self._said = said
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._function(*args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> FunctionJob[T]:
        """One call, as a job."""
        calls = calls_of(self._function, [(args, kwargs)], chunk=1, python=self._python)
        return submit_calls(self._client(), self._function, calls, self._said)

    def map(self, *iterables: Iterable[Any], chunk: int = 1) -> FunctionJob[T]:
        """A call for each argument, as `Yard.map`."""
        arguments: Iterable[Arguments] = ((each, {}) for each in zip(*iterables, strict=False))
        calls = calls_of(self._function, arguments, chunk=chunk, python=self._python)
        return submit_calls(self._client(), self._function, calls, self._said)

    def __reduce__(self) -> tuple[Any, ...]:
        """Within a task it is the plain function: the yard stays here."""
        return partial, (self._function,)


def calls_of(
    function: Callable[..., Any],
    arguments: Iterable[Arguments],
    *,
    chunk: int,
    python: str,
) -> Calls:
    """Raises UserError where the function cannot be sent; its arguments are looked at when they are written."""
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise UserError(f"chunk: {chunk!r} is not a number of calls for each task; write 1 or more")
    return Calls(pickled_function(function), pickled_arguments(arguments), chunk, python)


def submit_calls(
    client: YardClient, function: Callable[..., T], calls: Calls, said: Mapping[str, Any]
) -> FunctionJob[T]:
    """The job. Raises UserError, and then nothing was submitted and no file is left."""
    # 1. Can it be done at all?
    _refuse_what_does_not_fit(client, said)
    name = said.get("name") or name_from_file(name_of(function).strip("<>"))  # of `<lambda>`: a shell takes it as typed
    spec = spec_from(["sh", FOLDER], {**said, "name": name}, environ=os.environ, source=SOURCE)
    # 2. Write the file that travels with the job.
    server = client.server()
    delete_forgotten(Path(spec.workdir), server.yard_id, lambda job: _is_known(client, job))
    file = write(calls, Path(spec.workdir), spec.name)
    try:
        if not file.count:
            raise UserError("map: there are no arguments, so there is nothing to run")
        spec = _with_calls(spec, file, calls.python)
        # 3. Submit.
        with refused_as_said(spec):
            view = client.submit(spec)
    except BaseException:
        file.remove()
        raise
    file.belongs_to(server.yard_id, view.id)
    return FunctionJob(client, view, file, server.last_event)


def calls_of_job(client: YardClient, view: JobView) -> CallFile | None:
    """How many calls a job of any session has; None: it calls no function.

    Raises UserError where its file is gone, and where somebody else submitted it: unpickling its results would run
    their code here, and `source` is what they say.
    """
    if view.source != SOURCE:
        return None
    if not (client.address.is_local and view.is_owners):
        raise UserError(
            f"job {view.number} ({view.name}) says that it calls a function, and results of functions are only read "
            "where the yard's owner submitted them, on the server's machine: others could send code that would run "
            f"here; look at it with `yard show {view.number}`, and get its files with `yard fetch {view.number}`"
        )
    path = next((word for word in view.command.split() if word.endswith(".call")), "")
    return read_counts(Path(view.workdir) / path)


def _with_calls(spec: JobSpec, file: CallFile, python: str) -> JobSpec:
    relative = f"{FOLDER}/{file.path.name}"
    group = replace(
        spec.groups[0],
        command=command_of(relative, file.seal, python, in_container=spec.container.on_machines),
        array=ArrayRange(((0, file.tasks - 1, 1),)),
        completions=file.tasks,
    )
    sent = (*(spec.staging.copy_forward or (".",)), relative)  # its folder is ignored, so that other files stay here
    return replace(spec, groups=(group,), staging=replace(spec.staging, copy_forward=sent))


def _refuse_what_does_not_fit(client: YardClient, said: Mapping[str, Any]) -> None:
    for key, why in _NOT_FOR_FUNCTIONS.items():
        if said.get(key) is not None:
            raise UserError(f"{key}: {why}; leave it out")
    if not client.address.is_local:
        raise UserError(
            f"functions go through files, and the yard at {client.address} is reached over the network; "
            "submit a command to it, or use Yard() on its machine"
        )
    names = {name.strip() for name in str(said.get("on") or "").split(",")} - {""}
    if not names:
        return
    clusters = {cluster.id for cluster in client.clusters()}
    for name in sorted(names):
        if name.partition("/")[0] in clusters or (name == KUBERNETES and not _is_a_machine(client, name)):
            raise UserError(
                f"on: functions do not run on Kubernetes yet, and {name!r} is a cluster: no files travel there; "
                "name machines, or submit a command with an image that has the code"
            )


def _is_a_machine(client: YardClient, name: str) -> bool:
    return any(node.id == name or name in node.labels for node in client.nodes())


def _is_known(client: YardClient, job: str) -> bool:
    try:
        client.job(job)
    except NotFound:
        return False
    return True
