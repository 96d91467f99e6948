"""Errors as types: what a caller did wrong, and what went wrong behind the gateway."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class ApiError(Exception):
    """An answer other than 200, in OpenAI's shape.

    `message` names what is wrong and what to write instead; `param` the field; `code` a constant for programs.
    """

    status: int
    message: str
    code: str
    param: str | None = None
    kind: str = "invalid_request_error"
    retry_after: int | None = None

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, dict[str, str | None]]:
        """OpenAI's error object."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


class SynthesisError(Exception):
    """A sentence could not be spoken; `kind` is the label in the metrics."""

    kind = "synthesis_failed"
    retryable = True


class NothingToSpeakError(SynthesisError):
    """The text holds nothing that the voice can say."""

    kind = "nothing_to_speak"
    retryable = False


class TextRefusedError(SynthesisError):
    """The backend refuses this text; saying it again will not help."""

    kind = "text_refused"
    retryable = False


class BadAudioError(SynthesisError):
    """The backend answered with audio that is not finite or is silent."""

    kind = "bad_audio"


class BackendLostError(SynthesisError):
    """The process or server that spoke the sentence went away."""

    kind = "backend_lost"

    def __init__(self, message: str, *, suspicious: bool = False) -> None:
        super().__init__(message)
        self.suspicious = suspicious
        """Whether the sentence may be the cause: the process died while it spoke this one."""


class SynthesisTimeoutError(SynthesisError):
    """The backend did not answer in time."""

    kind = "timeout"
