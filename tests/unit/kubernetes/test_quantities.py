"""Amounts as Kubernetes writes them, of its own objects and of users' files."""

from __future__ import annotations

import pytest

from jobyard.errors import UserError
from jobyard.kubernetes.quantities import (
    asked_cpu_millis,
    asked_mib,
    asked_quantity,
    asked_whole,
    cpu_millis,
    mib,
    quantity,
)


@pytest.mark.parametrize(("text", "millis"), [("500m", 500), ("2", 2000), ("0.1", 100), ("1e3", 1_000_000)])
def test_cores_are_read_as_kubernetes_writes_them(text: str, millis: int) -> None:
    assert cpu_millis(text) == millis


@pytest.mark.parametrize(("text", "amount"), [("512Mi", 512), ("1Gi", 1024), ("1G", 954), ("1048576", 1), ("1Ki", 1)])
def test_memory_is_rounded_up_to_mebibytes(text: str, amount: int) -> None:
    assert mib(text) == amount


@pytest.mark.parametrize(("text", "millis"), [("1.001", 1001), ("4.35", 4350), ("100n", 1), ("1u", 1), (2, 2000)])
def test_cores_are_read_exactly_and_rounded_up(text: str | int, millis: int) -> None:
    """As floats 1.001 and 4.35 would be a little less."""
    assert cpu_millis(text) == millis


def test_amounts_of_the_api_server_may_be_as_long_as_its_integers() -> None:
    assert quantity("9223372036854775807") == 2**63 - 1
    with pytest.raises(UserError, match="x: cannot read"):
        asked_quantity("9223372036854775807", "x")


@pytest.mark.parametrize("text", ["", "x", "5Zi", "1 Gi", "."])
def test_what_the_api_server_would_not_write_counts_as_nothing(text: str) -> None:
    assert quantity(text) == 0


def test_amounts_of_users_are_read_as_kubernetes_reads_them() -> None:
    assert (
        asked_cpu_millis("2", "x"),
        asked_cpu_millis("0.1", "x"),
        asked_cpu_millis("1500m", "x"),
        asked_cpu_millis("1u", "x"),
    ) == (
        *(2000, 100),
        *(1500, 1),
    )
    assert (asked_mib("1Gi", "x"), asked_mib("1G", "x"), asked_mib("128974848", "x"), asked_mib("1e9", "x")) == (
        1024,
        954,
        123,
        954,
    )
    assert asked_quantity(".5", "x") * 2 == 1
    for text in ("", "x", "-1", "1 Gi", "1GiB", "1g", "."):
        with pytest.raises(UserError, match="x: cannot read"):
            asked_quantity(text, "x")
    assert asked_whole("2", "x") == 2
    with pytest.raises(UserError, match=r"x: '2\.5' is not a whole number"):
        asked_whole("2.5", "x")
