"""Option values: each typed option refuses a bad one in a sentence of ours."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from jobyard.cli.group import VERBS, command_of
from jobyard.cli.option_values import OneOf, WholeNumber
from jobyard.errors import UserError


def options(command: click.Command, named: str) -> Iterator[tuple[str, click.Option]]:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield f"{named} {parameter.opts[-1]}", parameter
    for name, verb in command.commands.items() if isinstance(command, click.Group) else ():
        yield from options(verb, f"{named} {name}")


TYPED = {
    named: option
    for verb in VERBS
    for named, option in options(command_of(verb), verb)
    if not isinstance(option.type, click.types.StringParamType | click.types.BoolParamType)
}


@pytest.mark.parametrize("named", TYPED)
def test_a_value_that_an_option_cannot_have_is_told_with_the_option_and_the_way_out(named: str) -> None:
    option = TYPED[named]
    assert isinstance(option.type, WholeNumber | OneOf)
    with pytest.raises(UserError, match=rf"^{max(option.opts, key=len)}: .*'x\?'.*; write ") as caught:
        option.type.convert("x?", option, None)
    assert "\n" not in str(caught.value)


def test_a_number_out_of_range_and_a_misspelt_word_are_refused_likewise() -> None:
    limit = TYPED["ls --limit"]
    with pytest.raises(UserError, match="--limit: '0' is not a whole number from 1 on; write for example 1"):
        limit.type.convert("0", limit, None)
    state = TYPED["ls --state"]
    with pytest.raises(UserError, match="--state: unknown value 'RUNING'; did you mean running"):
        state.type.convert("RUNING", state, None)
