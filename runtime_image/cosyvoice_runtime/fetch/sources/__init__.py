"""Where models come from. Each source is imported only when it is asked for: its libraries take most of the start."""

from __future__ import annotations

from collections.abc import Mapping

from cosyvoice_runtime.fetch.errors import FetchError, Reason
from cosyvoice_runtime.fetch.request import ModelSource
from cosyvoice_runtime.fetch.sources.base import Source


def open_source(source: ModelSource, environment: Mapping[str, str]) -> Source:
    """The source of a request, with its token from the environment.

    Raises:
        FetchError: It is one that the operator mounts, and it was not mounted.
    """
    # ruff: noqa: PLC0415
    if source.hugging_face is not None:
        from cosyvoice_runtime.fetch.sources.huggingface import HuggingFaceRepository

        return HuggingFaceRepository(source.hugging_face, environment.get("HF_TOKEN") or None)
    if source.model_scope is not None:
        from cosyvoice_runtime.fetch.sources.modelscope import ModelScopeRepository

        return ModelScopeRepository(source.model_scope, environment.get("MODELSCOPE_API_TOKEN") or None)
    if source.s3 is not None:
        from cosyvoice_runtime.fetch.sources.s3 import S3Prefix

        return S3Prefix(source.s3)
    if source.http is not None:
        from cosyvoice_runtime.fetch.sources.http import HTTPArchive

        return HTTPArchive(source.http)
    raise FetchError(
        Reason.INTERNAL, "a claim or an image is to be mounted, and the request names no folder where it is"
    )
