"""Metrics of Jobs that have ended: how long builds take on each GPU type, and what they fail of."""

from __future__ import annotations

import json

from cosyvoice_operator.core.children import JobParams
from cosyvoice_operator.core.model import Json
from cosyvoice_operator.telemetry.metrics import Metrics

_COMPONENT = "app.kubernetes.io/component"
_BUILD_REQUEST = "COSYVOICE_BUILD_REQUEST"


class JobMetrics:
    """Counts each result once: when it is noted on its Job."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def observe_job(self, params: JobParams | None, result: str) -> None:
        """Take note of a result.

        Args:
            params: What the Job was made from; None when nothing needs it any more.
            result: JSON text as the Job's program left it.
        """
        said: Json = json.loads(result)
        reused = bool(said.get("reused"))
        outcome = "Reused" if reused else str(said["outcome"])
        component = params.labels.get(_COMPONENT, "") if params else ""
        self._metrics.builds.labels(component, outcome, said.get("reason") or "").inc()
        request = _request(params)
        seconds = said.get("seconds")
        # One that was in the cache already says nothing of how long a build takes.
        if request and outcome == "Succeeded" and isinstance(seconds, int | float):
            gpu_type = request["target"]["gpuType"] or "CPU"
            self._metrics.engine_build.labels(request["backend"], gpu_type).observe(seconds)


def _request(params: JobParams | None) -> Json | None:
    texts = (str(variable["value"]) for variable in params.env if variable["name"] == _BUILD_REQUEST) if params else ()
    return next((json.loads(text) for text in texts), None)
