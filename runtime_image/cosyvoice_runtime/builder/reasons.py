"""Why a build can fail: a closed list, and recognisers for what the libraries really write, whatever noise surrounds it.

The texts come from reports in the field; a number after `#` is an issue of QwenAudio/CosyVoice unless another project is named.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """What the operator decides by. `Internal` is everything that nobody has recognised yet."""

    OUT_OF_MEMORY = "OutOfMemory"
    UNSUPPORTED_GPU = "UnsupportedGPU"
    VERSION_MISMATCH = "VersionMismatch"
    SHAPE_MISMATCH = "ShapeMismatch"
    MISSING_FILE = "MissingFile"
    DISK_FULL = "DiskFull"
    TIMEOUT = "Timeout"
    ACCURACY_LOST = "AccuracyLost"
    INTERNAL = "Internal"
    CORRUPT_ENGINE = "CorruptEngine"
    """Of `verify` alone."""


class BuildError(Exception):
    """A build that cannot succeed; the message names the object, the number and the next step."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class Rule:
    """A text that a library writes, and what it means."""

    reason: Reason
    pattern: re.Pattern[str]
    explain: Callable[[re.Match[str]], str]


def _rule(reason: Reason, pattern: str, message: str) -> Rule:
    """A rule whose message is a format string over the groups of the pattern."""
    return Rule(reason, re.compile(pattern), lambda match: message.format(*match.groups(default="")))


# From the most to the least telling: the first rule that matches anywhere wins, since the lines after a cause only repeat it.
RULES = (
    # TensorRT names the GPU that it runs on first, then the one in the plan (NVIDIA/TensorRT#564: a GTX 1060 "expecting 6.1").
    _rule(
        Reason.UNSUPPORTED_GPU,
        r"incompatible device, expecting compute (\d+\.\d+) got compute (\d+\.\d+)",
        "the engine was built for compute capability {1}, but this GPU has {0}; build it on this GPU type",  # #1600
    ),
    _rule(
        Reason.VERSION_MISMATCH,
        r"Current Version: (\d+), Serialized Engine Version: (\d+)",
        "the engine was built by another TensorRT (its serial version is {1}, the library here reads {0}); "
        "build it with the image that serves it",  # #1831, #954
    ),
    _rule(
        Reason.VERSION_MISMATCH,
        r"expecting library version (\S+?) got (\S+?)[,.]?(?:\s|$)",
        "the engine was built by TensorRT {1}, the library here is {0}; build it with the image that serves it",
    ),
    _rule(
        Reason.VERSION_MISMATCH,
        r"CUDA driver version is insufficient for CUDA runtime version",
        "the node's NVIDIA driver is too old for the CUDA of this image; update the driver, or take an image with an older CUDA",
    ),
    _rule(
        Reason.VERSION_MISMATCH,
        r"(lib(?:cu\w+|nv\w+|onnxruntime\w*)\.so[.\d]*): cannot open shared object file",
        "{0} isn't in this image or doesn't fit its CUDA; use the image that is made for this backend",  # #91
    ),
    _rule(
        Reason.VERSION_MISMATCH,
        r"Unsupported model IR version: (\d+), max supported IR version: (\d+)",
        "the graph has ONNX IR version {0}, the library here reads at most {1}; export it for an older one, or use a newer image",
    ),
    _rule(
        Reason.VERSION_MISMATCH,
        r"support for models stamped with official released onnx opset versions\. Opset (\d+)",
        "the graph has opset {0}, which the library here does not know; export it for an older one, or use a newer image",
    ),
    _rule(
        Reason.VERSION_MISMATCH,
        r"(\S+?)\(-?\d+\) is not a registered function/op",
        "the graph has an operator {0} that the library here does not know; use the image that the graph was exported for",
    ),
    _rule(
        Reason.UNSUPPORTED_GPU,
        r"no kernel image is available for execution on the device|Target GPU SM \d+ is not supported",
        "the libraries of this image have no code for this GPU; use an image that supports it",
    ),
    _rule(
        Reason.UNSUPPORTED_GPU,
        r"no CUDA-capable device is detected|No CUDA GPUs are available|CUDA initialization failure with error: \d+",
        "no GPU is visible in this container; it must run on a GPU node, with the GPU among its limits",
    ),
    _rule(
        Reason.OUT_OF_MEMORY,
        r"(?i)cuda out of memory|cuda (?:failure|error|runtime)[^\n]{0,40}out of memory|cudaErrorMemoryAllocation"
        r"|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED",
        "the GPU's memory is not enough; stop what else runs on it, or build with a smaller profile",  # #835
    ),
    _rule(
        Reason.OUT_OF_MEMORY,
        r"Could not find any implementation for node .*(?:insufficient workspace|workspace)",
        "TensorRT found no kernel that fits its workspace; give it a larger one in the profile, or a smaller greatest shape",
    ),
    _rule(
        Reason.OUT_OF_MEMORY,
        r"std::bad_alloc|MemoryError|Cannot allocate memory|Failed to allocate memory|oom-kill|Out of memory: Killed process",
        "the container's memory is not enough; give the build a higher memory limit",
    ),
    _rule(
        Reason.DISK_FULL,
        r"No space left on device|Disk quota exceeded",
        "the volume of the cache is full; make it larger, or remove engines that nothing uses",
    ),
    _rule(
        Reason.SHAPE_MISMATCH,
        r"Got invalid dimensions for input: (\S+)[\s\S]{0,80}?index: (\d+) Got: (-?\d+) Expected: (-?\d+)",
        "input {0} of the graph wants {3} at index {1} of its shape, not {2}; the graph and the profile are of different families "
        "or revisions",
    ),
    _rule(
        Reason.SHAPE_MISMATCH,
        r"Invalid rank for input: (\S+) Got: (\d+) Expected: (\d+)",
        "input {0} of the graph has {2} dimensions, not {1}; the graph and the profile are of different families or revisions",
    ),
    _rule(
        Reason.SHAPE_MISMATCH,
        r"Required inputs \(\[?([^)\]]*)\]?\) are missing",
        "the graph also wants the inputs {0}; it is of another revision than this builder knows",
    ),
    _rule(
        Reason.SHAPE_MISMATCH,
        r"Invalid (?:Feed Input Name|input name):\s*(\S+)|(?:given invalid tensor name:?\s*)(\S*)",
        "the graph has no input of the name that is asked for ({0}{1}); it is of another revision than this builder knows",  # #1211
    ),
    _rule(
        Reason.SHAPE_MISMATCH,
        r"Static dimension mismatch while setting input shape[^\n]*?Set dimensions are (\[[^\]]*\])\. "
        r"Expected dimensions are (\[[^\]]*\])",
        "an input of the engine wants the shape {1}, not {0}; the graph and the profile are of different families or revisions",
    ),
    _rule(
        Reason.SHAPE_MISMATCH,
        r"no optimization profile has been defined|(?:kMIN|kOPT|kMAX) dimensions in profile \d+ are"
        r"|Shape of input .* not in range of optimization profile|satisfyProfile",
        "the shapes of the profile do not fit the graph; the graph and the profile are of different families or revisions",
    ),
    _rule(
        Reason.SHAPE_MISMATCH,
        r"Attempting to broadcast an axis by a dimension other than 1|incompatible dimensions for matrix multiplication"
        r"|MatMul dimension mismatch",
        "sizes inside the graph do not fit together; write the sizes that belong together into probes.json beside it",
    ),
    _rule(
        Reason.MISSING_FILE,
        r"NO_SUCHFILE\D[^\n]*?(?:Load model from )?(\S+) failed",
        "the graph {0} is not there; fetch the model again",
    ),
    _rule(
        Reason.MISSING_FILE,
        r"(?:External data path does not exist|External data file[^\n]* does not exist|Failed to open file):?\s*(\S*)",
        "the data file {0} that belongs to a graph is not there; fetch the model again",
    ),
    _rule(
        Reason.MISSING_FILE,
        r"does not appear to have a file named (\S+?)\.?\s|FileNotFoundError: \[Errno 2\] No such file or directory: '([^']*)'",
        "the file {0}{1} is not there; fetch the model again",
    ),
    _rule(
        Reason.MISSING_FILE,
        r"INVALID_PROTOBUF|[Pp]rotobuf parsing failed|Failed to parse ONNX model",
        "a graph is not ONNX, or is cut short; fetch the model again",
    ),
)
# Colours, and carriage returns of progress bars.
_NOISE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
_ERRNO = {
    errno.ENOSPC: Reason.DISK_FULL,
    errno.EDQUOT: Reason.DISK_FULL,
    errno.ENOMEM: Reason.OUT_OF_MEMORY,
    errno.ENOENT: Reason.MISSING_FILE,
}


def recognise(text: str) -> BuildError | None:
    """What a library's message or log says, if it is known: the reason, and words that a person can act on."""
    plain = _NOISE.sub("", text)
    for rule in RULES:
        if match := rule.pattern.search(plain):
            return BuildError(rule.reason, rule.explain(match))
    return None


def from_exception(error: BaseException, doing: str) -> BuildError:
    """Any exception as one of the closed list.

    Args:
        error: What was raised.
        doing: What was being done, for the message: "optimising voice.onnx".
    """
    if isinstance(error, BuildError):
        return error
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.errno in _ERRNO and not isinstance(error, ConnectionError):
        known = recognise(text)
        reason = _ERRNO[error.errno]
        return BuildError(reason, f"{doing}: {known.message if known and known.reason is reason else text}")
    known = recognise(text)
    if known is not None:
        return BuildError(known.reason, f"{doing}: {known.message} ({one_line(text)})")
    return BuildError(Reason.INTERNAL, f"{doing}: {one_line(text)}")


def one_line(text: str, longest: int = 300) -> str:
    """A library's message on one line, cut in the middle."""
    flat = " ".join(_NOISE.sub("", text).split())
    if len(flat) <= longest:
        return flat
    half = (longest - 5) // 2
    return f"{flat[:half]} ... {flat[-half:]}"
