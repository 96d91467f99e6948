"""Metrics of what the plans of all resources say: units by tier, and moves between tiers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client.core import GaugeMetricFamily

from cosyvoice_operator.core.model import Json, Plan
from cosyvoice_operator.telemetry.metrics import Metrics

_FALLBACK = "FallbackActive"
_DIRECTIONS = {("False", "True"): "down", (None, "True"): "down", ("True", "False"): "up"}


class PlanMetrics:
    """Remembers the pods of each resource by tier, so that their sums can be shown."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._pods: dict[tuple[str, str], dict[tuple[str, str], int]] = {}
        self._units: dict[tuple[str, str], tuple[int, int]] = {}
        metrics.register(self)

    def observe_plan(self, key: tuple[str, str], plan: Plan | None, previous: Json | None) -> None:
        """Take note of a plan; None when the resource is gone."""
        if plan is None:
            self._pods.pop(key, None)
            self._units.pop(key, None)
            return
        pods: dict[tuple[str, str], int] = {}
        for pool in plan.status.get("pools") or ():
            for state in ("ready", "pending", "desired"):
                where = (pool["tier"], state)
                pods[where] = pods.get(where, 0) + (pool.get(state) or 0)
        self._pods[key] = pods
        serving = plan.status.get("serving") or {}
        self._units[key] = (serving.get("units") or 0, serving.get("readyUnits") or 0)
        direction = _DIRECTIONS.get((_fallback(previous), _fallback(plan.status) or ""))
        if direction:
            self._metrics.failovers.labels(direction).inc()

    def collect(self) -> Iterable[Any]:
        """Give the sums, when Prometheus asks."""
        sums: dict[tuple[str, str], int] = {}
        for pods in self._pods.values():
            for where, count in pods.items():
                sums[where] = sums.get(where, 0) + count
        by_tier = GaugeMetricFamily(
            "cosyvoice_operator_tier_pods", "Runtime pods by tier and state.", labels=["tier", "state"]
        )
        for where, count in sorted(sums.items()):
            by_tier.add_metric(where, count)
        yield by_tier
        units = GaugeMetricFamily(
            "cosyvoice_operator_units", "Units of serving capacity: promised, and ready.", labels=["state"]
        )
        units.add_metric(("promised",), sum(promised for promised, _ in self._units.values()))
        units.add_metric(("ready",), sum(ready for _, ready in self._units.values()))
        yield units
        resources = GaugeMetricFamily(
            "cosyvoice_operator_resources", "CosyVoiceDeployments that are being looked after."
        )
        resources.add_metric((), len(self._units))
        yield resources


def _fallback(status: Json | None) -> str | None:
    conditions = (status or {}).get("conditions") or ()
    return next((c["status"] for c in conditions if c["type"] == _FALLBACK), None)
