"""The embedded voice: text to waves in this process, through ONNX Runtime sessions whose every option is set.

Shared by the workers of the `onnxruntime` backend and by the Python model inside Triton, so that both tiers speak alike.
"""

from __future__ import annotations

import json
import os
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# From 1.29 on the Linux wheels of onnxruntime report model names, graphs and host facts to their maker, unless this is set
# before they are imported. A pod reports to nobody; and without a writable home each start would print warnings about it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from hibari import dsp
from hibari.g2p import G2P
from hibari.g2p.oov import OOV
from hibari.voices import ASSETS, VOICES

from cosyvoice_runtime import text as texts
from cosyvoice_runtime.errors import TextRefusedError
from cosyvoice_runtime.noise import NoiseTable

# Phonemes per run of the graph: attention grows with the square of the length.
MAX_PHONEMES = 300
WARM_UP_TEXTS = (
    "Warm up.",
    "This is a longer warm up sentence, with 1,250 numbers in it, so that the arenas reach their usual size before a caller comes.",
    "Zxqvorbl and Aldebaran are words that no lexicon has.",
)

Wave = npt.NDArray[np.float32]


@dataclass(frozen=True)
class VoiceFacts:
    """What was loaded, on what, and how long it took in seconds."""

    voice: str
    providers: tuple[str, ...]
    load_seconds: float
    warmup_seconds: float


def session_options(threads: int) -> ort.SessionOptions:
    """Options for a pod with a CPU limit."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = True
    # It caches one plan per input length, and sentences have every length: memory crept from 130 to 191 MiB, without it
    # it stayed at 158 at the same speed.
    options.enable_mem_pattern = False
    # A pool that spins while it waits burns the container's CPU quota and is throttled for it.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.log_severity_level = 3
    return options


@dataclass(frozen=True)
class Graphs:
    """The files of a voice: phonemes to spectra, and the reading of words that no lexicon has."""

    voice: Path
    words: Path

    def within(self, folder: Path) -> Graphs:
        """The same files in another directory."""
        return Graphs(folder / self.voice.name, folder / self.words.name)


def embedded(voice: str) -> Graphs:
    """The graphs of a voice inside this package; raises ValueError for one that is not."""
    known = {name for name, facts in VOICES.items() if facts.get("bundled")}
    if voice not in known:
        raise ValueError(f"voice {voice!r} is not inside this image; it holds {', '.join(sorted(known))}")
    assets, facts = Path(ASSETS), VOICES[voice]
    return Graphs(assets / facts["file"], assets / ("oov_gb.onnx" if facts["british"] else "oov.onnx"))


class EmbeddedVoice:
    """One voice of `hibari-tts` that is inside the package, so that nothing is ever fetched.

    Its command-line class makes sessions with its own options; here its parts are put together with ours.
    """

    def __init__(
        self,
        voice: str = "heart",
        threads: int = 1,
        providers: tuple[str, ...] = ("CPUExecutionProvider",),
        graphs: Graphs | None = None,
        seed: int | None = None,
    ) -> None:
        """Load a voice.

        Args:
            voice: Its name.
            threads: Of each session.
            providers: Execution providers of the voice's own graph.
            graphs: Where its graphs are; left out: inside the package, as they were made.
            seed: Of the noise in the sound; left out: another one each time.

        Raises:
            ValueError: The voice is not inside this image.
        """
        original = embedded(voice)
        graphs = graphs or original
        started = time.perf_counter()
        options = session_options(threads)
        self.voice = voice
        self._session = ort.InferenceSession(str(graphs.voice), options, providers=list(providers))
        words = ort.InferenceSession(str(graphs.words), options, providers=["CPUExecutionProvider"])
        # The library reads the letters of that graph from a file beside the original.
        self._g2p = G2P(british=bool(VOICES[voice]["british"]), oov=OOV(str(original.words), session=words))
        assets = Path(ASSETS)
        self._vocabulary: dict[str, int] = json.loads((assets / "vocab.json").read_text(encoding="utf-8"))
        # Letters of the phonetic alphabet; marks of stress and length, and punctuation, make no sound of their own.
        self._sounds = frozenset(char for char in self._vocabulary if unicodedata.category(char) in {"Ll", "Lu", "Lo"})
        self._noise = NoiseTable(seed)
        self._speed = np.ones(1, np.float32)
        self.load_seconds = time.perf_counter() - started

    @property
    def providers(self) -> tuple[str, ...]:
        """Execution providers of the session, as it reports them; the first one computes."""
        return tuple(self._session.get_providers())

    def warm_up(self, rounds: int) -> float:
        """Speak `rounds` texts of different kinds; gives the seconds it took."""
        started = time.perf_counter()
        for number in range(rounds):
            for piece in self.pieces(WARM_UP_TEXTS[number % len(WARM_UP_TEXTS)]):
                self.synthesize(piece)
        return time.perf_counter() - started

    def pieces(self, sentence: str) -> list[str]:
        """Phonemes of one sentence in parts of at most 300; parts without a letter are left out.

        Raises TextRefusedError for one that the voice cannot read.
        """
        try:
            phonemes = self._g2p(texts.defuse(sentence))
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            # Its rules for numbers and symbols have gaps. That is the text's fault, and trying again would not help.
            raise TextRefusedError(f"the voice cannot read a part of it ({type(error).__name__})") from None
        return [piece for piece in cut(phonemes, MAX_PHONEMES) if not self._sounds.isdisjoint(piece)]

    def inputs(self, phonemes: str) -> dict[str, npt.NDArray[Any]]:
        """What the voice's graph takes for one part: ids [1, phonemes + 2] and speed [1]."""
        vocabulary = self._vocabulary
        ids = np.asarray([[0, *[vocabulary[char] for char in phonemes if char in vocabulary], 0]], np.int64)
        return {"ids": ids, "speed": self._speed}

    def synthesize(self, phonemes: str) -> Wave:
        """A float32 wave [samples] at 24 kHz for one part."""
        outputs = self._session.run(None, self.inputs(phonemes))
        wave: Wave = dsp.synth(*(output[0] for output in outputs), self._noise)
        return wave


def cut(phonemes: str, longest: int) -> Iterator[str]:
    """The phonemes in parts of at most `longest`, cut after a space where there is one."""
    while phonemes:
        end = len(phonemes) if len(phonemes) <= longest else (phonemes.rfind(" ", 0, longest) + 1 or longest)
        yield phonemes[:end]
        phonemes = phonemes[end:]
