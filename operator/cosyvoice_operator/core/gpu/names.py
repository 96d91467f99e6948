"""The one name of a GPU type, whoever tells it: what engines, pools, labels and messages compare."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Self

from cosyvoice_operator.core.gpu.products import HOME_ARCH, PRODUCTS, Product

UNKNOWN = "Unknown"
"""Name of what nobody tells the type of. Nothing is built for it and nothing runs on it."""

SHARED_SUFFIX = "-SHARED"
"""GPU Feature Discovery appends this to a product that is shared by time-slicing or MPS: the silicon, and so the engine, is the same."""

OTHER_ARCHS = ("arm64", "ppc64le")
"""Architectures of hosts with NVIDIA GPUs, beside amd64."""

_SHARED = re.compile(r"(?<=.)(?:-SHARED)+$")
_VENDOR = re.compile(r"^(?:(?:nvidia|tesla|grid)-)+(?=.)", re.IGNORECASE)
_PARTS = re.compile(rf"(?P<card>.+?)(?:-MIG-(?P<mig>.+?))?(?:-(?P<arch>{'|'.join(OTHER_ARCHS)}))?", re.DOTALL)
_VGPU = re.compile(r"(?P<card>.+)-(?P<gib>\d{1,3})[ABCQ]")
_CANONICAL = {name.lower(): name for name in (*PRODUCTS, UNKNOWN)}

_SLUG_LIMIT = 24


@dataclass(frozen=True, slots=True)
class TypeName:
    """The parts of a GPU type's name.

    Attributes:
        card: The product, e.g. ``A100-SXM4-40GB``; a vGPU profile belongs to it (``A16-4Q``).
        mig: Profile of a MIG slice, e.g. ``1g.5gb``; empty for a whole GPU.
        arch: Architecture of the host, as in ``kubernetes.io/arch``. An engine holds host code too, so a card has one type for each.
    """

    card: str
    mig: str
    arch: str

    @classmethod
    def parse(cls, gpu_type: str) -> Self:
        """Take a name apart. Every text is a name."""
        match = _PARTS.fullmatch(gpu_type)
        card, mig, arch = match.groups() if match else (gpu_type, None, None)
        card = _CANONICAL.get(card.lower(), card)
        return cls(card, mig or "", arch or home_arch(card))

    def __str__(self) -> str:
        """Put the name together; the architecture is named only where it isn't the card's usual one."""
        mig = f"-MIG-{self.mig}" if self.mig else ""
        arch = "" if self.arch == home_arch(self.card) else f"-{self.arch}"
        return f"{self.card}{mig}{arch}"

    @property
    def product(self) -> Product | None:
        """What is known of this type without any node: its figures as a slice or a share of the card."""
        vgpu = _VGPU.fullmatch(self.card)
        known = PRODUCTS.get(self.card) or (PRODUCTS.get(vgpu["card"]) if vgpu else None)
        if known is None:
            return None
        if vgpu and self.card not in PRODUCTS:
            return Product(known.compute_capability, int(vgpu["gib"]) * 1024, known.arch)
        return Product(known.compute_capability, slice_mib(self.mig) or known.memory_mib, known.arch)


def home_arch(card: str) -> str:
    """Give the architecture of the hosts that a card is usually in."""
    product = PRODUCTS.get(card)
    return product.arch if product else HOME_ARCH


def on_arch(product: str, arch: str) -> str:
    """Name the GPU type that a product is on a host of this architecture; empty where the node doesn't tell.

    A card that is soldered to another host than amd64 is in no other.
    """
    name = TypeName.parse(product)
    home = home_arch(name.card)
    return str(TypeName(name.card, name.mig, arch if home == HOME_ARCH and arch in OTHER_ARCHS else home))


def slice_mib(profile: str) -> int | None:
    """Give the memory that a MIG profile has at least, in MiB, from its name: ``1g.5gb`` -> 4864.

    Cards report 95 to 98 % of the round figure (1g.5gb 4864, 2g.10gb 9856, 7g.40gb 40192 on an A100).
    """
    match = re.fullmatch(r"(?:\d+c\.)?\d+g\.(\d+)gb.*", profile)
    return int(match[1]) * 1024 * 95 // 100 if match else None


def normalise_product(label: str) -> str:
    """Give the one name of a GPU product, however old the labels are and whoever wrote them.

    The same card is ``A100-SXM4-40GB`` to an old driver, ``NVIDIA-A100-SXM4-40GB`` to a new one, ``NVIDIA A100-SXM4-40GB`` in a
    ResourceSlice, and gets ``-SHARED`` when it is shared. Compare results for equality only: ``L4`` is a substring of ``L40S``.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]", "", re.sub(r"\s+", "-", label.strip()))
    return str(TypeName.parse(_VENDOR.sub("", _SHARED.sub("", plain)))) if plain else UNKNOWN


def slug(gpu_type: str) -> str:
    """Give the part of an object name that stands for a GPU type, at most 24 characters.

    Types that differ have slugs that differ. Only what can't be told apart by its letters gets a digest: ``L40S`` -> ``l40s``.
    """
    lower = gpu_type.lower()
    plain = re.sub(r"[^a-z0-9]+", "-", lower).strip("-")
    own_case = gpu_type in {gpu_type.upper(), _CANONICAL.get(lower)}
    if plain == lower and own_case and len(plain) <= _SLUG_LIMIT:
        return plain
    digest = hashlib.sha256(gpu_type.encode()).hexdigest()[:4]
    profile = re.sub(r"[^a-z0-9]+", "-", TypeName.parse(gpu_type).mig.lower()).strip("-")
    tail = f"{profile}-{digest}" if profile and len(profile) <= 10 else digest
    head = re.sub(r"-mig-.*", "", plain) if tail != digest else plain
    return f"{head[: _SLUG_LIMIT - len(tail) - 1].strip('-')}-{tail}".strip("-")
