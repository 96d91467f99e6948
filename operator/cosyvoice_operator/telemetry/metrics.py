"""Prometheus metrics of the operator. One object, passed to whoever counts, so that two of them never meet in a test."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

_PREFIX = "cosyvoice_operator"
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_BUILD = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
_LOAD = (0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600, 1200)


class Metrics:
    """All metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self.reconciles = self._histogram(
            "reconcile_duration_seconds", "Time of one reconcile, by how it ended.", "outcome"
        )
        self.retries = self._counter("reconcile_retries_total", "Reconciles to be tried again, by cause.", "reason")
        self.lag = self._histogram("queue_wait_seconds", "Time from a key becoming due to a worker taking it.")
        self.events = self._counter(
            "watch_events_total", "Watch events taken in, by kind and whether they told news.", "kind", "news"
        )
        self.requests = self._histogram(
            "api_request_duration_seconds",
            "Requests of the API server; code 0 means no answer.",
            "verb",
            "kind",
            "code",
        )
        self.model_load = Histogram(
            f"{_PREFIX}_model_load_seconds",
            "Seconds that runtime pods took to load their model, as they report them.",
            ["family", "backend"],
            buckets=_LOAD,
            registry=registry,
        )
        self.engine_build = Histogram(
            f"{_PREFIX}_engine_build_seconds",
            "Seconds that engines took to build, as their builders report them.",
            ["backend", "gpu_type"],
            buckets=_BUILD,
            registry=registry,
        )
        self.builds = self._counter(
            "builds_total",
            "Engine builds and model fetches that have ended, by what they made and how: Succeeded, Reused or Failed.",
            "component",
            "outcome",
            "reason",
        )
        self.probes = self._counter("runtime_probes_total", "Reports asked of runtime pods, by result.", "result")
        self.failovers = self._counter(
            "failovers_total", "Moves of capacity between tiers: down to a lower one, or back up.", "direction"
        )
        self.resyncs = self._counter("resyncs_total", "Full lists of all kinds, by result.", "result")
        self.repairs = self._counter(
            "resync_repairs_total",
            "Objects that a resync found changed before a watch had told of them, by kind.",
            "kind",
        )
        self.leading = Gauge(f"{_PREFIX}_leading", "1 while this replica holds the lease.", registry=registry)
        self.loop_lag = Gauge(
            f"{_PREFIX}_event_loop_lag_seconds", "How late the event loop last woke a timer.", registry=registry
        )

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"{_PREFIX}_{name}", text, labels, buckets=_FAST, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def gauge(self, name: str, text: str) -> Gauge:
        """Make a gauge without labels, e.g. to be set by a function."""
        return Gauge(f"{_PREFIX}_{name}", text, registry=self.registry)

    def register(self, collector: Any) -> None:  # noqa: ANN401 - the library's Collector is not typed as one
        """Add a collector that computes its metrics when they are read."""
        self.registry.register(collector)

    def observe_request(self, verb: str, kind: str, code: int, seconds: float) -> None:
        """Count one request of the API server; ``code`` is 0 when there was no answer."""
        self.requests.labels(verb, kind, str(code)).observe(seconds)

    def text(self) -> bytes:
        """Give all metrics in the text format."""
        return generate_latest(self.registry)
