"""The embedded voice: it reads whatever is written, in bounded time, and says in words what it cannot."""

from __future__ import annotations

import os
import time

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cosyvoice_runtime import audio, voice
from cosyvoice_runtime import text as texts
from cosyvoice_runtime.errors import TextRefusedError

SIGNS = "0123456789.,:/-$€£¥%°CFkm ²½¹①'’\"()[]&@#=+<>~^*_|abIVXLM\n"
SCRAPS = st.sampled_from([*SIGNS, "No.", "am", "Dr.", "Chapter ", "km/h", "https://", "@a.com", "…", "—"])


@pytest.fixture(scope="module")
def heart() -> voice.EmbeddedVoice:
    return voice.EmbeddedVoice()


def test_a_sentence_becomes_sound_and_the_session_says_what_computed_it(heart: voice.EmbeddedVoice) -> None:
    [piece] = heart.pieces("Good morning to you all.")

    wave = heart.synthesize(piece)

    assert wave.dtype == np.float32
    assert audio.defect(wave) is None
    assert 1.0 < wave.size / audio.SAMPLE_RATE < 3.5
    assert heart.providers == ("CPUExecutionProvider",)


def test_the_session_options_fit_a_container_with_a_limit() -> None:
    options = voice.session_options(3)

    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)
    assert options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    assert options.enable_mem_pattern is False
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_the_runtime_library_reports_to_nobody() -> None:
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"


def test_a_voice_that_is_not_inside_the_image_is_refused_and_not_fetched() -> None:
    with pytest.raises(ValueError, match="it holds heart"):
        voice.EmbeddedVoice("emma")


@pytest.mark.parametrize("sentence", ["", "?!.,;:", "你好，世界。", "😀🎉", "(((", "—"])
def test_what_has_no_sounds_has_no_pieces(heart: voice.EmbeddedVoice, sentence: str) -> None:
    assert heart.pieces(sentence) == []


def test_pieces_are_short_enough_for_the_square_growth_of_attention(heart: voice.EmbeddedVoice) -> None:
    pieces = heart.pieces("ab " * 800)

    assert len(pieces) > 1
    assert all(len(piece) <= voice.MAX_PHONEMES for piece in pieces)


@given(st.text(max_size=50), st.integers(1, 20))
def test_cutting_phonemes_loses_none(phonemes: str, longest: int) -> None:
    parts = list(voice.cut(phonemes, longest))

    assert "".join(parts) == phonemes
    assert all(0 < len(part) <= longest for part in parts)


@pytest.mark.parametrize(
    "sentence", ["7" * 200, "1" * 25 + "," + "1" * 25, "¹ and ① and ₅", "[a](/b/)", "1e999", "99:99:99 pm"]
)
def test_numbers_and_signs_that_its_rules_do_not_know_are_read_all_the_same(
    heart: voice.EmbeddedVoice, sentence: str
) -> None:
    assert heart.pieces(sentence)


@pytest.mark.parametrize("scrap", ["a-", "0/", "1:2:", "$5", "[", "[](", "'", "x.", "½", "a'b", "(", "7"])
def test_no_sentence_keeps_a_worker_busy_for_long(heart: voice.EmbeddedVoice, scrap: str) -> None:
    sentence = (scrap * texts.MAX_UNIT_CHARS)[: texts.MAX_UNIT_CHARS]
    begun = time.process_time()

    heart.pieces(sentence)

    assert time.process_time() - begun < 0.7


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.text(max_size=100), st.lists(SCRAPS, max_size=50).map("".join)))
def test_any_text_is_read_or_refused(heart: voice.EmbeddedVoice, text: str) -> None:
    for unit in texts.units(texts.clean(text)):
        try:
            pieces = heart.pieces(unit)
        except TextRefusedError:
            continue
        assert all(pieces)
