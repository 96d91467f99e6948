"""The voice's noise out of a table, since drawing it afresh takes an eighth of the time of a sentence."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

# 4 MiB of float32. A draw of several times that length takes pieces from as many places, so that nothing repeats in step.
TABLE_SIZE = 1 << 20


class NoiseTable:
    """Standard normal noise, as `numpy.random.Generator` gives it, but copied from random places of a fixed table.

    The voice shapes this noise with a new spectrum every 12.5 ms, so that it is never heard as it stands in the table.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._rng = np.random.default_rng(seed)
        # Doubled at its end by its beginning, so that every place has a whole table after it.
        table = self._rng.standard_normal(TABLE_SIZE, dtype=np.float32)
        self._table = np.concatenate((table, table))

    def standard_normal(self, size: tuple[int, ...], dtype: type[np.float32] = np.float32) -> npt.NDArray[np.float32]:
        """An array of that shape, new and writable."""
        assert dtype is np.float32
        noise = np.empty(math.prod(size), np.float32)
        for begin in range(0, noise.size, TABLE_SIZE):
            part = noise[begin : begin + TABLE_SIZE]
            place = int(self._rng.integers(TABLE_SIZE))
            part[...] = self._table[place : place + part.size]
        return noise.reshape(size)
