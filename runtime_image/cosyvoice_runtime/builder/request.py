"""What to build: one JSON document in the environment, written by the operator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from pydantic.alias_generators import to_camel

from cosyvoice_runtime.builder.reasons import BuildError, Reason

VERSION = 1
ENGINE_KEY = r"^[0-9a-f]{16}$"
Family = Literal["Demo", "CosyVoice3", "CosyVoice2DiT", "CosyVoice2UNet"]
Backend = Literal["ONNXRuntime", "Triton"]
Precision = Literal["FP32", "FP16", "BF16", "INT8"]
Provider = Literal["CPU", "CUDA"]


class Document(BaseModel):
    """Frozen, camelCase on the wire, and strict: an option that is not known would else be left out of the engine in silence."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Model(Document):
    """The model: `path` is relative to the cache, or absolute where it is mounted from elsewhere; `voice` is an embedded one."""

    digest: str
    path: str | None = None
    voice: str | None = None


class Target(Document):
    """What the engine will run on."""

    arch: Literal["amd64", "arm64"]
    provider: Provider
    gpu_type: str | None = None
    compute_capability: str | None = Field(default=None, pattern=r"^\d+\.\d+$")
    memory_mib: PositiveInt | None = Field(default=None, alias="memoryMiB")
    cpu_level: str = "baseline"


class Profile(Document):
    """How it is built. What is left out takes the family's default."""

    precision: Precision | None = None
    max_batch_size: PositiveInt | None = None
    max_num_tokens: PositiveInt | None = None
    max_frames: PositiveInt | None = None
    """Greatest number of mel frames of prompt and speech together."""
    workspace_mib: PositiveInt | None = Field(default=None, alias="workspaceMiB")


class BuildRequest(Document):
    """One engine."""

    version: Literal[1]
    key: Annotated[str, Field(pattern=ENGINE_KEY)]
    backend: Backend
    family: Family
    model: Model
    target: Target
    profile: Profile = Profile()
    key_fields: dict[str, Any] = Field(default_factory=dict)

    def model_dir(self, cache: Path) -> Path | None:
        """Where the model's files are; None for one that is inside the image.

        Raises:
            BuildError: There is no such directory, or it is outside the cache.
        """
        if self.model.path is None:
            return None
        folder = (cache / self.model.path).resolve()
        if not Path(self.model.path).is_absolute() and not folder.is_relative_to(cache.resolve()):
            raise BuildError(Reason.INTERNAL, f"model.path {self.model.path} leaves the cache")
        if not folder.is_dir():
            raise BuildError(
                Reason.MISSING_FILE,
                f"the model's directory {folder} is not there; fetch the model, or mount its claim there",
            )
        return folder


def parse(text: str) -> BuildRequest:
    """Read a request.

    Raises:
        BuildError: With every field that is wrong.
    """
    try:
        return BuildRequest.model_validate_json(text)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'document'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise BuildError(Reason.INTERNAL, f"the build request cannot be used: {problems}") from None
