"""Quantities are read and written as apimachinery does; the contract tests ask the API server itself."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.api.quantity import parse_quantity


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (2, "2"),
        ("500m", "0.5"),
        ("1.5Gi", "1610612736"),
        ("1e3", "1000"),
        ("12E", "12e18"),
        ("2E2", "200"),
        (".5", "0.5"),
    ],
)
def test_a_quantity_has_a_value(written: object, value: str) -> None:
    assert parse_quantity(written).value == Decimal(value)


@pytest.mark.parametrize("written", ["", "1 Gi", "1GB", "-1", "1.2.3", "ten", "1e", "0x10", None, True, 0.5])
def test_what_is_no_quantity_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match="write for example 2"):
        parse_quantity(written)


@pytest.mark.parametrize(
    ("written", "stored"), [("1.5Gi", "1536Mi"), ("0.5", "500m"), ("1000m", "1"), ("100u", "1m"), ("0", "0")]
)
def test_a_quantity_is_written_in_canonical_form(written: str, stored: str) -> None:
    assert str(parse_quantity(written)) == stored


@given(st.integers(0, 10**12), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "e-3"]))
def test_the_canonical_form_keeps_the_value_and_is_final(digits: int, suffix: str) -> None:
    quantity = parse_quantity(f"{digits}{suffix}")
    again = parse_quantity(str(quantity))

    assert again.value == quantity.value
    assert str(again) == str(quantity)
