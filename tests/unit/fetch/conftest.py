"""A small model of each family, and the program as a process."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import time

import pytest
from moto.server import ThreadedMotoServer

from cosyvoice_runtime.fetch.cache import ModelCache
from cosyvoice_runtime.fetch.downloads import Retries
from cosyvoice_runtime.fetch.fetching import Fetcher
from cosyvoice_runtime.fetch.progress import Progress
from cosyvoice_runtime.fetch.request import FetchRequest
from tests.unit.fetch.models import model


@pytest.fixture
def files():
    return model("CosyVoice3")


@pytest.fixture
def start(request):
    """Start a server and stop it after the test."""

    def start(server):
        request.addfinalizer(server.close)
        return server

    return start


@pytest.fixture(scope="session")
def moto():
    """The address of an S3 server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def cache(tmp_path):
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def fetch(cache):
    """Fetch in this process, with little patience."""

    def fetch(source, family="CosyVoice3", *, pod="pod-a", mounted=None, environment=None, **options):
        request = FetchRequest.model_validate(
            {"version": 1, "family": family, "source": source, "mounted": str(mounted) if mounted else None}
        )
        fetcher = Fetcher(
            ModelCache(cache, pod, time.time),
            Progress(),
            environment if environment is not None else os.environ,
            lambda: dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
            retries=Retries(attempts=3, first=0.01),
            **options,
        )
        return fetcher.fetch(request)

    return fetch


class Program:
    """`python -m cosyvoice_runtime.fetch`, as a pod runs it."""

    def __init__(self, folder, cache, request, pod, environment):
        self.message = folder / f"termination-{pod}"
        self.message.write_text("")
        others = ("HF_", "AWS_", "MODELSCOPE_", "SSL_CERT_", "REQUESTS_CA_", "CURL_CA_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cosyvoice_runtime.fetch"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=inherited
            | {
                "COSYVOICE_FETCH_REQUEST": json.dumps({"version": 1, **request}),
                "COSYVOICE_CACHE": str(cache),
                "COSYVOICE_POD_UID": pod,
                "COSYVOICE_TERMINATION_MESSAGE": str(self.message),
                "COSYVOICE_HOST": "127.0.0.1",
                "COSYVOICE_PORT": "0",
                "HOME": str(folder),
            }
            | environment,
        )

    def end(self):
        """Wait, and give the result with all that was printed."""
        out, error = self.process.communicate(timeout=60)
        text = self.message.read_text()
        result = json.loads(text) if text else {}
        return result, out + error


@pytest.fixture
def program(tmp_path, cache):
    started = []

    def program(source, family="CosyVoice3", *, pod="pod-a", mounted=None, **environment):
        request = {"family": family, "source": source, "mounted": mounted}
        started.append(Program(tmp_path, cache, request, pod, environment))
        return started[-1]

    yield program
    for one in started:
        one.process.kill()
        one.process.communicate()
