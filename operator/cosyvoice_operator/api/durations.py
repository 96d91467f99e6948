"""Durations as people write them in Kubernetes (``2m``, ``1h30m``), read and written without loss."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from cosyvoice_operator.api.texts import PATTERN_HINT

_NUMBER = r"[0-9]{1,6}(\.[0-9]{1,3})?"
PATTERN = f"^({_NUMBER}h)?({_NUMBER}m)?({_NUMBER}s)?({_NUMBER}ms)?$"
"""What Go's ``time.ParseDuration`` reads, each unit at most once and in falling order, so that it can't overflow in
CEL's ``duration()``."""

MIN_LENGTH, MAX_LENGTH = 2, 40

_PARTS = re.compile(r"([0-9.]+)(ms|h|m|s)")
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def parse_duration(text: object) -> timedelta:
    """Read a duration such as ``90s``, ``1h30m`` or ``0.5s``.

    Raises:
        ValueError: The text is not such a duration; the message says what to write.
    """
    if isinstance(text, timedelta):
        return text
    if not isinstance(text, str) or len(text) < MIN_LENGTH or not re.fullmatch(PATTERN.strip("^$"), text):
        raise ValueError(f"{text!r} is not a duration: write hours, minutes and seconds, for example 90s, 2m or 1h30m")
    milliseconds = sum((Decimal(number) * _MILLISECONDS[unit] for number, unit in _PARTS.findall(text)), Decimal(0))
    return timedelta(microseconds=int(milliseconds * 1000))


def format_duration(duration: timedelta) -> str:
    """Write a duration in its canonical form, largest units first and none that is zero: ``90s`` -> ``1m30s``."""
    rest = duration // timedelta(milliseconds=1)
    parts = []
    for unit, size in _MILLISECONDS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": PATTERN,
            "minLength": MIN_LENGTH,
            "maxLength": MAX_LENGTH,
            PATTERN_HINT: "this is no duration: write hours, minutes and seconds, for example 90s, 2m or 1h30m",
        }
    ),
]
"""A model field that holds a duration: a ``timedelta`` in Python, text such as ``2m`` in the resource."""
