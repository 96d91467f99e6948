"""Inputs to compare graphs on, made from what a graph says of its own inputs: the same ones each time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.builder.reasons import BuildError, Reason

Array = npt.NDArray[Any]
Feeds = dict[str, Array]

SIDECAR = "probes.json"
"""Beside the graphs, where the sizes below do not fit: graph name -> dimension name -> size."""
DEFAULT_SIZE = 16
# Dimensions that follow from another one; with it at its default size.
_DIMENSIONS: dict[str, dict[str, int]] = {
    # HiFT's source has one STFT frame for each 4 samples, and a mel frame has 480.
    "hift_decoder.onnx": {"F": 120 * DEFAULT_SIZE + 1},
}
_SEEDS = (1, 2)
_TYPES: dict[str, str] = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(bool)": "bool",
}


class InputInfo(Protocol):
    """What a session tells of an input."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def shape(self) -> Sequence[int | str | None]:
        """Sizes, or names of sizes."""

    @property
    def type(self) -> str:
        """As ONNX Runtime calls it: `tensor(float)`."""


@dataclass(frozen=True)
class Input:
    """An input whose sizes are known better than its graph tells."""

    name: str
    shape: Sequence[int | str | None]
    type: str


def dimensions(folder: Path, graph: str) -> dict[str, int]:
    """Sizes of the named dimensions of a graph, where they are not the default.

    Raises:
        BuildError: The file beside the graphs cannot be read.
    """
    try:
        given: Mapping[str, Mapping[str, int]] = json.loads((folder / SIDECAR).read_text(encoding="utf-8"))
        return _DIMENSIONS.get(Path(graph).name, {}) | {name: int(size) for name, size in given.get(graph, {}).items()}
    except FileNotFoundError:
        return _DIMENSIONS.get(Path(graph).name, {})
    except (ValueError, AttributeError, TypeError) as error:
        raise BuildError(Reason.INTERNAL, f"{folder / SIDECAR} cannot be used: {error}") from None


def feeds(graph: str, inputs: Sequence[InputInfo], sizes: Mapping[str, int]) -> list[Feeds]:
    """Random inputs with fixed seeds. Equal names of dimensions get equal sizes; masks are 1, ids are small.

    Raises:
        BuildError: An input has a type that is not known.
    """
    return [
        {
            one.name: _array(graph, one, sizes, np.random.default_rng([seed, number]))
            for number, one in enumerate(inputs)
        }
        for seed in _SEEDS
    ]


def _array(graph: str, one: InputInfo, sizes: Mapping[str, int], rng: np.random.Generator) -> Array:
    dtype = _TYPES.get(one.type)
    if dtype is None:
        raise BuildError(
            Reason.SHAPE_MISMATCH, f"input {one.name} of {graph} has type {one.type}, which is not known here"
        )
    shape = [size if isinstance(size, int) else sizes.get(size or "", DEFAULT_SIZE) for size in one.shape]
    if "mask" in one.name or dtype == "bool":
        return np.ones(shape, dtype)
    if dtype.startswith("int"):
        return rng.integers(1, 8, shape).astype(dtype)
    return rng.standard_normal(math.prod(shape)).reshape(shape).astype(dtype)
