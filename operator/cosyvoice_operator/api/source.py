"""What to serve: the model family and where its files come from."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from cosyvoice_operator.api.base import Model, Rule
from cosyvoice_operator.api.texts import (
    Bucket,
    DataKey,
    Download,
    Endpoint,
    Image,
    ObjectName,
    Repository,
    Revision,
    Sha256,
    VoiceName,
    limited,
)


class Family(StrEnum):
    """Model families; each has its own pod shape."""

    COSYVOICE3 = "CosyVoice3"
    COSYVOICE2_DIT = "CosyVoice2DiT"
    COSYVOICE2_UNET = "CosyVoice2UNet"
    DEMO = "Demo"


class SecretKeyRef(Model):
    """One key of a Secret in the namespace of the resource."""

    name: ObjectName
    """Name of the Secret."""
    key: DataKey
    """Key in the Secret."""


class SecretRef(Model):
    """A Secret in the namespace of the resource."""

    name: ObjectName
    """Name of the Secret."""


class EmbeddedSource(Model):
    """The voice inside the runtime image; nothing is fetched."""

    voice: VoiceName
    """Name of the voice, for example `heart`."""


class VolumeSource(Model):
    """Files that are already on a volume."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim. It is mounted read-only."""
    path: Annotated[str, limited(1024)] | None = None
    """Folder of the model in the volume, relative; the volume's root if left out."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.path) || (!self.path.startsWith('/') && !self.path.split('/').exists(part, part == '..'))",
            message="path is relative to the volume and stays inside it: write for example "
            "'Fun-CosyVoice3-0.5B-2512', without a leading '/' and without '..'",
            holds=lambda self: (
                self.path is None or (not self.path.startswith("/") and ".." not in self.path.split("/"))
            ),
        ),
    )


_MOVING_REVISIONS = ("main", "master", "HEAD")


class HubSource(Model):
    """A repository on a model hub, at one revision."""

    repo: Repository
    """Repository, as `owner/name`."""
    revision: Revision
    """Commit or tag. Branches that move (`main`, `master`, `HEAD`) are refused: two pods could then serve different
    models."""
    token_secret_ref: SecretKeyRef | None = None
    """Access token, for repositories that need one."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(self.revision in ['main', 'master', 'HEAD'])",
            message="revision names a branch that moves: write the commit (or a tag) that you tested",
            holds=lambda self: self.revision not in _MOVING_REVISIONS,
        ),
    )


class S3Source(Model):
    """Objects under a prefix of an S3 bucket."""

    bucket: Bucket
    """Name of the bucket."""
    prefix: Annotated[str, limited(1024)] | None = None
    """Prefix of the model's objects; the whole bucket if left out."""
    endpoint: Endpoint | None = None
    """Address of the S3 service, for services other than AWS."""
    region: Annotated[str, limited(63)] | None = None
    """Region of the bucket."""
    credentials_secret_ref: SecretRef | None = None
    """Secret with `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`; left out for public buckets and for identities of
    the pod."""


class HTTPSource(Model):
    """One archive behind an address, checked by its digest."""

    url: Download
    """Address of a `.tar`, `.tar.gz`, `.tar.zst` or `.zip` file."""
    sha256: Sha256
    """SHA-256 of the file, 64 hexadecimal digits."""


class ImageSource(Model):
    """An OCI image whose files are the model, mounted as an image volume."""

    reference: Image
    """Image reference, by digest if the model must not change."""


def _sources(source: ModelSource) -> int:
    return sum(getattr(source, field) is not None for field in type(source).model_fields)


class ModelSource(Model):
    """Where the model's files come from. Exactly one is set."""

    embedded: EmbeddedSource | None = None
    """Family `Demo` only: the voice inside the runtime image."""
    persistent_volume_claim: VolumeSource | None = None
    """Files that are already on a volume."""
    hugging_face: HubSource | None = None
    """A repository on Hugging Face."""
    model_scope: HubSource | None = None
    """A repository on ModelScope."""
    s3: S3Source | None = None
    """Objects in an S3 bucket."""
    http: HTTPSource | None = None
    """One archive behind an address."""
    image: ImageSource | None = None
    """An OCI image whose files are the model."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[has(self.embedded), has(self.persistentVolumeClaim), has(self.huggingFace), "
            "has(self.modelScope), has(self.s3), has(self.http), has(self.image)].filter(given, given).size() "
            "== 1",
            message="exactly one source is needed: set one of embedded, persistentVolumeClaim, huggingFace, "
            "modelScope, s3, http, image",
            holds=lambda self: _sources(self) == 1,
        ),
    )

    @property
    def kind(self) -> str:
        """Name of the field that is set, as it is written in the resource."""
        return next(name for name in self.to_json())


class ModelSpec(Model):
    """The model to serve."""

    family: Family
    """Model family: `CosyVoice3`, `CosyVoice2DiT`, `CosyVoice2UNet`, or `Demo` (a small English voice inside the image,
    without GPUs and without downloads)."""
    source: ModelSource
    """Where the model's files come from."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.family != 'Demo' || has(self.source.embedded)",
            message="family Demo speaks with the voice inside its image: write source: {embedded: {voice: heart}}, "
            "or set family to the model that the source holds",
            holds=lambda self: self.family != Family.DEMO or self.source.embedded is not None,
        ),
        Rule(
            cel="self.family == 'Demo' || !has(self.source.embedded)",
            message="source embedded exists for family Demo only: name where the model's files are, for example "
            "source: {persistentVolumeClaim: {claimName: models}}, or set family: Demo",
            holds=lambda self: self.family == Family.DEMO or self.source.embedded is None,
        ),
    )
