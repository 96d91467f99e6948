"""Kinds of text in the resource, each with its grammar and the words that refuse what does not fit."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

PATTERN_HINT = "x-pattern-hint"
"""JSON schema key with the words to refuse by. The bare pattern that the API server would print helps nobody."""


def matching(pattern: str, longest: int, hint: str, *, shortest: int = 1) -> Any:  # noqa: ANN401 - as pydantic's Field
    """Constrain a text to a pattern.

    Args:
        pattern: Regular expression in the common part of RE2, Rust and Python; without single quotes.
        longest: Most characters.
        hint: What to write instead.
        shortest: Fewest characters.
    """
    return Field(
        min_length=shortest, max_length=longest, pattern=f"^{pattern}$", json_schema_extra={PATTERN_HINT: hint}
    )


def limited(longest: int, *, shortest: int = 1) -> Any:  # noqa: ANN401 - as pydantic's Field
    """Constrain a text to a length only."""
    return Field(min_length=shortest, max_length=longest)


_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"

ObjectName = Annotated[
    str,
    matching(
        rf"{_LABEL}(\.{_LABEL})*",
        253,
        "this is no object name: use lower-case letters, digits, '-' and '.', as in 'models'",
    ),
]
"""Name of another object in the namespace of the resource."""

DataKey = Annotated[
    str,
    matching(
        r"[-._a-zA-Z0-9]+",
        253,
        "this is no key of a Secret or ConfigMap, as in 'token'",
    ),
]
"""Key in a Secret or ConfigMap."""

TierName = Annotated[
    str,
    matching(
        _LABEL,
        20,
        "a tier's name becomes part of object names: use lower-case letters, digits and '-', as in 'gpu'",
    ),
]
VoiceName = Annotated[
    str,
    matching(
        r"[a-z0-9]([-_a-z0-9]*[a-z0-9])?",
        63,
        "voices are named in lower case, as in 'heart'",
    ),
]
GPUProduct = Annotated[
    str,
    matching(
        r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?",
        63,
        "write the GPU type as in the node label nvidia.com/gpu.product, for example NVIDIA-L4",
    ),
]
ExtendedResource = Annotated[
    str,
    matching(
        rf"{_LABEL}(\.{_LABEL})*/[-A-Za-z0-9_.]+",
        100,
        "write an extended resource with its domain, for example nvidia.com/gpu",
    ),
]
Image = Annotated[
    str,
    matching(
        r"[^\s]+",
        512,
        "this is no image reference: write for example registry.example.com/runtime:1.0",
    ),
]
Repository = Annotated[
    str,
    matching(
        r"[-\w.]+/[-\w.]+",
        200,
        "write the repository as owner/name, for example FunAudioLLM/Fun-CosyVoice3-0.5B-2512",
    ),
]
Revision = Annotated[
    str,
    matching(
        r"[-\w./]+",
        100,
        "write the revision as a commit or tag, for example v1.0",
    ),
]
Bucket = Annotated[
    str,
    matching(
        r"[a-z0-9][-a-z0-9.]*[a-z0-9]",
        63,
        "this is no bucket name: write it without s3:// and without a path",
    ),
]
Endpoint = Annotated[
    str,
    matching(
        r"https?://[^\s/]+/?",
        1024,
        "write the endpoint as https://host or https://host:port",
    ),
]
Download = Annotated[
    str,
    matching(
        r"https?://[^\s/]+/[^\s]+",
        2048,
        "write the url of a file, as https://host/path",
    ),
]
Sha256 = Annotated[
    str,
    matching(
        r"[0-9a-f]{64}",
        64,
        "sha256 is 64 hexadecimal digits in lower case, as sha256sum prints them",
    ),
]
VariableName = Annotated[
    str,
    matching(
        r"[A-Za-z_][A-Za-z0-9_]*",
        128,
        "names of variables consist of letters, digits and '_'",
    ),
]

ContainerResource = Annotated[str, limited(100)]
"""Name of a resource of a container: ``cpu``, ``memory``, ``ephemeral-storage``, or an extended one."""

LabelKey = Annotated[str, limited(317)]
LabelValue = Annotated[str, limited(63, shortest=0)]
