"""How near an engine is to its source, and how near it must be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.builder.probes import Array
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.request import Precision
from cosyvoice_runtime.builder.result import Accuracy

LEAST_COSINE: dict[Precision, float] = {"FP32": 0.9999, "BF16": 0.995, "FP16": 0.999, "INT8": 0.99}
"""Of the outputs of one graph, all of them and all inputs taken as one vector."""
GREATEST_DISTANCE = 1.0
"""Log-spectral distance of the sound in dB, the root of its mean square over time and frequency; about what a listener notices."""

_FRAME, _HOP = 1024, 256
_FLOOR = 1e-5
"""100 dB below full scale: what is quieter is the same silence to a listener."""


def compare(graph: str, original: Sequence[Sequence[Array]], built: Sequence[Sequence[Array]]) -> Accuracy:
    """Compare the outputs of a graph, by input and by output.

    Raises:
        BuildError: AccuracyLost, when an output is not finite or has another shape.
    """
    dot = left = right = worst = 0.0
    for theirs, ours in zip(original, built, strict=True):
        for position, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            if a.shape != b.shape:
                raise BuildError(
                    Reason.ACCURACY_LOST,
                    f"output {position} of {graph} has shape {list(b.shape)} in place of {list(a.shape)}; "
                    "build it with a higher precision",
                )
            x, y = (np.asarray(one, np.float64).ravel() for one in (a, b))
            if not np.isfinite(x).all():
                raise BuildError(
                    Reason.ACCURACY_LOST,
                    f"output {position} of the source of {graph} has values that are not finite itself; "
                    "take the model's graph in FP32",
                )
            if not np.isfinite(y).all():
                raise BuildError(
                    Reason.ACCURACY_LOST,
                    f"output {position} of {graph} has values that are not finite; build it with a higher precision",
                )
            dot, left, right = dot + float(x @ y), left + float(x @ x), right + float(y @ y)
            worst = max(worst, float(np.abs(x - y).max(initial=0.0)))
    same_nothing = left == right == 0.0
    return Accuracy(graph, 1.0 if same_nothing else dot / max((left * right) ** 0.5, 1e-300), worst)


def demand(found: Accuracy, precision: Precision) -> Accuracy:
    """Give it back if it is near enough.

    Raises:
        BuildError: AccuracyLost, with the figures.
    """
    least = LEAST_COSINE[precision]
    if not found.cosine >= least:
        raise BuildError(
            Reason.ACCURACY_LOST,
            f"{found.graph} in {precision} has a cosine similarity of {found.cosine:.5f} to its original, {least} is wanted "
            f"(greatest error {found.max_error:.3g}); build it with a higher precision",
        )
    return found


def distance(original: npt.NDArray[np.float32], built: npt.NDArray[np.float32]) -> float:
    """Log-spectral distance of two waves [samples] in dB.

    Raises:
        BuildError: AccuracyLost, when they do not last equally long.
    """
    if original.shape != built.shape:
        raise BuildError(
            Reason.ACCURACY_LOST,
            f"the engine speaks for {built.size} samples in place of {original.size}; build it with a higher precision",
        )
    difference = _decibels(original) - _decibels(built)
    return float(np.sqrt(np.mean(np.square(difference))))


def _decibels(wave: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    padded = np.pad(wave.astype(np.float64), (0, max(0, _FRAME - wave.size)))
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FRAME)[::_HOP] * np.hanning(_FRAME)
    spectrum = np.abs(np.fft.rfft(frames, axis=1)) / (_FRAME / 4)
    return 20 * np.log10(np.maximum(spectrum, _FLOOR))
