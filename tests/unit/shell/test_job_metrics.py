"""What is counted of Jobs that have ended."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cosyvoice_operator.telemetry.jobs import JobMetrics
from cosyvoice_operator.telemetry.metrics import Metrics
from tests.unit.shell.test_job_patch import WANTED

REQUEST = {"backend": "ONNXRuntime", "target": {"gpuType": "L4"}}
BUILD = replace(WANTED, env=({"name": "COSYVOICE_BUILD_REQUEST", "value": json.dumps(REQUEST)},))
FETCH = replace(WANTED, labels={"app.kubernetes.io/component": "model"})
SECONDS = "cosyvoice_operator_engine_build_seconds_sum"
COUNT = "cosyvoice_operator_builds_total"
L4 = {"backend": "ONNXRuntime", "gpu_type": "L4"}


@pytest.fixture
def metrics() -> Metrics:
    """Metrics that nobody has counted with."""
    return Metrics()


def test_a_build_is_counted_with_its_seconds(metrics: Metrics) -> None:
    JobMetrics(metrics).observe_job(BUILD, json.dumps({"outcome": "Succeeded", "seconds": 61.5, "reused": False}))
    labels = {"component": "engine", "outcome": "Succeeded", "reason": ""}
    assert metrics.registry.get_sample_value(COUNT, labels) == 1
    assert metrics.registry.get_sample_value(SECONDS, L4) == 61.5


def test_an_engine_that_was_in_the_cache_says_nothing_of_how_long_a_build_takes(metrics: Metrics) -> None:
    JobMetrics(metrics).observe_job(BUILD, json.dumps({"outcome": "Succeeded", "seconds": 0.1, "reused": True}))
    assert metrics.registry.get_sample_value(COUNT, {"component": "engine", "outcome": "Reused", "reason": ""}) == 1
    assert metrics.registry.get_sample_value(SECONDS, L4) is None


def test_a_failure_is_counted_by_its_reason(metrics: Metrics) -> None:
    JobMetrics(metrics).observe_job(BUILD, json.dumps({"outcome": "Failed", "reason": "DiskFull", "seconds": 3}))
    labels = {"component": "engine", "outcome": "Failed", "reason": "DiskFull"}
    assert metrics.registry.get_sample_value(COUNT, labels) == 1
    assert metrics.registry.get_sample_value(SECONDS, L4) is None


def test_a_fetch_is_no_build_of_an_engine(metrics: Metrics) -> None:
    JobMetrics(metrics).observe_job(FETCH, json.dumps({"outcome": "Succeeded", "seconds": 9}))
    assert metrics.registry.get_sample_value(COUNT, {"component": "model", "outcome": "Succeeded", "reason": ""}) == 1


def test_a_result_that_nobody_needs_any_more_or_that_lacks_a_field_is_counted_as_far_as_it_goes(
    metrics: Metrics,
) -> None:
    JobMetrics(metrics).observe_job(None, json.dumps({"outcome": "Succeeded"}))
    JobMetrics(metrics).observe_job(BUILD, json.dumps({"outcome": "Succeeded"}))
    assert metrics.registry.get_sample_value(COUNT, {"component": "", "outcome": "Succeeded", "reason": ""}) == 1
