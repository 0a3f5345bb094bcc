"""Jobyard: one yard for all your jobs, here, over SSH, or on Kubernetes. In Python: `from jobyard import Yard`.

What programs import from here is loaded when it is asked for, so that nobody else pays for it; `__init__.pyi` types it.
"""

from __future__ import annotations

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    from importlib import import_module  # the SDK imports this package, and brings in next to nothing

    return getattr(import_module("jobyard.python_api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("NAMES")})  # type: ignore[misc]
