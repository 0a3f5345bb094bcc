"""Yard for event loops: how does a program with asyncio submit and await jobs? `Yard`, awaited in threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from jobyard.model.job import State
from jobyard.python_api.background import awaited, each
from jobyard.python_api.display import JobTable, TaskTable
from jobyard.python_api.field_types import JobFields
from jobyard.python_api.function_job import FunctionJob
from jobyard.python_api.futures import YardFuture
from jobyard.python_api.job import TASKS_MOST, Job
from jobyard.wire.views import JobView

if TYPE_CHECKING:
    from jobyard.python_api.yard import Yard

J = TypeVar("J", bound=Job)
T = TypeVar("T")


class AsyncYard:
    """What `async with Yard() as yard` gives. The event loop goes on while a call is under way."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    @overload
    async def submit(
        self, asked: str | Sequence[Any] | Mapping[str, Any], /, **said: Unpack[JobFields]
    ) -> AsyncJob[Job]: ...

    @overload
    async def submit(
        self, asked: Callable[..., T], /, *arguments: Any, python: str = "", **said: Unpack[JobFields]
    ) -> AsyncFunctionJob[T]: ...

    async def submit(self, asked: Any, /, *arguments: Any, **said: Any) -> AsyncJob[Any]:
        """As `Yard.submit`. Who is cancelled meanwhile may have submitted."""
        return _of(await awaited(self._yard.submit, asked, *arguments, **said))

    async def map(
        self,
        function: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        chunk: int = 1,
        python: str = "",
        **said: Unpack[JobFields],
    ) -> AsyncFunctionJob[T]:
        """As `Yard.map`."""
        return AsyncFunctionJob(
            await awaited(lambda: self._yard.map(function, *iterables, chunk=chunk, python=python, **said))
        )

    async def job(self, selector: str | int) -> AsyncJob[Any]:
        """As `Yard.job`."""
        return _of(await awaited(self._yard.job, selector))

    async def jobs(self, *, all: bool = False, state: str | None = None, limit: int = 100) -> JobTable:
        """As `Yard.jobs`."""
        return await awaited(self._yard.jobs, all=all, state=state, limit=limit)


class AsyncJob(Generic[J]):
    """As `Job`, awaited. Who has enough of waiting (`asyncio.timeout`) leaves the job alone."""

    def __init__(self, job: J) -> None:
        self._job = job

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def number(self) -> int:
        return self._job.number

    @property
    def name(self) -> str:
        return self._job.name

    async def show(self) -> JobView:
        return await awaited(self._job.show)

    async def tasks(self, *, state: str | None = None, limit: int = TASKS_MOST) -> TaskTable:
        return await awaited(self._job.tasks, state=state, limit=limit)

    async def logs(self, *, task: str | None = None, stream: str | None = None, tail: int | None = None) -> str:
        return await awaited(self._job.logs, task=task, stream=stream, tail=tail)

    def output(self, *, task: str | None = None, stream: str | None = None) -> AsyncIterator[str]:
        """What it writes, in pieces, as it comes, until its end."""
        return each(lambda: self._job.output(task=task, stream=stream))

    async def wait(self, *, progress: bool | None = None) -> State:
        return await awaited(self._job.wait, progress=progress)

    async def result(self) -> Any:
        return await awaited(self._job.result)

    async def results(self) -> Sequence[Any]:
        return await awaited(self._job.results)

    async def cancel(self, *, force: bool = False) -> None:
        await awaited(self._job.cancel, force=force)

    async def retry(self) -> None:
        await awaited(self._job.retry)

    def __str__(self) -> str:
        return str(self._job)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} {self.name!r}>"

    def _repr_html_(self) -> str:
        return self._job._repr_html_()


class AsyncFunctionJob(AsyncJob[FunctionJob[T]]):
    """As `FunctionJob`, awaited. Each of `futures` can be awaited by itself."""

    @property
    def futures(self) -> list[YardFuture[T]]:
        return self._job.futures

    async def result(self) -> T:
        return await awaited(self._job.result)

    async def results(self, *, return_exceptions: bool = False) -> list[T]:
        return await awaited(self._job.results, return_exceptions=return_exceptions)

    async def __aiter__(self) -> AsyncIterator[T]:
        """Each result as soon as it and all before it are there."""
        for future in self.futures:
            yield await future


def _of(job: Job) -> AsyncJob[Any]:
    return AsyncFunctionJob(job) if isinstance(job, FunctionJob) else AsyncJob(job)
