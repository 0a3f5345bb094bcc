"""Yard for Python programs and notebooks: `from jobyard import Yard`. Jobs, functions as jobs, futures, an executor.

One implementation, over the client: `Yard` waits, and `AsyncYard` awaits the same in threads. What a job can be asked
for is read by `manifests`, so that a keyword, a flag and a manifest's key mean the same. Nothing here decides.
"""

from importlib import import_module

NAMES = {
    "AsyncYard": "asynchronous",
    "FunctionJob": "function_job",
    "Job": "job",
    "Yard": "yard",
    "YardExecutor": "executor",
    "YardFuture": "futures",
    "as_completed": "futures",
    "wait": "futures",
}


def __getattr__(name: str) -> object:
    """Of `jobyard` too: what is asked for is imported, and nothing before."""
    if name not in NAMES:
        raise AttributeError(f"module 'jobyard' has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{NAMES[name]}"), name)
