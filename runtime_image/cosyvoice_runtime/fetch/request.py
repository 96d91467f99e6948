"""What to fetch: one JSON document in the environment, written by the operator."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from cosyvoice_runtime.fetch.errors import FetchError, Reason

REQUEST = "COSYVOICE_FETCH_REQUEST"
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Document(BaseModel):
    """Frozen, camelCase on the wire. What is not known is ignored: references to Secrets mean nothing in here."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class HubSource(Document):
    """A repository on a hub, at one revision."""

    repo: str
    revision: str

    @property
    def pinned(self) -> bool:
        """Whether the revision can never mean other files: a commit, not a tag."""
        return _COMMIT.fullmatch(self.revision) is not None


class S3Source(Document):
    """Objects under a prefix of a bucket."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None


class HTTPSource(Document):
    """One archive behind an address."""

    url: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class MountedClaim(Document):
    """Files on a volume, mounted by the operator."""

    claim_name: str
    path: str | None = None


class MountedImage(Document):
    """Files of an image, mounted by the operator."""

    reference: str


class ModelSource(Document):
    """Where the files come from; exactly one is set."""

    hugging_face: HubSource | None = None
    model_scope: HubSource | None = None
    s3: S3Source | None = None
    http: HTTPSource | None = None
    persistent_volume_claim: MountedClaim | None = None
    image: MountedImage | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("exactly one source is needed")
        return self

    @property
    def record(self) -> dict[str, Any]:
        """The source for a manifest: without what an address carries beside host and path, since that is often a secret."""
        document = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        for source, field in (("http", "url"), ("s3", "endpoint")):
            if field in document.get(source, {}):
                document[source][field] = _bare(document[source][field])
        return document

    @property
    def title(self) -> str:
        """How messages name a source that is mounted."""
        if self.persistent_volume_claim is not None:
            claim = self.persistent_volume_claim
            return f"persistentVolumeClaim {claim.claim_name}" + (f", path {claim.path}" if claim.path else "")
        if self.image is not None:
            return f"image {self.image.reference}"
        return next(iter(self.record))

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that name the source in the cache."""
        return hashlib.sha256(json.dumps(self.record, sort_keys=True).encode()).hexdigest()[:16]


class FetchRequest(Document):
    """One model. `mounted` is where it already is, for sources that the operator mounts."""

    version: Literal[1]
    family: str
    source: ModelSource
    mounted: Path | None = None

    @classmethod
    def read(cls, text: str) -> FetchRequest:
        """Read a request.

        Raises:
            FetchError: It is none, or of a version that this program does not know.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, one['loc'])) or REQUEST}: {one['msg']}"
                for one in error.errors(include_url=False, include_input=False)
            )
            raise FetchError(
                Reason.INTERNAL,
                f"{REQUEST} cannot be read: {problems}; operator and fetch image must be of one version",
            ) from None


def _bare(url: str) -> str:
    scheme, _, rest = url.partition("://")
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
