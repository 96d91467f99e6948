"""The FastAPI application of one gateway."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cosyvoice_runtime.api.schemas import SpeechRequest
from cosyvoice_runtime.api.speech import SpeechEndpoint
from cosyvoice_runtime.errors import ApiError
from cosyvoice_runtime.gateway import Gateway

SPEECH_PATH = "/v1/audio/speech"
# Described here, since the route is a plain ASGI application: what FastAPI does around a handler costs as much as the handler.
_SPEECH_DOCS: dict[str, Any] = {
    "tags": ["speech"],
    "summary": "Speak a text",
    "operationId": "speech",
    "requestBody": {"required": True, "content": {"application/json": {"schema": SpeechRequest.model_json_schema()}}},
    "responses": {
        "200": {"description": "Sound, sentence by sentence.", "content": {"audio/wav": {}, "audio/pcm": {}}},
        **{
            code: {
                "description": text,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            }
            for code, text in {
                "400": "The request is wrong; the message says what to write.",
                "404": "The model is not served here.",
                "413": "The body is too large.",
                "429": "Too many requests are in progress.",
                "502": "The text could not be spoken.",
                "503": "The model is still loading.",
                "504": "The text was not spoken in time.",
            }.items()
        },
    },
}
_ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {name: {"type": ["string", "null"]} for name in ("message", "type", "param", "code")},
        }
    },
}


class CloseWhenDraining:
    """Adds `Connection: close` to every answer while the gateway shuts down, so that clients with a kept connection move on."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http" and self._gateway.lifecycle.draining:
            await self._app(scope, receive, _closing(send))
        else:
            await self._app(scope, receive, send)


def _closing(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
        await send(message)

    return wrapped


def make_app(gateway: Gateway) -> FastAPI:
    """All routes of the gateway."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with gateway.running():
            yield

    app = FastAPI(
        title="CosyVoice gateway",
        description="Speech in OpenAI's API, the same on every tier.",
        version="0.1.0",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(CloseWhenDraining, gateway=gateway)
    _add_speech(app, gateway)
    _add_probes(app, gateway)
    return app


def _add_speech(app: FastAPI, gateway: Gateway) -> None:
    settings = gateway.settings
    app.router.routes.append(Route(SPEECH_PATH, SpeechEndpoint(gateway), methods=["POST"]))

    @app.get("/v1/models", tags=["speech"], summary="The model that is served")
    async def models() -> dict[str, Any]:
        model = {"id": settings.model, "object": "model", "created": 0, "owned_by": settings.family}
        return {"object": "list", "data": [model]}

    @app.get("/v1/audio/voices", tags=["speech"], summary="The voices that can be asked for")
    async def voices() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": settings.voice, "object": "voice", "name": settings.voice}]}

    plain = app.openapi

    def with_speech() -> dict[str, Any]:
        document = plain()
        document["paths"] = {SPEECH_PATH: {"post": _SPEECH_DOCS}} | document["paths"]
        document.setdefault("components", {}).setdefault("schemas", {})["Error"] = _ERROR_SCHEMA
        return document

    app.openapi = with_speech  # type: ignore[method-assign]


def _add_probes(app: FastAPI, gateway: Gateway) -> None:
    def probe(reason: str | None) -> Response:
        return Response("ok" if reason is None else reason, 200 if reason is None else 503, media_type="text/plain")

    @app.get("/healthz", tags=["operations"], summary="Whether this container should live on", response_class=Response)
    async def healthz() -> Response:
        return probe(gateway.not_alive)

    @app.get("/healthz/backend", tags=["operations"], summary="Whether the backend speaks", response_class=Response)
    async def backend() -> Response:
        return probe(gateway.backend_not_alive)

    @app.get("/readyz", tags=["operations"], summary="Whether requests are wanted", response_class=Response)
    async def readyz() -> Response:
        return probe(gateway.not_ready)

    @app.get("/status", tags=["operations"], summary="What the operator reads")
    async def status() -> dict[str, Any]:
        return gateway.status()

    @app.get("/metrics", tags=["operations"], summary="Prometheus metrics", response_class=Response)
    async def metrics() -> Response:
        return Response(gateway.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        answer = ApiError(
            404, f"There is no {request.url.path[:200]}; speech is at POST /v1/audio/speech.", "not_found"
        )
    elif error.status_code == 405:
        answer = ApiError(405, f"{request.method} is not allowed here.", "method_not_allowed")
    else:
        answer = ApiError(error.status_code, str(error.detail), "http_error")
    return JSONResponse(answer.body(), error.status_code, error.headers)


def _unexpected(_: Request, __: Exception) -> Response:
    answer = ApiError(500, "The gateway failed; its log says where.", "internal_error", kind="server_error")
    return JSONResponse(answer.body(), 500)
