"""What a backend needs of a GPU, and so which types serve which family: rules in one table, and the figures in every refusal."""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_operator.api.source import Family
from cosyvoice_operator.api.spec import Backend
from cosyvoice_operator.core.gpu.names import UNKNOWN
from cosyvoice_operator.core.gpu.nodes import GPUTypeFacts
from cosyvoice_operator.core.gpu.products import version

BF16, FP16, FP32, INT8 = "BF16", "FP16", "FP32", "INT8"


@dataclass(frozen=True, slots=True)
class Need:
    """What a family takes of a GPU on one backend.

    Attributes:
        memory_mib: Memory that one pod needs, in MiB.
        reason: What makes it up, for messages.
    """

    memory_mib: int
    reason: str


# Measured means: measured by somebody and published; estimated: added up here from sizes, never run. All on top of about 0.5 GiB for each
# process that uses CUDA (estimated).
#
# Triton: the LLM in bfloat16 1.0 GiB (measured: the size of its files), its runtime and a key-value cache 1 to 2 GiB (estimated; the server
# takes 40 % of what is free, whatever that is), the speech tokenizer in fp32 0.9 GiB for CosyVoice3 and 0.5 GiB for CosyVoice2 (measured:
# file sizes), the estimator's plan 0.6 GiB and its context 0.4 GiB for CosyVoice3 in fp16 (measured, FastCosyVoice), for CosyVoice2 0.2 GiB
# and up to 4.4 GiB in fp32 (measured, CosyVoice issue 835), half of it in fp16 (estimated); two or three processes.
# ONNX Runtime: the graphs in fp32 as they are: 2.9 GiB of the LLM, the estimator and the vocoder for CosyVoice3, 2.0 GiB for CosyVoice2
# (measured: file sizes), the speech tokenizer as above, and the arena for 30 s of audio about 1.5 GiB (estimated). All in one process.
# For comparison: CosyVoice3 in PyTorch peaked at 4.4 to 4.6 GiB on a card with 6 (measured, sglang-omni).
_NEEDS: dict[tuple[Family, Backend], Need] = {
    (Family.COSYVOICE3, Backend.TRITON): Need(
        9 * 1024, "LLM, key-value cache, speech tokenizer, estimator, three processes"
    ),
    (Family.COSYVOICE2_DIT, Backend.TRITON): Need(
        9 * 1024, "LLM, key-value cache, speech tokenizer, estimator, three processes"
    ),
    (Family.COSYVOICE2_UNET, Backend.TRITON): Need(7 * 1024, "LLM, speech tokenizer, estimator, two processes"),
    (Family.COSYVOICE3, Backend.ONNXRUNTIME): Need(6 * 1024, "graphs in fp32, arena"),
    (Family.COSYVOICE2_DIT, Backend.ONNXRUNTIME): Need(5 * 1024, "graphs in fp32, arena"),
    (Family.COSYVOICE2_UNET, Backend.ONNXRUNTIME): Need(5 * 1024, "graphs in fp32, arena"),
}
"""Family Demo is missing: its voice computes on the CPU, so that any node with the wanted resource will do."""

_CAPABILITIES: dict[tuple[Backend, str], str] = {
    # The support matrix of TensorRT-LLM begins with Ampere; bfloat16 arithmetic came with it.
    (Backend.TRITON, BF16): "8.0",
    (Backend.TRITON, FP16): "8.0",
    (Backend.TRITON, FP32): "8.0",
    # CUDA 12 with cuDNN up to 9.10 serves Volta, the first with tensor cores; CUDA 13 begins with Turing (7.5).
    (Backend.ONNXRUNTIME, BF16): "8.0",
    (Backend.ONNXRUNTIME, FP16): "7.0",
    (Backend.ONNXRUNTIME, FP32): "7.0",
}
"""Least compute capability. INT8 is missing: such graphs are made for CPUs."""

_DEFAULT_PRECISION = {Backend.TRITON: BF16, Backend.ONNXRUNTIME: FP32}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a backend can serve a family on a GPU type.

    Attributes:
        backend: The backend.
        refusal: Why not, with the figures; empty where it can.
    """

    backend: Backend
    refusal: str

    @property
    def supported(self) -> bool:
        """Whether it can."""
        return not self.refusal


def refusal(gpu: GPUTypeFacts, family: Family, backend: Backend, precision: str | None = None) -> str:
    """Say why a GPU type can't serve a family on a backend; nothing when it can.

    Args:
        gpu: What holds for the type.
        family: Family of the model.
        backend: What computes.
        precision: Wanted precision; None for the backend's usual one.
    """
    if gpu.gpu_type == UNKNOWN:
        return "The GPU type is unknown."
    need = _NEEDS.get((family, backend))
    if need is None:
        return ""
    wanted = precision or _DEFAULT_PRECISION[backend]
    least = _CAPABILITIES.get((backend, wanted))
    what = f"{family} on {backend}"
    if least is None:
        return f"{what} has no {wanted} engine for GPUs: use {_DEFAULT_PRECISION[backend]}."
    if (family, backend, wanted) == (Family.COSYVOICE3, Backend.ONNXRUNTIME, FP16):
        return f"{what} gives no sound in FP16, but NaN (CosyVoice issue 1930): use FP32."
    if gpu.compute_capability is None or gpu.pod_mib is None:
        return f"{what} needs a GPU whose memory and compute capability are known, and nothing tells those of {gpu.gpu_type}."
    lacks = []
    if version(gpu.compute_capability) < version(least):
        lacks.append(f"compute capability {least} in {wanted}, and {gpu.gpu_type} has {gpu.compute_capability}")
    if gpu.pod_mib < need.memory_mib:
        share = "gives each pod" if gpu.pod_mib != gpu.memory_mib else "has"
        lacks.append(f"about {need.memory_mib} MiB ({need.reason}), and {gpu.gpu_type} {share} {gpu.pod_mib} MiB")
    return f"{what} needs {'; it needs '.join(lacks)}." if lacks else ""


def verdicts(gpu: GPUTypeFacts, family: Family) -> tuple[Verdict, ...]:
    """Try the backends in the order in which they are worth having: TensorRT-LLM, then ONNX Runtime on the same GPU.

    A type that neither serves leaves ONNX Runtime on CPU.
    """
    return tuple(Verdict(backend, refusal(gpu, family, backend)) for backend in (Backend.TRITON, Backend.ONNXRUNTIME))
