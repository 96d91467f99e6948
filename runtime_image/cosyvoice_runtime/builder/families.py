"""What TensorRT and TensorRT-LLM make of each family: files, shapes and options, as the serving code at ace7c47 has them.

The names of the results are those that the serving code opens, whatever GPU it runs on: it has `l20` and `mygpu` hard-wired, so
that one directory can hold the engines of one GPU type only. That directory is the engine's own, and `MODEL` inside it looks to the
serving code like the model's directory: the results lie there as files, all else as links to where the model is mounted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.request import BuildRequest, Family, Precision, Profile

MODEL = "model"
"""Inside an engine: what the serving code is given as its model directory."""
MODEL_MOUNT = Path("/model")
"""Where serving pods have the model."""

Shape = tuple[int, ...]
_GIB = 1 << 30


@dataclass(frozen=True)
class Range:
    """The least, the usual and the greatest shape of an input."""

    least: Shape
    usual: Shape
    greatest: Shape

    @classmethod
    def over(cls, usual: Shape, axis: int, sizes: tuple[int, int, int]) -> Range:
        """A shape of which one axis varies."""
        least, middle, greatest = ((*usual[:axis], size, *usual[axis + 1 :]) for size in sizes)
        return cls(least, middle, greatest)


@dataclass(frozen=True)
class Plan:
    """One ONNX graph and what is made of it; `shapes` by input. Inputs of fixed shape need none."""

    source: str
    target: str
    shapes: Mapping[str, Range]
    precision: Precision
    strongly_typed: bool = False
    """Precision is that of the graph's own tensors, and the builder may not choose another."""
    workspace: int | None = 4 * _GIB
    hint: str = ""
    optional: bool = False

    @property
    def halves_tensors(self) -> bool:
        """Whether the builder chooses half precision by itself, and inputs and outputs have it too."""
        return self.precision == "FP16" and not self.strongly_typed


@dataclass(frozen=True)
class Llm:
    """The language model: its directory in Hugging Face's format, and limits of the engine."""

    source: str
    max_batch_size: int
    max_num_tokens: int = 32768


_FRAMES = (4, 500, 3000)
"""Mel frames: the last is 30 s of reference sound, or 60 s of reference and speech together."""
REFERENCE = {"input": Range.over((1, 0, 80), 1, _FRAMES)}
"""Of a graph with one input called `input`: the reference conversion of CosyVoice's users, in FP16 with 1 GiB of workspace."""
REFERENCE_WORKSPACE = _GIB


def _estimator(*, mask: bool = True) -> dict[str, Range]:
    mel = {name: Range.over((2, 80, 0), 2, _FRAMES) for name in ("x", "mu", "cond")}
    return mel | ({"mask": Range.over((2, 1, 0), 2, _FRAMES)} if mask else {})


def _chunk_estimator() -> dict[str, Range]:
    """The streaming estimator carries two caches; batch 2 is speech with and without guidance."""
    fixed: dict[str, Shape] = {"t": (2,), "spks": (2, 80), "cnn_cache": (16, 2, 1024, 2)}
    return (
        _estimator(mask=False)
        | {name: Range(shape, shape, shape) for name, shape in fixed.items()}
        | {"att_cache": Range.over((16, 2, 8, 0, 128), 3, (0, 100, 1000))}
    )


def _campplus(folder: str = "", *, optional: bool = False) -> Plan:
    return Plan(f"{folder}campplus.onnx", f"{folder}campplus.l20.fp32.trt", REFERENCE, "FP32", optional=optional)


_PLANS: dict[Family, Sequence[Plan]] = {
    "CosyVoice2UNet": (
        Plan("flow.decoder.estimator.fp32.onnx", "flow.decoder.estimator.fp16.mygpu.plan", _estimator(), "FP16"),
        _campplus(),
    ),
    "CosyVoice3": (
        Plan(
            "flow.decoder.estimator.autocast_fp16.onnx",
            # The serving code numbers it by device; a pod has one, number 0.
            "flow.decoder.estimator.autocast_fp16.0.plan",
            _estimator(),
            "FP16",
            strongly_typed=True,
            hint="yuekai/Fun-CosyVoice3-0.5B-2512-FP16-ONNX holds it; the FP32 graph built in FP16 gives NaN (CosyVoice issue 1930)",
        ),
        _campplus(),
    ),
    "CosyVoice2DiT": (
        Plan(
            "token2wav/flow.decoder.estimator.chunk.fp32.dynamic_batch.simplify.onnx",
            "token2wav/flow.decoder.estimator.torch.float16.dynamic_batch.chunk.l20.plan",
            _chunk_estimator(),
            "FP16",
            workspace=None,
            hint="yuekai/cosyvoice2_dit_flow_matching_onnx holds it",
        ),
        _campplus("token2wav/"),
        # The model that makes speaker embeddings has a copy of its own, where it is deployed.
        _campplus(optional=True),
    ),
}
_LLMS: dict[Family, Llm] = {
    "CosyVoice2UNet": Llm("cosyvoice2_llm", 16),
    "CosyVoice2DiT": Llm("cosyvoice2_llm", 64),
    "CosyVoice3": Llm("hf_cosyvoice3_llm", 64),
}
_DTYPES: dict[Precision, str] = {"BF16": "bfloat16", "FP16": "float16", "FP32": "float32"}
_BF16_CAPABILITY = (8, 0)


def plans(family: Family, profile: Profile) -> Sequence[Plan]:
    """What TensorRT builds for a family; the profile can give other greatest shapes and another workspace.

    Raises:
        BuildError: There is nothing to build for this family, or the profile's frames are below the usual ones.
    """
    if family not in _PLANS:
        raise BuildError(Reason.INTERNAL, f"family {family} has no TensorRT engines; choose backend ONNXRuntime")
    if profile.max_frames is not None and profile.max_frames < _FRAMES[1]:
        raise BuildError(
            Reason.SHAPE_MISMATCH,
            f"maxFrames {profile.max_frames} is below the usual {_FRAMES[1]}; leave it out, or raise it",
        )
    return [_adapted(plan, profile) for plan in _PLANS[family]]


def _adapted(plan: Plan, profile: Profile) -> Plan:
    shapes = {
        name: Range(
            one.least, one.usual, tuple(profile.max_frames or 3000 if size == 3000 else size for size in one.greatest)
        )
        for name, one in plan.shapes.items()
    }
    workspace = profile.workspace_mib << 20 if profile.workspace_mib else plan.workspace
    return replace(plan, shapes=shapes, workspace=workspace)


def resolve(plan: Plan, inputs: Mapping[str, Shape]) -> Plan:
    """What to build, now that the graph's inputs are known: ranges for those that vary, and for no others.

    Args:
        plan: What is known of the family.
        inputs: Shapes by name as the graph tells them; -1 is an axis that varies.

    Raises:
        BuildError: ShapeMismatch, with both sides: the graph is of another family or revision.
    """
    if set(inputs) == set(REFERENCE) and plan.shapes != REFERENCE:
        plan = replace(
            plan, shapes=REFERENCE, workspace=min(plan.workspace or REFERENCE_WORKSPACE, REFERENCE_WORKSPACE)
        )
    known = plan.shapes
    varying = {name for name, shape in inputs.items() if -1 in shape}
    if varying - set(known) or set(known) - set(inputs):
        raise BuildError(
            Reason.SHAPE_MISMATCH,
            f"{plan.source} has the inputs {', '.join(sorted(inputs))}, this builder knows {', '.join(sorted(known))}; "
            "the graph is of another family or revision",
        )
    for name, shape in inputs.items():
        if name in known and not _fits(shape, known[name]):
            raise BuildError(
                Reason.SHAPE_MISMATCH,
                f"input {name} of {plan.source} has shape {list(shape)}, the profile wants {list(known[name].least)} to "
                f"{list(known[name].greatest)}; the graph is of another family or revision",
            )
    return replace(plan, shapes={name: known[name] for name in known if name in varying})


def _fits(shape: Shape, wanted: Range) -> bool:
    if len(shape) != len(wanted.usual):
        return False
    ends = zip(shape, wanted.least, wanted.greatest, strict=True)
    return all(size in {-1, least} and size in {-1, greatest} for size, least, greatest in ends)


def llm(family: Family, profile: Profile) -> Llm:
    """What TensorRT-LLM builds for a family.

    Raises:
        BuildError: There is nothing to build for this family.
    """
    if family not in _LLMS:
        raise BuildError(Reason.INTERNAL, f"family {family} has no TensorRT-LLM engine; choose backend ONNXRuntime")
    usual = _LLMS[family]
    return replace(
        usual,
        max_batch_size=profile.max_batch_size or usual.max_batch_size,
        max_num_tokens=profile.max_num_tokens or usual.max_num_tokens,
    )


def dtype(request: BuildRequest) -> str:
    """The language model's type of number, as TensorRT-LLM calls it.

    Raises:
        BuildError: UnsupportedGPU, when the GPU is older than BF16.
    """
    precision = request.profile.precision or "BF16"
    if precision not in _DTYPES:
        raise BuildError(
            Reason.INTERNAL, f"the language model is built in {', '.join(_DTYPES)}, not {precision}; change precision"
        )
    capability = request.target.compute_capability
    if precision == "BF16" and capability and tuple(int(part) for part in capability.split(".")) < _BF16_CAPABILITY:
        raise BuildError(
            Reason.UNSUPPORTED_GPU,
            f"{request.target.gpu_type} has compute capability {capability}, BF16 needs 8.0; choose precision FP16",
        )
    return _DTYPES[precision]
