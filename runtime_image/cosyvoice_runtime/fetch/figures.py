"""Numbers for people."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Bytes with three digits and a decimal unit, as the hubs show them."""
    for unit in _UNITS:
        if abs(count) < 999.5 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.3g} {unit}"
