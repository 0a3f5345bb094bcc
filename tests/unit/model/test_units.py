from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.errors import UserError
from jobyard.model.resources import Resources
from jobyard.model.units import (
    parse_cpu_millis,
    parse_duration_seconds,
    parse_size_mib,
    show_cpus,
    show_mib,
    show_seconds,
)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512),
        (512, 512),
        ("1.5", 2),
        ("512M", 512),
        ("512MiB", 512),
        ("1MB", 1),
        ("4G", 4096),
        ("4g", 4096),
        ("24GiB", 24576),
        ("24GB", 22889),
        ("24 GB", 22889),
        ("1T", 1 << 20),
        ("1k", 1),
        ("0", 0),
        ("0.5G", 512),
    ],
)
def test_sizes(text: str | float, mib: int) -> None:
    assert parse_size_mib(text) == mib


@pytest.mark.parametrize("text", ["", "x", "-1", "1.2.3G", "10b", "10ib", "10i", "1GG", "nan", "inf", "1e3", "G", True])
def test_what_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(UserError, match="mem: cannot read"):
        parse_size_mib(text, "mem")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        (90, 90),
        (1.5, 1.5),
        ("90s", 90),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1d1h1m1.5s", 90061.5),
        ("02:03", 123),
        ("01:02:03", 3723),
        ("1-02:03:04", 93784),
        ("1-02:03", 93780),
        ("2-12", 216000),
        ("2-12:00:00", 216000),
        ("1:00:00", 3600),
        ("90m", 5400),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "0", 0, "1h30", "90ms", "1:99", float("nan"), float("inf"), True])
def test_what_is_no_duration_is_refused_by_name(text: str | float) -> None:
    with pytest.raises(UserError, match="timeout: "):
        parse_duration_seconds(text, "timeout")


@pytest.mark.parametrize(
    ("text", "millis"), [("2", 2000), (0.1, 100), ("500m", 500), ("0", 0), (0.0001, 1), (1.1, 1100), ("0.29", 290)]
)
def test_cpus(text: str | float, millis: int) -> None:
    assert parse_cpu_millis(text) == millis


@pytest.mark.parametrize("text", ["", "two", "-1", "nan", "inf", "m", "1G", True])
def test_what_is_no_number_of_cores_is_refused_by_name(text: str) -> None:
    with pytest.raises(UserError, match="cpus: "):
        parse_cpu_millis(text)


@given(st.integers(0, 10**6))
@settings(deadline=None)
def test_cpus_are_read_as_they_are_shown(millis: int) -> None:
    assert parse_cpu_millis(show_cpus(millis)) == millis


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.44, "0.4s"),
        (12.4, "12s"),
        (59.7, "1m00s"),
        (185, "3m05s"),
        (7620, "2h07m"),
        (273600, "3d04h"),
        (86399.6, "1d00h"),
    ],
)
def test_seconds_for_people(seconds: float, shown: str) -> None:
    assert show_seconds(seconds) == shown


def test_sizes_and_resources_for_people() -> None:
    assert (show_mib(512), show_mib(24576), show_mib(1536)) == ("512 MiB", "24 GiB", "1.5 GiB")
    assert str(Resources(1000)) == "1 cpu"
    assert str(Resources(500, 2048, 2, 1024)) == "0.5 cpus, 2 GiB memory, 2 GPUs with 1 GiB each"
