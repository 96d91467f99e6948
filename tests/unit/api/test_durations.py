"""Durations are read as Go reads them and written in one form."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.api.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("90s", 90),
        ("2m", 120),
        ("1h30m", 5400),
        ("1h0m5s", 3605),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("1m500ms", 60.5),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "-5s", "5 s", "s", "5d", "1m1h", "1s1s", "1e3s", "1234567h", None, 5, True])
def test_what_is_no_duration_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ValueError, match="for example 90s, 2m or 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (90, "1m30s"), (120, "2m"), (5400, "1h30m"), (3605, "1h5s"), (0.25, "250ms")]
)
def test_a_duration_is_written_with_its_largest_units_first(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


@given(st.integers(min_value=0, max_value=999_999 * 3_600_000))
def test_what_is_written_reads_as_it_was(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)

    assert parse_duration(format_duration(duration)) == duration
