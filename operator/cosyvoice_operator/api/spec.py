"""The spec of a CosyVoiceDeployment: what a user writes, with nothing filled in."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from cosyvoice_operator.api.base import Model, Rule
from cosyvoice_operator.api.durations import Duration
from cosyvoice_operator.api.engines import Engines, Precision
from cosyvoice_operator.api.pods import Resources, Runtime, Scheduling
from cosyvoice_operator.api.source import Family, ModelSpec
from cosyvoice_operator.api.texts import ExtendedResource, GPUProduct, Image, TierName

GPU_RESOURCE = "nvidia.com/gpu"
_GPU_DOMAIN = "nvidia.com/"


class Backend(StrEnum):
    """What computes in a tier's pods."""

    TRITON = "Triton"
    ONNXRUNTIME = "ONNXRuntime"


class ExecutionProvider(StrEnum):
    """Silicon that a model really computes on."""

    CPU = "CPU"
    CUDA = "CUDA"


class GPU(Model):
    """GPUs of each pod of a tier."""

    products: Annotated[tuple[GPUProduct, ...], Field(max_length=16, json_schema_extra={"x-list-set": True})] | None = (
        None
    )
    """GPU types in the order in which to try them, as in the node label `nvidia.com/gpu.product`. Left out or empty:
    all that the cluster has."""
    resource_name: ExtendedResource | None = None
    """Extended resource that stands for one GPU. Left out: nvidia.com/gpu."""
    count: Annotated[int, Field(ge=1, le=16)] | None = None
    """GPUs of each pod. Left out: 1."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=None,
            message="a GPU type is listed twice",
            holds=lambda self: len(set(self.products or ())) == len(self.products or ()),
        ),
    )


def _gpu_amounts_agree(tier: Tier) -> bool:
    if tier.gpu is None or tier.resources is None:
        return True
    resource, count = tier.gpu.resource_name or GPU_RESOURCE, tier.gpu.count or 1
    foreign = {name for name in tier.resources.names() if name.startswith(_GPU_DOMAIN)} - {resource}
    return not foreign and all(amount.value == count for amount in tier.resources.amounts(resource))


def _no_hidden_gpu(tier: Tier) -> bool:
    return (
        tier.gpu is not None
        or tier.resources is None
        or not any(name.startswith(_GPU_DOMAIN) for name in tier.resources.names())
    )


def _gpu_amounts_cel(part: str) -> str:
    """Say in CEL that ``resources.<part>`` names no GPU but the tier's own, and that one in the tier's own number.

    Texts are compared, not quantities: a quantity in every element would cost more than the API server grants.
    """
    resource = "(has(self.gpu.resourceName) ? self.gpu.resourceName : 'nvidia.com/gpu')"
    count = "(has(self.gpu.count) ? self.gpu.count : 1)"
    amounts = f"self.resources.{part}"
    return (
        f"(!has({amounts}) || ((!({resource} in {amounts}) || string({amounts}[{resource}]) == string({count})) && "
        f"{amounts}.all(name, name == {resource} || !name.startsWith('nvidia.com/'))))"
    )


def _no_gpu_cel(part: str) -> str:
    amounts = f"self.resources.{part}"
    return f"(!has({amounts}) || {amounts}.all(name, !name.startsWith('nvidia.com/')))"


class Tier(Model):
    """One way to serve. Tiers are tried in the order in which they are written."""

    name: TierName
    """Name of the tier, part of the names of its Deployments."""
    backend: Backend
    """What computes: `Triton` (GPU tiers, with TensorRT-LLM engines) or `ONNXRuntime`."""
    image: Image | None = None
    """Image of the container that computes in this tier. Left out: `runtime.image`, else the operator's image for the
    backend."""
    gpu: GPU | None = None
    """GPUs of each pod. Left out: the tier runs on CPU."""
    replicas_per_unit: Annotated[int, Field(ge=1, le=16)] | None = None
    """Pods of this tier that serve as much as one unit. Left out: 1; 2 for a CPU tier below a GPU tier, except for
    family Demo."""
    execution_provider: ExecutionProvider | None = None
    """What must really compute; pods that report something else do not count as healthy. Left out: CUDA with a GPU, CPU
    without."""
    precision: Precision | None = None
    """Number format of the tier's engines. Left out: BF16 on Triton, the builder's best on ONNXRuntime."""
    resources: Resources | None = None
    """Resources of the container that computes: Triton's on Triton, the gateway's on ONNXRuntime. GPUs are added by the
    operator."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.backend != 'Triton' || has(self.gpu)",
            message="backend Triton needs a GPU: add gpu: {count: 1} to the tier, or use backend: ONNXRuntime on CPU",
            holds=lambda self: self.backend != Backend.TRITON or self.gpu is not None,
        ),
        Rule(
            cel="has(self.gpu) || !has(self.executionProvider) || self.executionProvider != 'CUDA'",
            message="executionProvider CUDA needs a GPU: add gpu: {count: 1} to the tier, or leave "
            "executionProvider out",
            holds=lambda self: self.gpu is not None or self.execution_provider != ExecutionProvider.CUDA,
        ),
        Rule(
            cel="has(self.gpu) || !has(self.precision) || self.precision in ['FP32', 'INT8']",
            message="CPUs compute in FP32 or INT8: set one of them as precision, or leave it out",
            holds=lambda self: self.gpu is not None or self.precision in {None, Precision.FP32, Precision.INT8},
        ),
        Rule(
            cel="self.backend != 'Triton' || !has(self.precision) || self.precision != 'INT8'",
            message="INT8 is for backend ONNXRuntime: set precision to BF16, FP16 or FP32 on Triton, or leave it out",
            holds=lambda self: self.backend != Backend.TRITON or self.precision != Precision.INT8,
        ),
        Rule(
            cel=f"!has(self.gpu) || !has(self.resources) || ({_gpu_amounts_cel('requests')} && "
            f"{_gpu_amounts_cel('limits')})",
            message="resources name a GPU that differs from gpu.resourceName or gpu.count: leave GPUs out of "
            "resources, the operator adds gpu.count to requests and limits",
            holds=_gpu_amounts_agree,
        ),
        Rule(
            cel=f"has(self.gpu) || !has(self.resources) || ({_no_gpu_cel('requests')} && {_no_gpu_cel('limits')})",
            message="resources ask for a GPU in a tier without gpu: write gpu: {resourceName: ..., count: 1} "
            "instead, so that the tier is placed on nodes with GPUs",
            holds=_no_hidden_gpu,
        ),
    )


class Failover(Model):
    """When to move to the next tier and back."""

    after: Duration | None = None
    """How long a shortage must last before the next tiers take over. Left out: 2m."""
    recover_after: Duration | None = None
    """How long a tier must have been ready again before the tiers below it shrink. Left out: 5m."""
    minimum_dwell: Duration | None = None
    """How long a lower tier serves at least once it was started. Left out: 10m."""


def _names_are_unique(spec: CosyVoiceDeploymentSpec) -> bool:
    names = [tier.name for tier in spec.tiers or ()]
    return len(names) == len(set(names))


def _names_stay_apart(spec: CosyVoiceDeploymentSpec) -> bool:
    tiers = spec.tiers or ()
    return not any(tier.gpu and other.name.startswith(f"{tier.name}-") for tier in tiers for other in tiers)


def _image_fits_backends(spec: CosyVoiceDeploymentSpec) -> bool:
    if spec.runtime is None or spec.runtime.image is None:
        return True
    if not spec.tiers:
        return spec.model.family == Family.DEMO
    return len({tier.backend for tier in spec.tiers if tier.image is None}) <= 1


def _streaming(spec: CosyVoiceDeploymentSpec) -> bool | None:
    return spec.runtime.streaming if spec.runtime else None


class CosyVoiceDeploymentSpec(Model):
    """What to serve, how much of it, on what, and how to fail over."""

    model: ModelSpec
    """The model to serve."""
    replicas: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Units of serving capacity to keep up, on whatever tier. Left out: 1. An autoscaler can change it only where it
    is written."""
    tiers: (
        Annotated[tuple[Tier, ...], Field(min_length=1, max_length=8, json_schema_extra={"x-list-key": "name"})] | None
    ) = None
    """Ways to serve, tried in order. Left out: for Demo one CPU tier; else Triton on every GPU type of the cluster,
    then ONNXRuntime on CPU."""
    failover: Failover | None = None
    """When to move to the next tier and back."""
    engines: Engines | None = None
    """How engines are built and kept. Left out: family Demo runs its voice as it is in the image; for the others, the
    defaults of each field."""
    runtime: Runtime | None = None
    """Images, environment and time budgets of the pods that serve."""
    scheduling: Scheduling | None = None
    """Where the pods may run."""
    paused: bool | None = None
    """Whether the operator leaves the children as they are, for work by hand. Status is still reported."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(cel=None, message="two tiers have the same name", holds=_names_are_unique),
        Rule(
            cel="self.model.family != 'CosyVoice2UNet' || !has(self.runtime) || !has(self.runtime.streaming) || "
            "!self.runtime.streaming",
            message="CosyVoice2UNet falls silent after its first streamed request (CosyVoice issue 1866): set "
            "runtime.streaming: false, or use family CosyVoice2DiT or CosyVoice3 to stream",
            holds=lambda self: self.model.family != Family.COSYVOICE2_UNET or not _streaming(self),
        ),
        Rule(
            cel="self.model.family != 'CosyVoice2DiT' || !has(self.runtime) || !has(self.runtime.streaming) || "
            "self.runtime.streaming",
            message="CosyVoice2DiT only streams: leave runtime.streaming out, or use family CosyVoice2UNet or "
            "CosyVoice3 without streaming",
            holds=lambda self: self.model.family != Family.COSYVOICE2_DIT or _streaming(self) is not False,
        ),
        Rule(
            cel="!has(self.tiers) || !self.tiers.exists(tier, has(tier.gpu) && self.tiers.exists(other, "
            "other.name.startsWith(tier.name + '-')))",
            message="a tier's name begins with the name of a GPU tier and '-', so that their Deployments could get "
            "the same name: rename it, for example 'gpu-large' to 'large'",
            holds=_names_stay_apart,
        ),
        Rule(
            cel="!has(self.runtime) || !has(self.runtime.image) || (has(self.tiers) ? "
            "!(self.tiers.exists(tier, !has(tier.image) && tier.backend == 'Triton') && "
            "self.tiers.exists(tier, !has(tier.image) && tier.backend == 'ONNXRuntime')) : self.model.family == "
            "'Demo')",
            message="runtime.image would be used for two backends: set tiers[].image instead, one for each backend",
            holds=_image_fits_backends,
        ),
    )
