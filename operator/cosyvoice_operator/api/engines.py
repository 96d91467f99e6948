"""Engines: where they are kept, who builds them, and how long a build may take."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from cosyvoice_operator.api.base import Model, Rule
from cosyvoice_operator.api.durations import Duration
from cosyvoice_operator.api.pods import Resources
from cosyvoice_operator.api.quantity import QuantityField
from cosyvoice_operator.api.texts import Image, ObjectName


class Precision(StrEnum):
    """Number format that an engine computes in."""

    FP32 = "FP32"
    FP16 = "FP16"
    BF16 = "BF16"
    INT8 = "INT8"


class AccessMode(StrEnum):
    """How many nodes may mount a volume for writing."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_WRITE_MANY = "ReadWriteMany"


class EngineCache(Model):
    """The volume of fetched models and built engines: one that exists, or one that the operator makes."""

    claim_name: ObjectName | None = None
    """Name of an existing PersistentVolumeClaim. Resources of one namespace that name the same claim share models and
    engines."""
    size: QuantityField | None = None
    """Size of a claim that the operator makes for this resource, and that goes with it, for example 50Gi."""
    storage_class_name: ObjectName | None = None
    """Storage class of that claim. Left out: the cluster's default."""
    access_modes: (
        Annotated[tuple[AccessMode, ...], Field(min_length=1, max_length=2, json_schema_extra={"x-list-set": True})]
        | None
    ) = None
    """Access modes of that claim. Left out: ReadWriteMany, since pods on several nodes read it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.claimName) != has(self.size)",
            message="a cache is either a claim that exists (claimName) or one to make (size): write exactly one of them",
            holds=lambda self: (self.claim_name is None) != (self.size is None),
        ),
        Rule(
            cel="!has(self.claimName) || !(has(self.storageClassName) || has(self.accessModes))",
            message="storageClassName and accessModes are those of a claim to make: leave them out beside claimName",
            holds=lambda self: (
                self.claim_name is None or (self.storage_class_name is None and self.access_modes is None)
            ),
        ),
    )


class Engines(Model):
    """How engines are built and kept."""

    cache: EngineCache | None = None
    """Where models and engines are kept. Left out: a claim of 50Gi, ReadWriteMany, of the default storage class."""
    builder_image: Image | None = None
    """Image of the build Jobs of every tier, by digest if it must not change. Left out: the operator's image for the
    backend."""
    timeout: Duration | None = None
    """How long one build, or one fetch of the model, may take. Left out: 1h."""
    keep_unused: Duration | None = None
    """How long an engine is kept that no pool needs any more, for example since the last node of its GPU type went
    away. Left out: 24h."""
    resources: Resources | None = None
    """Resources of the build Jobs. GPUs are added by the operator."""
