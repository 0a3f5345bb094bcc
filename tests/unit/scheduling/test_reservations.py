"""How much GPU memory a sharing job reserves, before and after it is known, and after it ran out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.scheduling.sharing import after_oom, reservation_mib

MIB = st.integers(0, 200_000)


@pytest.mark.parametrize(
    ("declared", "peak", "is_steady", "expected"),
    [
        (8000, 0, False, 8000),
        (8000, 3000, False, 8000),  # it may still grow
        (8000, 9000, False, 9000),
        (8000, 3000, True, 3512),
        (8000, 20000, True, 22000),
        (8000, 79900, True, 80000),
        (8000, 0, True, 8000),  # nothing was measured
        (0, 0, False, 0),
    ],
)
def test_declared_first_then_the_peak_with_headroom(declared: int, peak: int, is_steady: bool, expected: int) -> None:
    assert reservation_mib(declared, peak, is_steady, 80000) == expected


def test_after_running_out_it_gets_half_as_much_again_up_to_a_whole_device() -> None:
    assert after_oom(8000, 7900, [40000, 80000]) == 12000
    assert after_oom(8000, 15000, [40000, 80000]) == 16500
    assert after_oom(40000, 40000, [40000, 80000]) == 60000  # alone on the smaller one
    assert after_oom(60000, 60000, [40000, 80000]) == 80000
    assert after_oom(80000, 80000, [40000, 80000]) is None
    assert after_oom(1, 0, []) is None


@given(MIB, MIB, st.lists(st.integers(1, 200_000), max_size=4))
def test_running_out_again_and_again_comes_to_an_end(reserved: int, peak: int, devices: list[int]) -> None:
    tries = 0
    current = reserved
    while (following := after_oom(current, peak, devices)) is not None:
        assert current < following <= max(devices)
        current = following
        tries += 1
    assert tries <= 40


@given(MIB, MIB, st.booleans(), st.integers(1, 200_000))
def test_no_more_is_reserved_than_there_is(declared: int, peak: int, is_steady: bool, device: int) -> None:
    assert min(peak, device) <= reservation_mib(declared, peak, is_steady, device) <= device
