"""Noise out of a table is as good as noise drawn afresh, as far as an ear or a statistic can tell."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_runtime.noise import TABLE_SIZE, NoiseTable


@pytest.fixture(scope="module")
def table() -> NoiseTable:
    return NoiseTable(seed=1)


def test_it_is_standard_normal(table: NoiseTable) -> None:
    noise = table.standard_normal((601, 504))

    assert noise.shape == (601, 504)
    assert noise.dtype == np.float32
    assert abs(float(noise.mean())) < 0.01
    assert abs(float(noise.std()) - 1) < 0.01
    # As many beyond two standard deviations as a normal distribution has.
    assert abs(float((np.abs(noise) > 2).mean()) - 0.0455) < 0.003


def test_two_draws_have_nothing_in_common(table: NoiseTable) -> None:
    first, second = (table.standard_normal((601 * 500,)) for _ in range(2))

    assert abs(float(np.corrcoef(first, second)[0, 1])) < 0.02


def test_neighbours_have_nothing_in_common(table: NoiseTable) -> None:
    noise = table.standard_normal((300_000,))

    assert all(abs(float(np.corrcoef(noise[:-lag], noise[lag:])[0, 1])) < 0.02 for lag in (1, 2, 504, 1008))


def test_a_draw_longer_than_the_table_does_not_repeat_it_in_step(table: NoiseTable) -> None:
    noise = table.standard_normal((2 * TABLE_SIZE + 5,))

    assert noise.size == 2 * TABLE_SIZE + 5
    assert not np.array_equal(noise[:1000], noise[TABLE_SIZE : TABLE_SIZE + 1000])


def test_a_draw_may_be_written_to_without_harm_to_the_next(table: NoiseTable) -> None:
    for _ in range(3):
        noise = table.standard_normal((2 * TABLE_SIZE,))
        noise *= 1000

    assert float(table.standard_normal((TABLE_SIZE,)).std()) < 1.1
