"""Frames between the gateway and its workers, and what is read from Triton."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.backends import BackendFacts, tritonfacts
from cosyvoice_runtime.backends.triton import classify
from cosyvoice_runtime.backends.wire import Kind, Parser, frame
from cosyvoice_runtime.errors import (
    BackendLostError,
    BadAudioError,
    NothingToSpeakError,
    SynthesisError,
    TextRefusedError,
)

FRAMES = st.lists(st.tuples(st.sampled_from(Kind), st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=10)


@given(FRAMES, st.data())
def test_frames_survive_any_cut_of_the_stream(frames: list[tuple[Kind, int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(frame(*one) for one in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parser = Parser()

    parsed = [
        one
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for one in parser.feed(stream[start:end])
    ]

    assert parsed == frames


METRICS = """\
# HELP cosyvoice_model_load_seconds Loading of the model.
# TYPE cosyvoice_model_load_seconds gauge
cosyvoice_model_load_seconds{instance="cosyvoice_0_1"} 1.25
cosyvoice_model_load_seconds{instance="cosyvoice_0_0"} 3.0
# HELP cosyvoice_model_warmup_seconds Warm-up.
# TYPE cosyvoice_model_warmup_seconds gauge
cosyvoice_model_warmup_seconds{instance="cosyvoice_0_0"} 0.5
# HELP cosyvoice_model_provider Execution provider.
# TYPE cosyvoice_model_provider gauge
cosyvoice_model_provider{provider="CUDAExecutionProvider"} 1
# HELP nv_inference_count Number of inferences
# TYPE nv_inference_count counter
nv_inference_count{model="cosyvoice",version="1"} 12
"""


def test_of_several_instances_the_slowest_load_counts() -> None:
    facts = tritonfacts.parse(METRICS)

    assert facts == BackendFacts(("CUDAExecutionProvider",), 3.0, 0.5)
    assert facts.execution_provider == "CUDA"


def test_a_model_that_exports_nothing_leaves_the_facts_open() -> None:
    assert tritonfacts.parse("") == BackendFacts((), None, None)


async def test_metrics_that_do_not_answer_are_no_reason_to_fail() -> None:
    assert await tritonfacts.fetch("http://127.0.0.1:1/metrics") == BackendFacts((), None, None)


@pytest.mark.parametrize(
    ("providers", "name"),
    [
        (("CPUExecutionProvider",), "CPU"),
        (("CUDAExecutionProvider", "CPUExecutionProvider"), "CUDA"),
        ((), "CPU"),
        (("TensorrtExecutionProvider",), "CUDA"),
    ],
)
def test_the_first_provider_is_what_computes(providers: tuple[str, ...], name: str) -> None:
    assert BackendFacts(providers, None, None).execution_provider == name


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("[nothing_to_speak] target_text holds nothing", NothingToSpeakError),
        ("[text_refused] reference_wav cannot be used", TextRefusedError),
        ("[bad_audio] a piece is silent", BadAudioError),
        ("[synthesis_failed] KeyError", SynthesisError),
        ("Stub process 'cosyvoice_0_0' is not healthy.", BackendLostError),
        ("something else", SynthesisError),
    ],
)
def test_messages_of_a_stream_without_status_codes_become_types(message: str, kind: type[SynthesisError]) -> None:
    assert type(classify(message)) is kind


def test_the_libraries_that_a_program_needs_are_read_without_binutils() -> None:
    sys.path.insert(0, str(Path(__file__).parents[3] / "runtime_image/triton-demo"))
    try:
        import assemble
    finally:
        sys.path.pop(0)

    library = next(Path("/").glob("lib/*-linux-gnu/libm.so.6"), None)
    if library is None:
        pytest.skip("no libm where Debian has it")
    assert "libc.so.6" in list(assemble.needed(library.read_bytes()))
    assert list(assemble.needed(b"#!/bin/sh")) == []
