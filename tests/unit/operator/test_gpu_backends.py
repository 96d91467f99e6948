"""Which GPU types serve which family on which backend, and what is said of those that don't."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.api.source import Family
from cosyvoice_operator.api.spec import Backend
from cosyvoice_operator.core.gpu import GPUTypeFacts, parse_node, refusal, type_facts, verdicts
from tests.unit.operator.builders import node

GPU = "nvidia.com/gpu"
TRITON, ONNX = Backend.TRITON, Backend.ONNXRUNTIME
REAL = (Family.COSYVOICE3, Family.COSYVOICE2_DIT, Family.COSYVOICE2_UNET)


def facts(gpu_type: str = "X", memory: int | None = 24_000, capability: str | None = "8.9") -> GPUTypeFacts:
    return GPUTypeFacts(gpu_type, GPU, memory, capability, None, "amd64", memory)


def supported(gpu: GPUTypeFacts, family: Family) -> list[Backend]:
    return [verdict.backend for verdict in verdicts(gpu, family) if verdict.supported]


@pytest.mark.parametrize(
    ("gpu_type", "backends"),
    [
        ("L40S", [TRITON, ONNX]),
        ("L4", [TRITON, ONNX]),
        ("A10G", [TRITON, ONNX]),
        ("A100-SXM4-40GB-MIG-2g.10gb", [TRITON, ONNX]),
        ("T4", [ONNX]),
        ("V100-SXM2-16GB", [ONNX]),
        ("A10-8Q", [ONNX]),
        ("P100-PCIE-16GB", []),
        ("A100-SXM4-40GB-MIG-1g.5gb", []),
        ("A16-4Q", []),
    ],
)
def test_ample_gpus_take_triton_lesser_ones_onnx_runtime_and_the_least_none(
    gpu_type: str, backends: list[Backend]
) -> None:
    assert supported(type_facts([], gpu_type, GPU), Family.COSYVOICE3) == backends


def test_a_refusal_has_the_figures_of_both_sides() -> None:
    told = refusal(type_facts([], "A100-SXM4-40GB-MIG-1g.5gb", GPU), Family.COSYVOICE3, TRITON)
    assert told.startswith("CosyVoice3 on Triton needs about 9216 MiB")
    assert told.endswith("A100-SXM4-40GB-MIG-1g.5gb has 4864 MiB.")
    told = refusal(type_facts([], "T4", GPU), Family.COSYVOICE3, TRITON)
    assert told == "CosyVoice3 on Triton needs compute capability 8.0 in BF16, and T4 has 7.5."


def test_compute_capabilities_compare_as_numbers() -> None:
    assert refusal(facts(capability="10.0"), Family.COSYVOICE3, TRITON) == ""
    assert "8.0" in refusal(facts(capability="7.10"), Family.COSYVOICE3, TRITON)


@pytest.mark.parametrize(
    ("family", "backend", "precision", "word"),
    [
        (Family.COSYVOICE3, ONNX, "BF16", "8.0"),
        (Family.COSYVOICE3, ONNX, "FP16", "NaN"),
        (Family.COSYVOICE3, ONNX, "INT8", "no INT8 engine"),
        (Family.COSYVOICE2_DIT, TRITON, "INT8", "no INT8 engine"),
    ],
)
def test_a_precision_that_gives_no_speech_is_refused(
    family: Family, backend: Backend, precision: str, word: str
) -> None:
    assert word in refusal(facts(capability="7.5"), family, backend, precision)


def test_cosyvoice2_may_compute_in_16_bits() -> None:
    assert refusal(facts(capability="7.5"), Family.COSYVOICE2_UNET, ONNX, "FP16") == ""


@pytest.mark.parametrize("gpu", [facts(memory=None), facts(capability=None)])
def test_a_card_whose_figures_nobody_tells_is_refused_and_not_guessed(gpu: GPUTypeFacts) -> None:
    assert "nothing tells those of X" in refusal(gpu, Family.COSYVOICE3, ONNX)


def test_the_voice_of_the_demo_needs_nothing_of_a_gpu_but_its_name() -> None:
    assert supported(facts(memory=None, capability=None), Family.DEMO) == [TRITON, ONNX]
    assert supported(facts("Unknown"), Family.DEMO) == []


def test_a_pod_that_gets_a_part_of_the_memory_is_judged_by_that_part() -> None:
    raw = node("n", "NVIDIA-GeForce-RTX-4090", 8)
    raw["metadata"]["labels"] |= {"nvidia.com/gpu.replicas": "8", "nvidia.com/gpu.sharing-strategy": "mps"}
    told = refusal(type_facts([parse_node(raw)], "GeForce-RTX-4090", GPU), Family.COSYVOICE3, ONNX)
    assert "GeForce-RTX-4090 gives each pod 3070 MiB" in told
    raw["metadata"]["labels"]["nvidia.com/gpu.sharing-strategy"] = "time-slicing"
    assert refusal(type_facts([parse_node(raw)], "GeForce-RTX-4090", GPU), Family.COSYVOICE3, ONNX) == ""


@given(
    family=st.sampled_from(REAL),
    backend=st.sampled_from(Backend),
    memory=st.integers(1_000, 200_000),
    more=st.integers(0, 100_000),
    capability=st.sampled_from(("6.1", "7.0", "7.5", "8.0", "8.9", "9.0", "10.0", "12.0")),
)
def test_more_memory_never_turns_a_gpu_down(
    family: Family, backend: Backend, memory: int, more: int, capability: str
) -> None:
    small = facts(memory=memory, capability=capability)
    large = replace(small, memory_mib=memory + more, pod_mib=memory + more)
    assert bool(refusal(small, family, backend)) >= bool(refusal(large, family, backend))
    assert bool(refusal(small, family, backend)) >= bool(
        refusal(replace(small, compute_capability="12.0"), family, backend)
    )
