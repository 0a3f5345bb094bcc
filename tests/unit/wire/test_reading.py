from __future__ import annotations

import json

import pytest

from jobyard.errors import UserError
from jobyard.wire.reading import read
from jobyard.wire.requests import CancelJob, ChangePriority, SubmitJob


def test_a_request_is_read_and_no_body_is_an_empty_object() -> None:
    assert read(CancelJob, b'{"tasks": ["1"], "force": true}') == CancelJob(("1",), True)
    assert read(CancelJob, b"") == CancelJob()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "is not JSON"),
        (b'{"priority": NaN}', "the number NaN"),
        (b'{"priority": -Infinity}', "the number -Infinity"),
        (b'{"priority": 1, "other": 2, "priority": 3}', "the field 'priority' twice"),
        (b'{"priority": "\xff"}', "is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"priority": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"[1]", "expected dict"),
    ],
)
def test_what_is_only_nearly_json_is_refused_in_one_sentence(raw: bytes, words: str) -> None:
    with pytest.raises(UserError) as caught:
        read(ChangePriority, raw)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_number_too_large_for_its_field_is_refused() -> None:
    spec = {"name": "x", "groups": [], "policy": {"timeout_seconds": 10**400}}
    with pytest.raises(UserError, match="timeout_seconds"):
        read(SubmitJob, json.dumps({"spec": spec}).encode())
