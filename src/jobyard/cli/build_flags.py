"""Build flags: which flags does an image build have? Cheap to import: `yard submit` has them too, and seldom builds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from jobyard.cli.option_values import OneOf
from jobyard.images.builders import DEFAULT, KNOWN


@dataclass(frozen=True)
class BuildWords:
    """The flags as typed; an empty one is taken from the manifest, the environment or the default."""

    builder: str
    registry: str
    pull_registry: str
    dockerfile: str
    context: str
    target: str
    build_arg: tuple[str, ...]
    allow_dirty: bool
    allow_unpushed: bool
    rebuild: bool
    typed: tuple[str, ...] = ()  # which of the flags were typed, as `--registry`


def build_flags(function: Callable[..., int]) -> Callable[..., int]:
    """The flags of a build; the verb gets them as `words`, a BuildWords."""

    @click.option(
        "--builder", type=OneOf(sorted(KNOWN)), default=DEFAULT, show_default=True, help="What builds the image."
    )
    @click.option(
        "--registry", default="", metavar="HOST[/PATH]", help="Where the image is pushed.  [env: YARD_REGISTRY]"
    )
    @click.option(
        "--pull-registry",
        default="",
        metavar="HOST[/PATH]",
        help="The same registry as the nodes reach it.  [env: YARD_PULL_REGISTRY; default: the same address]",
    )
    @click.option("-f", "--file", "dockerfile", default="", metavar="FILE", help="The Dockerfile; default: DIR's own.")
    @click.option("--context", default="", metavar="DIR", help="The directory that is built; default: here.")
    @click.option("--target", default="", metavar="STAGE", help="The stage of the Dockerfile that is built.")
    @click.option(
        "--build-arg", multiple=True, metavar="K=V", help="An argument of the build; K alone: from this shell."
    )
    @click.option("--allow-dirty", is_flag=True, help="Also with changes that no commit has.")
    @click.option("--allow-unpushed", is_flag=True, help="Also if the remote does not have the commit.")
    @click.option("--rebuild", is_flag=True, help="Also if the registry has an image of this commit.")
    @wraps(function)
    def with_words(*given: Any, **named: Any) -> int:
        said = {field.name: named.pop(field.name) for field in fields(BuildWords) if field.name in named}
        return function(*given, words=BuildWords(**said, typed=_typed(said)), **named)

    return with_words


def _typed(names: Iterable[str]) -> tuple[str, ...]:
    context = click.get_current_context()
    options = {option.name: max(option.opts, key=len) for option in context.command.params}
    return tuple(options[name] for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE)
