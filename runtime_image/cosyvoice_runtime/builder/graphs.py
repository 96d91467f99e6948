"""Turns one ONNX graph into another: optimised, in 8 bits, or in half precision. Graphs larger than 2 GB keep data beside them."""

from __future__ import annotations

import importlib.util
import mmap
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

# See voice.py: before the first import, or the library reports to its maker.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime as ort

from cosyvoice_runtime.builder.probes import Array, Feeds, InputInfo
from cosyvoice_runtime.builder.reasons import BuildError, Reason

VERSION: str = ort.__version__
_LARGE = 1 << 30
# `location` and its value, as protobuf writes the entries of a tensor's external data; names of up to 127 bytes.
_LOCATION = re.compile(rb"\n\x08location\x12([\x01-\x7f])")
_QUANTISED = ("DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QuantizeLinear", "DequantizeLinear")


def side_files(graph: Path) -> list[Path]:
    """The files beside a graph that hold its weights, found without parsing it: a graph may be as large as the memory."""
    if graph.stat().st_size == 0:
        return []
    with graph.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        names = {data[match.end() : match.end() + match[1][0]] for match in _LOCATION.finditer(data)}
    return sorted(graph.parent / name.decode("utf-8", "replace") for name in names)


def check(graph: Path) -> int:
    """Look for a graph and all that belongs to it.

    Returns:
        Its bytes, with those beside it.

    Raises:
        BuildError: MissingFile, with the name of the file.
    """
    for path in (graph, *(side_files(graph) if graph.exists() else ())):
        if not path.is_file():
            raise BuildError(Reason.MISSING_FILE, f"{path} is not there; fetch the model again")
        if path.stat().st_size == 0:
            raise BuildError(Reason.MISSING_FILE, f"{path} is empty, as after a failed download; fetch the model again")
    return sum(path.stat().st_size for path in (graph, *side_files(graph)))


def session_options(*, full: bool = True) -> ort.SessionOptions:
    """Options of a build: all cores, and no memory kept for a next run."""
    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if full else level.ORT_ENABLE_EXTENDED
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    return options


def optimise(source: Path, target: Path, provider: str, *, full: bool) -> None:
    """Write what ONNX Runtime makes of a graph before it computes.

    Args:
        source: The graph.
        target: Where the new one goes.
        provider: ONNX Runtime's name of the execution provider that it is for.
        full: With what fits this CPU alone; without it the result runs on every CPU of the architecture.

    Raises:
        BuildError: VersionMismatch, when the provider is not in this image.
    """
    options = session_options(full=full)
    options.optimized_model_filepath = str(target)
    # Weights packed for this CPU would be of no use in the file.
    options.add_session_config_entry("session.disable_prepacking", "1")
    if side_files(source) or source.stat().st_size > _LARGE:
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", f"{target.name}.data"
        )
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    _open(source, options, provider)


def quantise(source: Path, target: Path, *, exact: bool) -> None:
    """Weights of matrix products in 8 bits, activations on the fly. Convolutions stay: theirs are slower in 8 bits.

    Args:
        source: The graph.
        target: Where the new one goes.
        exact: Whether the CPUs that it is for add 8-bit products without saturation (VNNI, ARM's dot product); else weights
            have 7 bits, so that no sum can overflow.

    Raises:
        BuildError: Internal, in an image that has no onnx.
    """
    _need_onnx("INT8")
    import onnx  # noqa: PLC0415 - only some images have it
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415

    # Not the path: it would write a file beside the source, which is often on a read-only volume. And what it writes on the
    # way may be larger than the memory that /tmp is made of.
    tempfile.tempdir = str(target.parent)
    quantize_dynamic(
        onnx.load(str(source)),
        target,
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=not exact,
        op_types_to_quantize=["MatMul", "Gemm"],
        use_external_data_format=bool(side_files(source)) or source.stat().st_size > _LARGE,
        extra_options={"MatMulConstBOnly": True},
    )


def halve(source: Path, target: Path) -> None:
    """Weights and activations in half precision; inputs and outputs keep their types, so that callers need not change.

    Raises:
        BuildError: Internal, in an image that has no onnx, or for a graph that is in 8 bits already.
    """
    _need_onnx("FP16")
    import onnx  # noqa: PLC0415
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415

    model = onnx.load(str(source))
    if quantised := sorted({node.op_type for node in model.graph.node} & set(_QUANTISED)):
        raise BuildError(
            Reason.INTERNAL,
            f"{source.name} is in 8 bits already ({quantised[0]}); leave the precision out, or choose FP32",
        )
    large = source.stat().st_size > _LARGE or bool(side_files(source))
    half = convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=large)
    onnx.save(half, str(target), save_as_external_data=large, location=f"{target.name}.data")


def run(graph: Path, provider: str, feeds: Callable[[Sequence[InputInfo]], list[Feeds]]) -> list[list[Array]]:
    """Load a graph as a runtime would, run it, and let it go before another one is loaded.

    Args:
        graph: The graph.
        provider: ONNX Runtime's name of the execution provider.
        feeds: Gives the inputs of each run for what the graph says of its inputs.

    Returns:
        The outputs of each run.
    """
    session = _open(graph, session_options(), provider)
    return [session.run(None, feed) for feed in feeds(session.get_inputs())]


def inputs(graph: Path) -> list[InputInfo]:
    """What a graph says of its inputs."""
    options = session_options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    found: list[InputInfo] = _open(graph, options, "CPUExecutionProvider").get_inputs()
    return found


def _need_onnx(precision: str) -> None:
    if importlib.util.find_spec("onnx") is None:
        raise BuildError(
            Reason.INTERNAL,
            f"this image cannot convert graphs to {precision}; set engines.builderImage to cosyvoice-builder",
        )


def _open(graph: Path, options: ort.SessionOptions, provider: str) -> ort.InferenceSession:
    if provider not in ort.get_available_providers():
        raise BuildError(
            Reason.VERSION_MISMATCH,
            f"this image's ONNX Runtime {ort.__version__} has no {provider}; take the image for that device",
        )
    session = ort.InferenceSession(str(graph), options, providers=[provider])
    if (used := session.get_providers()[0]) != provider:
        # It says so in a warning alone and goes on, tens of times slower (#91).
        raise BuildError(
            Reason.UNSUPPORTED_GPU, f"ONNX Runtime fell back from {provider} to {used}; see its messages above"
        )
    return session
