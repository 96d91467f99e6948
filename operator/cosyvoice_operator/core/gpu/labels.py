"""Node labels that tell a GPU type: which there are, who wins, and how a value is read.

:mod:`nodes` reads a node with it and :mod:`placement` writes the terms that find the node again, so that both follow the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cosyvoice_operator.core.gpu.names import SHARED_SUFFIX, TypeName, normalise_product
from cosyvoice_operator.core.gpu.products import PRODUCTS, version

PRODUCT_LABEL = "nvidia.com/gpu.product"
"""Written by GPU Feature Discovery on every node with NVIDIA GPUs. It wins over all others."""

ARCH_LABEL = "kubernetes.io/arch"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
INVALID_MIG = "-MIG-INVALID"
"""End of the product where GPU Feature Discovery finds slices that the ``single`` strategy can't name."""


_PREFIXES = ("NVIDIA-", "")
_OLD_PREFIXES = ("Tesla-", "NVIDIA-Tesla-", "GRID-", "NVIDIA-GRID-")
"""Of cards before Ampere, and of virtual GPUs."""

_LABEL_VALUE_LIMIT = 63


@dataclass(frozen=True, slots=True)
class NodeRule:
    """What an administrator says of nodes that nothing else tells the GPU type of; it wins over the clouds' labels.

    Attributes:
        label: Key of a node label.
        values: Values of it that choose the nodes.
        product: Their GPU product, normalised.
        memory_mib: Memory of one GPU in MiB; None where the product is known.
        compute_capability: Of the GPU; None where the product is known.
    """

    label: str
    values: tuple[str, ...]
    product: str
    memory_mib: int | None = None
    compute_capability: str | None = None


@dataclass(frozen=True, slots=True)
class CloudLabel:
    """A label of a cloud or a provisioner that names a product in its own words.

    Attributes:
        key: Key of the label.
        products: Value -> products that it may stand for, normalised.
        memory: Key of a label with the memory of one GPU in MiB, which tells those products apart, and fractions of a card from a whole
            one; empty where the value is enough.
        partition: Key of a label with the MIG profile of all GPUs of the node; empty where there is none.
    """

    key: str
    products: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    memory: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What labels tell of a node's GPUs.

    Attributes:
        product: Normalised.
        source: Key of the label that told it.
        memory_mib: Memory of one GPU in MiB, as labelled.
        compute_capability: As labelled.
        placeable: Whether pods can be placed by it: a value that somebody wrote by hand may be spelt as no driver would.
    """

    product: str
    source: str
    memory_mib: int | None = None
    compute_capability: str | None = None
    placeable: bool = True


_EC2_NAMES = {
    "t4": ("T4",),
    "t4g": ("T4G",),
    "v100": ("V100-SXM2-16GB", "V100-SXM2-32GB"),
    "a10g": ("A10G",),
    "l4": ("L4",),
    "l40s": ("L40S",),
    "a100": ("A100-SXM4-40GB", "A100-SXM4-80GB"),
    "h100": ("H100-80GB-HBM3",),
    "h200": ("H200",),
    "b200": ("B200",),
    "b300": ("B300",),
    "rtx-pro-4500": ("RTX-PRO-4500-Blackwell-Server-Edition",),
    "rtx-pro-server-6000": ("RTX-PRO-6000-Blackwell-Server-Edition",),
}
_GKE_NAMES = {
    "nvidia-tesla-p4": ("P4",),
    "nvidia-tesla-p100": ("P100-PCIE-16GB",),
    "nvidia-tesla-v100": ("V100-SXM2-16GB",),
    "nvidia-tesla-t4": ("T4",),
    "nvidia-tesla-a100": ("A100-SXM4-40GB",),
    "nvidia-a100-80gb": ("A100-SXM4-80GB",),
    "nvidia-l4": ("L4",),
    "nvidia-h100-80gb": ("H100-80GB-HBM3",),
    "nvidia-h100-mega-80gb": ("H100-80GB-HBM3",),
    "nvidia-h200-141gb": ("H200",),
    "nvidia-b200": ("B200",),
    "nvidia-gb200": ("GB200",),
    "nvidia-rtx-pro-6000": ("RTX-PRO-6000-Blackwell-Server-Edition",),
}


def _sizes(family: str, sizes: str, *products: str) -> dict[str, tuple[str, ...]]:
    return {family.format(size): products for size in sizes.split()}


# Machines whose other labels say "nvidia" and no more (AKS), or nothing (node groups of EKS). Virtual GPUs count as what their guest sees:
# a third of an A10 is an A10-8Q.
_INSTANCE_TYPES = {
    **_sizes("Standard_NC{}as_T4_v3", "4 8 16 64", "T4"),
    **_sizes("Standard_NC{}s_v3", "6 12 24", "V100-PCIE-16GB"),
    **_sizes("Standard_ND{}rs_v2", "40", "V100-SXM2-32GB"),
    **_sizes("Standard_NV{}ads_A10_v5", "6", "A10-4Q"),
    **_sizes("Standard_NV{}ads_A10_v5", "12", "A10-8Q"),
    **_sizes("Standard_NV{}ads_A10_v5", "18", "A10-12Q"),
    **_sizes("Standard_NV{}ads_A10_v5", "36 72", "A10-24Q"),
    **_sizes("Standard_NC{}ads_A100_v4", "24 48 96", "A100-80GB-PCIe"),
    **_sizes("Standard_ND{}_v4", "96asr", "A100-SXM4-40GB"),
    **_sizes("Standard_ND{}_A100_v4", "96amsr", "A100-SXM4-80GB"),
    **_sizes("Standard_NC{}_H100_v5", "40ads 80adis", "H100-NVL"),
    **_sizes("Standard_ND{}_H100_v5", "96isr", "H100-80GB-HBM3"),
    **_sizes("Standard_ND{}_H200_v5", "96isr", "H200"),
    **_sizes("g4dn.{}", "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge metal", "T4"),
    **_sizes("g5.{}", "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge", "A10G"),
    **_sizes("g5g.{}", "xlarge 2xlarge 4xlarge 8xlarge 16xlarge metal", "T4G"),
    **_sizes("g6.{}", "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge", "L4"),
    **_sizes("g6e.{}", "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge", "L40S"),
    **_sizes("p3.{}", "2xlarge 8xlarge 16xlarge", "V100-SXM2-16GB"),
    **_sizes("p3dn.{}", "24xlarge", "V100-SXM2-32GB"),
    **_sizes("p4d.{}", "24xlarge", "A100-SXM4-40GB"),
    **_sizes("p4de.{}", "24xlarge", "A100-SXM4-80GB"),
    **_sizes("p5.{}", "4xlarge 48xlarge", "H100-80GB-HBM3"),
    **_sizes("p5e.{}", "48xlarge", "H200"),
    **_sizes("p5en.{}", "48xlarge", "H200"),
}

CLOUD_LABELS = (
    CloudLabel("cloud.google.com/gke-accelerator", _GKE_NAMES, partition="cloud.google.com/gke-gpu-partition-size"),
    CloudLabel("karpenter.k8s.aws/instance-gpu-name", _EC2_NAMES, memory="karpenter.k8s.aws/instance-gpu-memory"),
    CloudLabel("eks.amazonaws.com/instance-gpu-name", _EC2_NAMES, memory="eks.amazonaws.com/instance-gpu-memory"),
    # Set by hand on node groups for the cluster autoscaler, in Google's words.
    CloudLabel("k8s.amazonaws.com/accelerator", _GKE_NAMES),
    CloudLabel(INSTANCE_TYPE_LABEL, _INSTANCE_TYPES),
)
"""In the order in which they are asked.

Keys and names of GKE and Karpenter are those of their documentation and source. The keys of EKS Auto Mode, and which instance type has
which card (the shares of an A10 above all), are common knowledge that was not tried on a machine; GPU Feature Discovery wins over all.
"""


def product_labels(gpu_type: str) -> tuple[str, ...]:
    """List every ``nvidia.com/gpu.product`` value that means this type, in a fixed order."""
    name = TypeName.parse(gpu_type)
    product = partitioned(name.card, name.mig)
    known = PRODUCTS.get(name.card)
    modern = known is not None and version(known.compute_capability) >= (8, 0)
    prefixes = _PREFIXES if modern else _PREFIXES + _OLD_PREFIXES
    spellings = (f"{prefix}{product}{end}" for end in ("", SHARED_SUFFIX) for prefix in prefixes)
    # The API server refuses terms with values that no label can have.
    return tuple(value for value in spellings if len(value) <= _LABEL_VALUE_LIMIT)


def memory_bounds(product: str) -> tuple[int, int]:
    """Give what a memory label of a whole card may say, in MiB, both ends excluded.

    Labels of one card differ by up to 8 %; a fraction of a card has half of it at most.
    """
    known = TypeName.parse(product).product
    memory = known.memory_mib if known else 0
    return memory * 85 // 100, memory * 115 // 100


def learn(labels: Mapping[str, str], rules: tuple[NodeRule, ...] = ()) -> Learnt | None:
    """Read the GPU type of a node from its labels; None where nothing tells it."""
    product = labels.get(PRODUCT_LABEL, "")
    if product:
        memory = number(labels.get("nvidia.com/gpu.memory"))
        return None if product.endswith(INVALID_MIG) else labelled(product, PRODUCT_LABEL, memory, capability(labels))
    for rule in rules:
        if labels.get(rule.label) in rule.values:
            return Learnt(rule.product, rule.label, rule.memory_mib, rule.compute_capability)
    for cloud in CLOUD_LABELS:
        for product in cloud.products.get(labels.get(cloud.key, ""), ()):
            memory = number(labels.get(cloud.memory)) if cloud.memory else None
            low, high = memory_bounds(product)
            if not cloud.memory or (memory is not None and low < memory < high):
                return Learnt(partitioned(product, labels.get(cloud.partition, "")), cloud.key, memory)
    return None


def partitioned(product: str, profile: str) -> str:
    """Name a MIG slice of a card; the card itself without a profile."""
    return f"{product}-MIG-{profile}" if profile else product


def labelled(product: str, source: str, memory_mib: int | None, compute_capability: str | None) -> Learnt:
    """Read the value of a product label of GPU Feature Discovery."""
    name = normalise_product(product)
    return Learnt(name, source, memory_mib, compute_capability, placeable=product in product_labels(name))


def capability(labels: Mapping[str, str]) -> str | None:
    """Read the compute capability. ``gpu.family`` isn't asked: old releases call every 8.x card ampere."""
    major, minor = (labels.get(f"nvidia.com/gpu.compute.{part}", "") for part in ("major", "minor"))
    return f"{major}.{minor}" if major.isdecimal() and minor.isdecimal() else None


def number(text: str | None) -> int | None:
    """Read a positive number; None for anything else, since labels may be written by hand."""
    return int(text) if text and text.isdecimal() and int(text) > 0 else None
