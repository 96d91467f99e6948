"""The embedded voice as something to build: its graphs, what to run them on, and whether what comes out still sounds the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np

from cosyvoice_runtime import audio, voice
from cosyvoice_runtime.builder import accuracy
from cosyvoice_runtime.builder.probes import Feeds, InputInfo
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.result import Accuracy
from cosyvoice_runtime.voice import EmbeddedVoice, Graphs

TEXTS = (
    *voice.WARM_UP_TEXTS,
    "Good morning, and welcome to the test.",
    "The train to Boston leaves at seven thirty, so please wait a moment while I look it up.",
    "She sells sea shells by the sea shore; the quick brown fox jumps over the lazy dog.",
)
# None of them is in the lexicon, so that each is read by the graph.
WORDS = ("zxqvorbl", "xyloburg", "kubernetes", "tensorrt", "quantiser", "grafana", "mirovnek", "thwaplet")
_SEED = 7


def graphs(name: str | None) -> Graphs:
    """The graphs of a voice.

    Raises:
        BuildError: MissingFile, when it is not inside this image.
    """
    try:
        return voice.embedded(name or "")
    except ValueError as error:
        raise BuildError(Reason.MISSING_FILE, f"{error}; name one of these in model.source.embedded") from None


def probes(name: str, originals: Graphs) -> dict[str, Callable[[Sequence[InputInfo]], list[Feeds]]]:
    """What to run each graph on, by its file name: the phonemes of fixed texts, and the letters of words that nobody knows."""
    speaker = EmbeddedVoice(name, graphs=originals)
    sentences = [speaker.inputs(piece) for text in TEXTS for piece in speaker.pieces(text)]
    letters = json.loads(originals.words.with_suffix(".json").read_text(encoding="utf-8"))["in"]
    words: list[Feeds] = [
        {"chars": np.asarray([[letters.index(letter) + 1 for letter in word if letter in letters]], np.int64)}
        for word in WORDS
    ]
    return {originals.voice.name: lambda _: sentences, originals.words.name: lambda _: words}


def compare_sound(name: str, originals: Graphs, built: Graphs) -> Accuracy:
    """Speak fixed texts with both, with the same noise, one after the other.

    Returns:
        The cosine similarity of the waves, and their log-spectral distance in dB as the error.

    Raises:
        BuildError: AccuracyLost, when the engine's sound is not finite, is silent, lasts longer or shorter, or differs audibly.
    """
    pieces: list[str] = []
    waves: list[list[voice.Wave]] = []
    for files in (originals, built):
        speaker = EmbeddedVoice(name, graphs=files, seed=_SEED)
        pieces = pieces or [piece for text in TEXTS for piece in speaker.pieces(text)]
        waves.append([speaker.synthesize(piece) for piece in pieces])
        del speaker
    for piece, wave in zip(pieces, waves[1], strict=True):
        if defect := audio.defect(wave):
            raise BuildError(
                Reason.ACCURACY_LOST,
                f"the engine's sound of {len(piece)} phonemes is {defect}; build it with a higher precision",
            )
    furthest = max(accuracy.distance(a, b) for a, b in zip(*waves, strict=True))
    if furthest > accuracy.GREATEST_DISTANCE:
        raise BuildError(
            Reason.ACCURACY_LOST,
            f"the engine's sound has a log-spectral distance of {furthest:.2f} dB to the original, at most "
            f"{accuracy.GREATEST_DISTANCE} dB are wanted; build it with a higher precision",
        )
    return Accuracy("sound", accuracy.compare("sound", waves[:1], waves[1:]).cosine, furthest)
