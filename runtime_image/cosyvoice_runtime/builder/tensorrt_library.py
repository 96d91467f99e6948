"""All calls of TensorRT's Python API, and nothing else: what a machine without a GPU can only check the signatures of.

The tests check every call here against the classes of TensorRT's own wheel; `make gpu-check` runs them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorrt as trt

from cosyvoice_runtime.builder import families, reasons
from cosyvoice_runtime.builder.families import Plan
from cosyvoice_runtime.builder.probes import Array, Feeds
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.work import TellStage

VERSION: str = trt.__version__
_ERRORS = (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR)
_LOUD = (*_ERRORS, trt.ILogger.Severity.WARNING)


class Logger(trt.ILogger):  # type: ignore[misc]
    """Keeps errors, which TensorRT tells nowhere else: its calls answer None."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.errors: list[str] = []

    def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
        """TensorRT's callback."""
        if severity in _LOUD:
            print(f"[TensorRT] {msg}", flush=True)  # noqa: T201 - the log of the build
        if severity in _ERRORS:
            self.errors.append(msg)

    def failure(self, doing: str) -> BuildError:
        """What the errors so far mean."""
        text = "\n".join(self.errors)
        known = reasons.recognise(text)
        if known is not None:
            return BuildError(known.reason, f"{doing}: {known.message}")
        return BuildError(Reason.INTERNAL, f"{doing}: {reasons.one_line(text) or 'TensorRT failed without a message'}")


class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
    """Tells the phases of a build. Inner ones are left out: they come by the hundred and end in milliseconds."""

    def __init__(self, title: str, tell: TellStage) -> None:
        trt.IProgressMonitor.__init__(self)
        self._title = title
        self._tell = tell
        self._steps: dict[str, int] = {}

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """TensorRT's callback."""
        if parent_phase is None:
            self._steps[phase_name] = num_steps
            self._tell(f"{self._title}: {phase_name}", 0, num_steps)

    def step_complete(self, phase_name: str, step: int) -> bool:
        """TensorRT's callback; the answer lets it go on."""
        if phase_name in self._steps:
            self._tell(f"{self._title}: {phase_name}", step + 1, self._steps[phase_name])
        return True

    def phase_finish(self, phase_name: str) -> None:
        """TensorRT's callback."""
        self._steps.pop(phase_name, None)


def gpu() -> tuple[str, str] | None:
    """Name and compute capability of the GPU; None when there is none."""
    import torch  # noqa: PLC0415 - the images of TensorRT have it

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return torch.cuda.get_device_name(), f"{major}.{minor}"


def cuda_version() -> str:
    """Of the CUDA libraries in this image."""
    import torch  # noqa: PLC0415

    return str(torch.version.cuda)


def build(source: Path, plan: Plan, timing: Path, tell: TellStage) -> tuple[bytes, Plan]:
    """Turn an ONNX graph into a plan.

    Args:
        source: The graph.
        plan: What to make of it.
        timing: A cache of kernel times, read and written.
        tell: Told the progress.

    Returns:
        The serialized plan, and what was built, now that the inputs of the graph are known.

    Raises:
        BuildError: With what TensorRT says.
    """
    logger = Logger()
    builder = trt.Builder(logger)
    typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(typed if plan.strongly_typed else 0)
    parser = trt.OnnxParser(network, logger)
    # By its path, so that files beside it are found.
    if not parser.parse_from_file(str(source)):
        said = "; ".join(parser.get_error(index).desc() for index in range(parser.num_errors))
        raise logger.failure(f"reading {source.name}: {reasons.one_line(said)}")
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    outputs = [network.get_output(index) for index in range(network.num_outputs)]
    plan = families.resolve(plan, {tensor.name: tuple(tensor.shape) for tensor in inputs})
    config = builder.create_builder_config()
    if plan.workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, plan.workspace)
    if plan.halves_tensors:
        config.set_flag(trt.BuilderFlag.FP16)
        # The serving code hands over half precision, since its own conversion asks for it.
        for tensor in (*inputs, *outputs):
            tensor.dtype = trt.DataType.HALF
    profile = builder.create_optimization_profile()
    for name, shape in plan.shapes.items():
        profile.set_shape(name, shape.least, shape.usual, shape.greatest)
    if plan.shapes:
        config.add_optimization_profile(profile)
    config.progress_monitor = Monitor(source.name, tell)
    cache = config.create_timing_cache(timing.read_bytes() if timing.exists() else b"")
    config.set_timing_cache(cache, ignore_mismatch=False)
    serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        raise logger.failure(f"building {plan.target}")
    _keep(timing, bytes(config.get_timing_cache().serialize()))
    del parser  # it owns the weights that the network points to, so it must live until here
    return bytes(serialized), plan


def run(serialized: bytes, feeds: Sequence[Feeds]) -> list[list[Array]]:
    """Load a plan as the serving code does, and run it.

    Raises:
        BuildError: It cannot be loaded or run on this GPU.
    """
    import torch  # noqa: PLC0415

    logger = Logger()
    engine = trt.Runtime(logger).deserialize_cuda_engine(serialized)
    if engine is None:
        raise logger.failure("loading the plan")
    context = engine.create_execution_context()
    if context is None:
        raise logger.failure("making room for the plan")
    stream = torch.cuda.current_stream()
    found = []
    for feed in feeds:
        kept = {}
        outputs = []
        for name in (engine.get_tensor_name(index) for index in range(engine.num_io_tensors)):
            dtype = np.dtype(trt.nptype(engine.get_tensor_dtype(name)))
            if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
                tensor = torch.from_numpy(np.ascontiguousarray(feed[name].astype(dtype))).cuda()
                if not context.set_input_shape(name, tuple(tensor.shape)):
                    raise logger.failure(f"running the plan with {name} {list(tensor.shape)}")
            else:
                empty = np.empty(tuple(context.get_tensor_shape(name)), dtype)
                tensor = torch.from_numpy(empty).cuda()
                outputs.append(name)
            kept[name] = tensor
            context.set_tensor_address(name, tensor.data_ptr())
        if not context.execute_async_v3(stream.cuda_stream):
            raise logger.failure("running the plan")
        stream.synchronize()
        found.append([kept[name].cpu().numpy() for name in outputs])
    return found


def _keep(path: Path, data: bytes) -> None:
    """Write a timing cache so that builds at the same time see all of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
