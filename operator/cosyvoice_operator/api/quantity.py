"""Kubernetes quantities (``500m``, ``1.5Gi``), written back exactly as the API server stores them.

Server-side apply makes this matter: the server canonicalises quantities in a pod template, so an operator that asked
for ``0.5`` and reads back ``500m`` would see a difference for ever.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator, InstanceOf, PlainSerializer, WithJsonSchema

PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$"
"""The grammar of apimachinery's ``resource.Quantity`` without signs: nothing here may be negative."""

MAX_LENGTH = 24

_MILLI = 1000
_BINARY = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_WRITTEN = {suffix: exponent for suffix, exponent in _DECIMAL.items() if exponent >= -3}


class Format(Enum):
    """How a quantity was written; the API server keeps it."""

    BINARY = "BinarySI"
    DECIMAL = "DecimalSI"
    EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount of a resource.

    Attributes:
        milli: The amount in thousandths: the finest that the API server keeps in a container's resources.
        format: See :class:`Format`.
    """

    milli: int
    format: Format = Format.DECIMAL

    @property
    def value(self) -> Decimal:
        """The amount in the resource's own unit: cores, bytes or devices."""
        return Decimal(self.milli).scaleb(-3)

    def __str__(self) -> str:
        whole, fraction = divmod(self.milli, _MILLI)
        # Below 1024, and with fractions, apimachinery gives up the binary form too.
        if self.format is Format.BINARY and not fraction and whole >= 1024:
            suffix, size = next((s, n) for s, n in reversed([("", 1), *_BINARY.items()]) if whole % n == 0)
            return f"{whole // size}{suffix}"
        return self._decimal()

    def _decimal(self) -> str:
        if not self.milli:
            return "0"
        suffix, exponent = next((s, e) for s, e in reversed(_WRITTEN.items()) if self.milli % 10 ** (e + 3) == 0)
        digits = self.milli // 10 ** (exponent + 3)
        if self.format is Format.EXPONENT:
            return f"{digits}e{exponent}" if exponent else f"{digits}"
        return f"{digits}{suffix}"


def parse_quantity(raw: object) -> Quantity:
    """Read a quantity as text or as a whole number. Anything finer than a thousandth is rounded up, as in a pod template.

    Raises:
        ValueError: It is not a quantity; the message says what to write.
    """
    if isinstance(raw, Quantity):
        return raw
    text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw
    match = re.fullmatch(PATTERN.strip("^$"), text) if isinstance(text, str) and len(text) <= MAX_LENGTH else None
    if match is None:
        raise ValueError(f'{raw!r} is not a quantity: write for example 2, "500m" or "1.5Gi"')
    digits, suffix = Fraction(match[1]), match[3] or ""
    if suffix in _BINARY:
        amount, form = digits * _BINARY[suffix], Format.BINARY
    elif suffix in _DECIMAL:
        amount, form = digits * Fraction(10) ** _DECIMAL[suffix], Format.DECIMAL
    else:
        amount, form = digits * Fraction(10) ** int(suffix[1:]), Format.EXPONENT
    return Quantity(-(-amount * _MILLI // 1), form)


QuantityField = Annotated[
    InstanceOf[Quantity],
    BeforeValidator(parse_quantity),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": MAX_LENGTH,
            "x-kubernetes-validations": [
                {
                    "rule": "isQuantity(string(self)) && !quantity(string(self)).isLessThan(quantity('0'))",
                    "message": "this is no quantity: write for example 2, '500m' or '1.5Gi'",
                }
            ],
        }
    ),
]
"""A model field that holds a quantity: a :class:`Quantity` in Python, ``2`` or ``"500m"`` in the resource."""
