"""What a speech request may hold, and the errors that tell a caller what to write instead."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from cosyvoice_runtime.errors import ApiError

FORMATS = ("wav", "pcm")


class SpeechRequest(BaseModel):
    """Body of `POST /v1/audio/speech`, as OpenAI's API has it, with `stream` added."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    input: Annotated[str, Field(description="The text to speak.")]
    model: Annotated[str | None, Field(description="The served model, see `GET /v1/models`.")] = None
    voice: Annotated[str | None, Field(description="A voice, see `GET /v1/audio/voices`.")] = None
    response_format: Annotated[str, Field(description="`wav`, or `pcm`: 16-bit little-endian mono at 24 kHz.")] = "wav"
    stream: Annotated[
        bool,
        Field(
            description="Send each sentence as soon as it is there. When false: all at once, and the WAV header has the length."
        ),
    ] = True
    stream_format: Annotated[str, Field(description="Only `audio`.")] = "audio"
    speed: Annotated[float, Field(description="Only 1.0.")] = 1.0
    instructions: Annotated[str | None, Field(description="Not supported by this voice; leave it out.")] = None


def parse(body: bytes) -> SpeechRequest:
    """The request in a JSON body; raises ApiError with what to write instead."""
    try:
        request = SpeechRequest.model_validate_json(body)
    except ValidationError as error:
        raise _explain(error) from None
    if request.response_format not in FORMATS:
        raise _unsupported("response_format", request.response_format, "write 'wav' or 'pcm'")
    if request.stream_format != "audio":
        raise _unsupported("stream_format", request.stream_format, "write 'audio' or leave it out")
    if request.speed != 1.0:
        raise _unsupported("speed", request.speed, "write 1.0 or leave it out")
    if request.instructions:
        raise _unsupported("instructions", "...", "this voice cannot follow instructions; leave it out")
    return request


def _unsupported(param: str, value: object, advice: str) -> ApiError:
    return ApiError(400, f"{param} {value!r} is not supported; {advice}.", "unsupported_value", param)


def _explain(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_input=False)[0]
    param = ".".join(str(part) for part in first["loc"]) or None
    if first["type"] == "json_invalid":
        return ApiError(400, f"The body is not valid JSON in UTF-8: {_reason(first)}.", "invalid_json")
    if first["type"] == "extra_forbidden":
        known = ", ".join(SpeechRequest.model_fields)
        return ApiError(
            400, f"Unknown field {param!r}; leave it out. Known fields are {known}.", "unknown_parameter", param
        )
    if first["type"] == "missing":
        return ApiError(
            400, f"Field {param!r} is missing; write the text to speak in it.", "missing_required_parameter", param
        )
    if param is None:
        return ApiError(400, 'The body must be a JSON object such as {"input": "Hello."}.', "invalid_type")
    return ApiError(400, f"Field {param!r} is wrong: {first['msg']}.", "invalid_type", param)


def _reason(first: ErrorDetails) -> str:
    return str(first.get("ctx", {}).get("error", first["msg"]))
