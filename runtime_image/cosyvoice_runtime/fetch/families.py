"""Which files a model of each family must have, so that what is missing is told before hours of building.

Names are those that the serving code opens (runtime/triton_trtllm of CosyVoice at ace7c47, and the files that its stages copy
together). Sizes are those of the published models, for messages only: nobody's fine-tuned model is refused for its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cosyvoice_runtime.fetch import figures
from cosyvoice_runtime.fetch.errors import FetchError, Reason

_KB, _MB, _GB = 10**3, 10**6, 10**9


@dataclass(frozen=True)
class Need:
    """Files that do one thing, by path with bytes; any one of the options will do. `hint` says where they come from."""

    options: tuple[Mapping[str, float], ...]
    hint: str = ""

    def lacking(self, sizes: Mapping[str, int | None]) -> dict[str, float]:
        """What is missing of the option that is nearest to complete. An empty file is missing: failed downloads leave such."""
        lacks = [{path: size for path, size in option.items() if sizes.get(path, 0) == 0} for option in self.options]
        return min(lacks, key=len)


_BASE_LLM = {
    "llm.pt": 2.02 * _GB,
    "CosyVoice-BlankEN/config.json": 1 * _KB,
    "CosyVoice-BlankEN/model.safetensors": 988 * _MB,
    "CosyVoice-BlankEN/vocab.json": 2.8 * _MB,
    "CosyVoice-BlankEN/merges.txt": 1.7 * _MB,
    "CosyVoice-BlankEN/tokenizer_config.json": 1 * _KB,
}


def _converted_llm(folder: str) -> Mapping[str, float]:
    return {
        f"{folder}/config.json": 1 * _KB,
        f"{folder}/model.safetensors": 1 * _GB,
        f"{folder}/tokenizer_config.json": 1 * _KB,
    }


_SPEAKER = {"campplus.onnx": 28.3 * _MB}
_ESTIMATOR_HINT = (
    "flow.decoder.estimator.fp32.onnx is in the ModelScope repository where Hugging Face lacks it (CosyVoice #1686)"
)

FAMILIES: Mapping[str, tuple[Need, ...]] = {
    "CosyVoice3": (
        Need(({"cosyvoice3.yaml": 7 * _KB},)),
        Need((_BASE_LLM, _converted_llm("hf_cosyvoice3_llm"))),
        Need(({"flow.pt": 1.33 * _GB, "hift.pt": 83 * _MB},)),
        Need(({**_SPEAKER, "speech_tokenizer_v3.onnx": 969 * _MB},)),
        Need(
            (
                {"flow.decoder.estimator.fp32.onnx": 1.33 * _GB},
                {"flow.decoder.estimator.autocast_fp16.onnx": 0.66 * _GB},
            ),
            _ESTIMATOR_HINT,
        ),
    ),
    "CosyVoice2UNet": (
        Need(({"cosyvoice2.yaml": 7 * _KB},)),
        Need((_BASE_LLM, _converted_llm("cosyvoice2_llm"))),
        Need(({"flow.pt": 451 * _MB, "hift.pt": 83 * _MB},)),
        Need(({**_SPEAKER, "speech_tokenizer_v2.onnx": 496 * _MB},)),
        Need(({"flow.decoder.estimator.fp32.onnx": 286 * _MB},), _ESTIMATOR_HINT),
        Need(
            ({"spk2info.pt": 0.0},),
            "the serving code opens spk2info.pt even when it does not use it; qi-hua/async_cosyvoice publishes one",
        ),
    ),
    "CosyVoice2DiT": (
        Need((_converted_llm("cosyvoice2_llm"),), "cosyvoice2_llm/ holds the files of yuekai/cosyvoice2_llm"),
        Need(
            (
                {
                    "token2wav/flow.yaml": 2 * _KB,
                    "token2wav/flow.pt": 623 * _MB,
                    "token2wav/hift.pt": 83 * _MB,
                    "token2wav/campplus.onnx": 28.3 * _MB,
                    "token2wav/speech_tokenizer_v2_25hz.onnx": 496 * _MB,
                },
            ),
            "token2wav/ is a folder of stepfun-ai/Step-Audio-2-mini",
        ),
        Need(
            ({"token2wav/flow.decoder.estimator.chunk.fp32.dynamic_batch.simplify.onnx": 0.0},),
            "it comes from yuekai/cosyvoice2_dit_flow_matching_onnx",
        ),
    ),
}


def _graphs(encoder: float, estimator: float) -> tuple[Need, ...]:
    return (
        Need(
            (
                {
                    "llm.onnx": 1.46 * _GB,
                    "flow_encoder.onnx": encoder,
                    "flow_estimator.onnx": estimator,
                    "hift_decoder.onnx": 70 * _MB,
                },
            )
        ),
        Need(({"hift_f0.onnx": 13 * _MB}, {"hift_f0_f64.onnx": 27 * _MB})),
    )


EXPORTS: Mapping[str, tuple[Need, ...]] = {
    "CosyVoice3": _graphs(4 * _MB, 1.33 * _GB),
    "CosyVoice2UNet": _graphs(186 * _MB, 286 * _MB),
}
"""Models that were exported whole, for ONNX Runtime alone: what has one of these graphs needs them all, and nothing else."""


def _needs(family: str, sizes: Mapping[str, int | None]) -> tuple[Need, ...]:
    exported = EXPORTS.get(family, ())
    if any(path in sizes for need in exported for option in need.options for path in option):
        return exported
    return FAMILIES[family]


def check(family: str, sizes: Mapping[str, int | None], title: str) -> None:
    """Check that nothing is missing.

    Args:
        family: Of FAMILIES.
        sizes: Bytes of each file by path; None where it is unknown.
        title: How messages name the source.

    Raises:
        FetchError: Files are missing or empty; the message has their names and usual sizes.
    """
    if family not in FAMILIES:
        raise FetchError(
            Reason.INTERNAL, f"family {family} has no files to fetch; the fetch image knows {', '.join(FAMILIES)}"
        )
    lacking: dict[str, float] = {}
    hints = []
    for need in _needs(family, sizes):
        if found := need.lacking(sizes):
            lacking |= found
            hints += [need.hint] if need.hint else []
    if not lacking:
        return
    others = [name for name, wanted in FAMILIES.items() if not any(need.lacking(sizes) for need in wanted)]
    step = "; ".join(
        [*hints, f"add them to the source, or set spec.model.family to {' or '.join(others) or 'what it holds'}"]
    )
    named = ", ".join(_named(path, size, sizes) for path, size in lacking.items())
    count = "1 file" if len(lacking) == 1 else f"{len(lacking)} files"
    raise FetchError(Reason.MISSING_FILE, f"{title} lacks {count} of {family}: {named}; {step}")


def _named(path: str, size: float, sizes: Mapping[str, int | None]) -> str:
    notes = [f"about {figures.size(size)}"] if size else []
    notes += ["is there, but empty"] if path in sizes else []
    return f"{path} ({', '.join(notes)})" if notes else path
