"""Triton's Python model around the embedded voice: text in, 24 kHz float32 speech out, one response for each piece.

It tells what Triton does not: load and warm-up seconds and the execution provider, as metrics on Triton's own metrics port.
"""

from __future__ import annotations

import gc
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils

from cosyvoice_runtime import text as texts
from cosyvoice_runtime.errors import BadAudioError, NothingToSpeakError, SynthesisError, TextRefusedError

if TYPE_CHECKING:
    from cosyvoice_runtime.voice import EmbeddedVoice, Graphs

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
REFERENCES = ("reference_wav", "reference_wav_len", "reference_text")


class TritonPythonModel:
    """One instance: one process with its own session."""

    _voice: EmbeddedVoice
    _max_chars: int
    _metrics: list[Any]

    def initialize(self, args: dict[str, str]) -> None:
        """Load, warm up, and publish how long that took. Importing the runtime libraries is part of the load."""
        started = time.perf_counter()
        from cosyvoice_runtime.voice import EmbeddedVoice  # noqa: PLC0415 - timed

        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}
        self._max_chars = int(parameters.get("max_chars", "5000"))
        # The pod's voice goes first: it is what the resource asks for.
        voice = os.environ.get("COSYVOICE_VOICE") or parameters.get("voice", "heart")
        self._voice = EmbeddedVoice(voice, int(parameters.get("threads", "1")), graphs=mounted(voice))
        load = time.perf_counter() - started
        warmup = self._voice.warm_up(int(parameters.get("warmup_requests", "3")))
        gc.freeze()  # the lexicon lives as long as the process; the collector need not look through it again and again
        self._metrics = [
            publish(
                "cosyvoice_model_load_seconds", "Loading of the model.", load, instance=args["model_instance_name"]
            ),
            publish("cosyvoice_model_warmup_seconds", "Warm-up.", warmup, instance=args["model_instance_name"]),
            publish("cosyvoice_model_provider", "Execution provider.", 1, provider=self._voice.providers[0]),
        ]
        pb_utils.Logger.log_info(f"loaded in {load:.2f} s, warmed up in {warmup:.2f} s on {self._voice.providers[0]}")

    def execute(self, requests: list[Any]) -> None:
        """Answer each request piece by piece; an error ends that request and no other."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._speak(request, sender)
            except SynthesisError as error:
                # The kind comes with the message, since a stream carries no status code.
                refuse(sender, f"[{error.kind}] {error}", pb_utils.TritonError.INVALID_ARG)
            except Exception as error:  # noqa: BLE001 - one text must never take the instance down
                pb_utils.Logger.log_error(f"synthesis failed: {type(error).__name__}")
                refuse(sender, f"[{SynthesisError.kind}] {type(error).__name__}", pb_utils.TritonError.INTERNAL)

    def _speak(self, request: Any, sender: Any) -> None:
        from cosyvoice_runtime import audio  # noqa: PLC0415 - numpy is part of the timed load

        pieces = [piece for unit in texts.units(self._text(request)) for piece in self._voice.pieces(unit)]
        if not pieces:
            raise NothingToSpeakError("target_text holds nothing that this voice can say")
        for left, piece in zip(range(len(pieces) - 1, -1, -1), pieces, strict=True):
            if request.is_cancelled():
                sender.send(flags=FINAL)
                return
            wave = self._voice.synthesize(piece)
            if defect := audio.defect(wave):
                raise BadAudioError(f"a piece of {len(piece)} phonemes is {defect}")
            response = pb_utils.InferenceResponse([pb_utils.Tensor("waveform", wave[None])])
            sender.send(response, flags=0 if left else FINAL)

    def _text(self, request: Any) -> str:
        """The text, cleaned; raises TextRefusedError with what to do instead."""
        for name in REFERENCES:
            if pb_utils.get_input_tensor_by_name(request, name) is not None:
                raise TextRefusedError(
                    f"{name} cannot be used: the embedded voice has one speaker; leave reference_* out"
                )
        raw = pb_utils.get_input_tensor_by_name(request, "target_text").as_numpy().reshape(-1)[0]
        try:
            text = raw.decode("utf-8") if isinstance(raw, bytes) else str(raw)
        except UnicodeDecodeError as error:
            raise TextRefusedError(f"target_text is not UTF-8 at byte {error.start}; encode it as UTF-8") from None
        if len(text) > self._max_chars:
            raise TextRefusedError(
                f"target_text has {len(text)} characters, at most {self._max_chars}; send it in parts"
            )
        return texts.clean(text)


def mounted(voice: str) -> Graphs | None:
    """The graphs of the engine that the pod was given; None without one. Raises EngineError when it is for something else."""
    from cosyvoice_runtime import engines  # noqa: PLC0415 - timed
    from cosyvoice_runtime.voice import embedded  # noqa: PLC0415

    folder = os.environ.get("COSYVOICE_ENGINE_DIR")
    if not folder:
        return None
    expected = engines.Expected("Triton", os.environ.get("COSYVOICE_FAMILY", "Demo"), voice, "CPU")
    return embedded(voice).within(engines.find(Path(folder), expected).folder)


def publish(name: str, description: str, value: float, **labels: str) -> tuple[Any, Any]:
    """A gauge on Triton's metrics port; the family must be kept, or the metric goes with it."""
    family = pb_utils.MetricFamily(name=name, description=description, kind=pb_utils.MetricFamily.GAUGE)
    metric = family.Metric(labels=labels)
    metric.set(value)
    return family, metric


def refuse(sender: Any, message: str, code: int) -> None:
    """End a request with an error."""
    sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code)), flags=FINAL)
