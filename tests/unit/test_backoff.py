"""Backoff: each pause is twice the one before, up to the longest, however many failures there were."""

from jobyard.backoff import Backoff


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    assert [Backoff(0.5, 3.0).pause(failures) for failures in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_number_of_failures_beyond_all_powers_is_the_longest_pause() -> None:
    assert Backoff(0.1, 5.0).pause(10**9) == 5.0
