"""Request parsing: which noun is in these bytes? JSON as the standard has it, and nothing that is only nearly so."""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

from jobyard.errors import UserError
from jobyard.model.checks import check
from jobyard.model.codec import decode

T = TypeVar("T")


def read(kind: type[T], raw: bytes) -> T:
    """The noun that the body of a request describes, within its limits. No body is an empty object."""
    noun = decode(kind, _parsed(raw) if raw else {})
    check(noun)
    return noun


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode(), parse_constant=_no_number, object_pairs_hook=_without_duplicates)
    except UnicodeDecodeError:
        raise UserError(f"the request is not UTF-8: {raw[:60]!r}") from None
    except RecursionError:
        raise UserError(
            "the request is nested too deeply; nothing that the yard takes needs a hundred levels"
        ) from None
    except ValueError:
        raise UserError(f"the request is not JSON: {raw[:60]!r}") from None


def _no_number(word: str) -> NoReturn:
    raise UserError(
        f"the request has the number {word}, which JSON does not know; leave the field out or give a number"
    )


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two values for one field parsers choose differently: a check and an action must never see different ones."""
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise UserError(f"the request has the field {twice!r:.80} twice; say it once")
    return found
