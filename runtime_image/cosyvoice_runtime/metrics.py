"""Prometheus metrics of one gateway, in a registry of its own so that tests can have several."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

_LATENCY = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)
_RTF = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_LOAD = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


class Metrics:
    """Counters, gauges and histograms; names start with `cosyvoice_`, times are seconds."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("cosyvoice_requests", "Speech requests by status code.", ["code"], registry=registry)
        self.errors = Counter("cosyvoice_errors", "Speech requests that failed, by kind.", ["kind"], registry=registry)
        self.first_audio = Histogram(
            "cosyvoice_first_audio_seconds", "From the request to the first sound.", buckets=_LATENCY, registry=registry
        )
        self.total = Histogram(
            "cosyvoice_request_seconds",
            "From the request to the end of the sound.",
            buckets=_LATENCY,
            registry=registry,
        )
        self.rtf = Histogram(
            "cosyvoice_real_time_factor",
            "Time of a request divided by the length of its sound.",
            buckets=_RTF,
            registry=registry,
        )
        self.characters = Counter("cosyvoice_characters", "Characters of text accepted.", registry=registry)
        self.audio_seconds = Counter("cosyvoice_audio_seconds", "Seconds of sound sent.", registry=registry)
        self.load = Histogram(
            "cosyvoice_model_load_seconds", "Loading of a model into a session.", buckets=_LOAD, registry=registry
        )
        self.last_load = Gauge("cosyvoice_model_last_load_seconds", "The last load of the model.", registry=registry)
        self.hangups = Counter("cosyvoice_client_hangups", "Clients that left before the end.", registry=registry)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def loaded(self, seconds: float | None) -> None:
        """A model was loaded."""
        if seconds is not None:
            self.load.observe(seconds)
            self.last_load.set(seconds)

    def render(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)
