"""All settings of the gateway, read once from the environment and never changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from cosyvoice_runtime import cpus

BackendName = Literal["onnxruntime", "triton"]
BACKEND_TITLES: dict[str, str] = {"onnxruntime": "ONNXRuntime", "triton": "Triton"}


class Settings(BaseSettings):
    """Environment variables with the prefix `COSYVOICE_`; times are seconds."""

    model_config = SettingsConfigDict(env_prefix="COSYVOICE_", frozen=True, extra="ignore", env_ignore_empty=True)

    backend: BackendName = "onnxruntime"
    family: str = "Demo"
    model: str = "cosyvoice"
    voice: str = "heart"
    tier: str = ""
    pool: str = ""
    execution_provider: Literal["CPU", "CUDA"] = "CPU"
    engine_dir: Path | None = None

    host: str = "0.0.0.0"  # noqa: S104 - a pod's address is known only to the cluster
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    cpu_limit: PositiveFloat | None = None
    workers: PositiveInt | None = None
    warmup_requests: Annotated[int, Field(ge=0)] = 3

    triton_url: str = "127.0.0.1:8001"
    triton_metrics_url: str = "http://127.0.0.1:8002/metrics"
    triton_model: str = "cosyvoice"
    triton_streams: PositiveInt | None = None

    max_input_chars: PositiveInt = 4096
    max_body_bytes: PositiveInt = 262_144
    max_streams: PositiveInt = 128

    self_synthesis_interval: PositiveFloat = 10.0
    self_synthesis_timeout: PositiveFloat = 5.0
    synthesis_timeout: PositiveFloat = 60.0
    slow_reader_timeout: PositiveFloat = 60.0
    load_timeout: PositiveFloat = 120.0
    drain_seconds: PositiveFloat = 60.0
    drain_linger_seconds: Annotated[float, Field(ge=0)] = 2.0

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @property
    def backend_title(self) -> str:
        """The backend as the operator's API spells it."""
        return BACKEND_TITLES[self.backend]

    @property
    def worker_count(self) -> int:
        """Worker processes of the onnxruntime backend."""
        return self.workers or cpus.worker_count(cpus.available_cpus(self.cpu_limit))
