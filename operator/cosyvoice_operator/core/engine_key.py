"""Engine keys: everything that an engine depends on, and nothing else, digested to a name.

Not in a key: the driver, the node, how a GPU is shared, labels of any kind. The versions of the libraries are in it
through the builder's image, which pins them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from cosyvoice_operator.core.model import Json

KEY_VERSION = 1
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Target:
    """What an engine is to run on.

    Attributes:
        arch: Architecture of the host, as in ``kubernetes.io/arch``.
        provider: What computes: ``CPU`` or ``CUDA``.
        gpu_type: Normalised GPU product, with its MIG profile; None on CPU.
        compute_capability: ``major.minor``; None on CPU.
        memory_mib: Memory of one GPU in MiB; None on CPU. Told to the builder, and not in the key: the type covers it.
    """

    arch: str
    provider: str
    gpu_type: str | None = None
    compute_capability: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class EngineFields:
    """All that decides what an engine is.

    Attributes:
        model: Content digest of the model.
        family: Model family.
        backend: ``ONNXRuntime`` or ``Triton``.
        builder: Image that builds it. With a digest only the digest counts: the same image has many names.
        precision: Number format; None for the builder's choice.
        target: What it is to run on.
    """

    model: str
    family: str
    backend: str
    builder: str
    precision: str | None
    target: Target

    def to_json(self) -> Json:
        """Give the fields that the key is made of, as they stand in the engine's manifest."""
        return {
            "version": KEY_VERSION,
            "model": self.model,
            "family": self.family,
            "backend": self.backend,
            "builder": self.builder.partition("@")[2] or self.builder,
            "precision": self.precision,
            "arch": self.target.arch,
            "provider": self.target.provider,
            "gpuType": self.target.gpu_type,
            "computeCapability": self.target.compute_capability,
        }

    @property
    def key(self) -> str:
        """Name of the engine: 16 hexadecimal digits."""
        return digest(self.to_json())


def digest(fields: Mapping[str, object]) -> str:
    """Digest JSON in one canonical form, so that the order in which fields were written doesn't matter."""
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:_DIGITS]
