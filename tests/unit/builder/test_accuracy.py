"""The comparison notices what a listener or the next graph would notice."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_runtime.builder.accuracy import compare, demand, distance
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.result import Accuracy

RNG = np.random.default_rng(3)
TIME = np.arange(24_000) / 24_000
TONE = (0.3 * np.sin(2 * np.pi * 440 * TIME) + 0.01 * RNG.standard_normal(24_000)).astype(np.float32)


def test_equal_outputs_are_equal() -> None:
    outputs = [[RNG.standard_normal((2, 3))], [RNG.standard_normal((4,)), np.array([1, 2])]]
    with_more = [[outputs[0][0]], outputs[1]]

    found = compare("a", outputs, with_more)

    assert found.cosine == pytest.approx(1.0)
    assert found.max_error == 0.0


def test_silence_equals_silence() -> None:
    assert compare("a", [[np.zeros(3)]], [[np.zeros(3)]]).cosine == 1.0


def test_the_greatest_error_of_all_outputs_is_told() -> None:
    found = compare("a", [[np.array([1.0, 2.0])], [np.array([3.0])]], [[np.array([1.0, 2.0])], [np.array([2.5])]])

    assert found.max_error == 0.5
    assert 0.99 < found.cosine < 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_never_near(bad: float) -> None:
    with pytest.raises(BuildError, match="output 0 of a has values that are not finite") as caught:
        compare("a", [[np.ones(3)]], [[np.array([1.0, bad, 1.0])]])

    assert caught.value.reason is Reason.ACCURACY_LOST


def test_a_source_that_is_not_finite_itself_is_told_as_such() -> None:
    with pytest.raises(BuildError, match="output 0 of the source of a has values that are not finite itself"):
        compare("a", [[np.array([1.0, np.nan])]], [[np.ones(2)]])


def test_another_shape_is_never_near() -> None:
    with pytest.raises(BuildError, match=r"shape \[1, 5\] in place of \[1, 4\]"):
        compare("a", [[np.ones((1, 4))]], [[np.ones((1, 5))]])


def test_each_precision_has_its_own_measure() -> None:
    found = Accuracy("a", 0.9985, 0.1)

    assert demand(found, "INT8") is found
    for precision in ("FP16", "FP32"):
        with pytest.raises(BuildError, match=r"cosine similarity of 0\.99850"):
            demand(found, precision)


def test_the_distance_of_sounds_is_in_decibels() -> None:
    assert distance(TONE, TONE) == 0.0
    assert distance(TONE, TONE * np.float32(2.0)) == pytest.approx(6.0, abs=0.3)
    assert distance(TONE, TONE * np.float32(1.05)) < 1.0
    assert distance(TONE, np.roll(TONE, 1) + np.float32(0.01) * RNG.standard_normal(24_000).astype(np.float32)) > 1.0


def test_a_sound_that_lasts_longer_is_another_sound() -> None:
    with pytest.raises(BuildError, match="24000 samples in place of 23999"):
        distance(TONE[1:], TONE)
