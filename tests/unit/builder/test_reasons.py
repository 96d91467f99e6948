"""What libraries really write is recognised, whatever stands around it, and becomes a reason that a person can act on."""

from __future__ import annotations

import errno

import pytest

from cosyvoice_runtime.builder.reasons import BuildError, Reason, from_exception, one_line, recognise

NOISE_BEFORE = (
    "\x1b[33mWARNING\x1b[0m find: '/usr/local/cuda/extras': not here\r\n"
    "[TensorRT-LLM] TensorRT-LLM version: 0.20.0\n100%|##########| 70/70 [00:52<00:00,  1.32it/s]\r\n"
)
NOISE_AFTER = (
    '\n[rank0]: Traceback (most recent call last):\n  File "server.py", line 22, in <module>\nAssertionError\n'
    "--------------------------------------------------------------------------\n"
    "Primary job terminated normally, but 1 process returned a non-zero exit code.\n"
)
SEEN = [
    # QwenAudio/CosyVoice#1600
    (
        (
            "[10/10/2025-17:37:58] [TRT] [E] 6: The engine plan file is generated on an incompatible device, expecting compute 9.0 got "
            "compute 8.9, please rebuild.\n[TRT] [E] 2: [engine.cpp::deserializeEngine::1312] Error Code 2: Internal Error (Assertion "
            "engine->deserialize(start, size, allocator, runtime) failed. )"
        ),
        Reason.UNSUPPORTED_GPU,
        ["compute capability 8.9", "this GPU has 9.0"],
    ),
    # #1831
    (
        (
            "[TRT] [E] IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion stdVersionRead == "
            "kSERIALIZATION_VERSION failed.Version tag does not match. Note: Current Version: 239, Serialized Engine Version: 240)"
        ),
        Reason.VERSION_MISMATCH,
        ["240", "reads 239", "image that serves it"],
    ),
    (
        (
            "The engine plan file is not compatible with this version of TensorRT, expecting library version 10.10.0.31 got 10.13.3.9, "
            "please rebuild."
        ),
        Reason.VERSION_MISMATCH,
        ["built by TensorRT 10.13.3.9", "here is 10.10.0.31"],
    ),
    (
        "ImportError: libcublasLt.so.11: cannot open shared object file: No such file or directory",
        Reason.VERSION_MISMATCH,
        ["libcublasLt.so.11"],
    ),
    (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        Reason.UNSUPPORTED_GPU,
        ["no code for this GPU"],
    ),
    (
        "[TRT] [W] CUDA initialization failure with error: 35. Please check your CUDA installation",
        Reason.UNSUPPORTED_GPU,
        ["no GPU is visible"],
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.43 GiB. GPU 0 has a total capacity of 14.74 GiB",
        Reason.OUT_OF_MEMORY,
        ["GPU's memory"],
    ),
    (
        "[TRT] [E] 1: [defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime (out of memory)",
        Reason.OUT_OF_MEMORY,
        ["GPU's memory"],
    ),
    ("CUDA failure 2: out of memory ; GPU=0 ; hostname=tts", Reason.OUT_OF_MEMORY, ["GPU's memory"]),
    ("terminate called after throwing an instance of 'std::bad_alloc'", Reason.OUT_OF_MEMORY, ["higher memory limit"]),
    ("OSError: [Errno 28] No space left on device: '/cache/engines/x'", Reason.DISK_FULL, ["volume of the cache"]),
    (
        (
            "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: x for the following indices\n "
            "index: 1 Got: 81 Expected: 80\n Please fix either the inputs/outputs or the model."
        ),
        Reason.SHAPE_MISMATCH,
        ["input x", "wants 80 at index 1", "not 81"],
    ),
    (
        "ValueError: Required inputs (['mask', 'spks']) are missing from input feed (['x']).",
        Reason.SHAPE_MISMATCH,
        ["'mask', 'spks'"],
    ),
    (
        "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid input name: speeds",
        Reason.SHAPE_MISMATCH,
        ["no input", "speeds"],
    ),
    # #1211
    (
        (
            "[TRT] [E] 3: [executionContext.cpp::setInputShape::2037] Error Code 3: API Usage Error (Parameter check failed, "
            "IExecutionContext::setInputShape given invalid tensor name: cnn_cache)"
        ),
        Reason.SHAPE_MISMATCH,
        ["cnn_cache"],
    ),
    (
        "Static dimension mismatch while setting input shape for x. Set dimensions are [2,80,4]. Expected dimensions are [1,80,-1].",
        Reason.SHAPE_MISMATCH,
        ["[1,80,-1]", "not [2,80,4]"],
    ),
    (
        "Error Code 4: API Usage Error (Network has dynamic or shape inputs, but no optimization profile has been defined.)",
        Reason.SHAPE_MISMATCH,
        ["profile do not fit"],
    ),
    (
        (
            "[ONNXRuntimeError] : 1 : FAIL : Load model from /model/a.onnx failed:/onnxruntime/model.cc:181 Unsupported model IR version: "
            "13, max supported IR version: 11"
        ),
        Reason.VERSION_MISMATCH,
        ["IR version 13", "at most 11"],
    ),
    (
        "[ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Load model from /model/a.onnx failed:Protobuf parsing failed.",
        Reason.MISSING_FILE,
        ["cut short"],
    ),
    (
        "FileNotFoundError: [Errno 2] No such file or directory: '/model/llm.pt'",
        Reason.MISSING_FILE,
        ["/model/llm.pt"],
    ),
]


@pytest.mark.parametrize(("text", "reason", "words"), SEEN, ids=[text[:40] for text, _, _ in SEEN])
@pytest.mark.parametrize("noisy", [False, True], ids=["alone", "in noise"])
def test_a_text_that_a_library_wrote_is_recognised(text: str, reason: Reason, words: list[str], *, noisy: bool) -> None:
    found = recognise(NOISE_BEFORE + text + NOISE_AFTER if noisy else text)

    assert found is not None
    assert found.reason is reason
    assert [word for word in words if word not in found.message] == []


@pytest.mark.parametrize(
    "text",
    [
        NOISE_BEFORE + NOISE_AFTER,
        "[TRT] [W] Using an engine plan file across different models of devices is not recommended",
        "[TRT] [I] [MemUsageChange] Init CUDA: CPU +2, GPU +0, now: CPU 70, GPU 1023 (MiB)",
        "",
    ],
)
def test_noise_alone_is_no_reason(text: str) -> None:
    assert recognise(text) is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), Reason.DISK_FULL),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), Reason.DISK_FULL),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), Reason.OUT_OF_MEMORY),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/model/x"), Reason.MISSING_FILE),
        (MemoryError(), Reason.OUT_OF_MEMORY),
        (ZeroDivisionError("division by zero"), Reason.INTERNAL),
    ],
)
def test_an_exception_has_a_reason_and_says_what_was_being_done(error: Exception, reason: Reason) -> None:
    found = from_exception(error, "optimising x.onnx")

    assert found.reason is reason
    assert found.message.startswith("optimising x.onnx: ")


def test_what_has_a_reason_already_keeps_it() -> None:
    error = BuildError(Reason.ACCURACY_LOST, "no space left on device is a quotation here")

    assert from_exception(error, "comparing") is error


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    line = one_line("begin " + "x\n" * 5000 + " end", 100)

    assert len(line) <= 100
    assert line.startswith("begin")
    assert line.endswith("end")
