"""The operator as a process of its own, as a cluster would run it: started, asked, stopped and killed by tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

STARTS_WITHIN = 120.0
PREFIX = "cosyvoice_operator_"


class OperatorProcess:
    """One replica. Its settings are those of a cluster, but for a free port, no probes of simulated pods, and a Lease of its own."""

    def __init__(self, kubeconfig: Path, folder: Path, *, name: str = "operator", **settings: Any) -> None:
        """Start the process.

        Args:
            kubeconfig: How it reaches the cluster.
            folder: Where its log goes.
            name: Name of the log, and its identity.
            settings: Settings by their Python names.
        """
        self.log = folder / f"{name}.log"
        chosen = {
            "kubeconfig": kubeconfig,
            "host": "127.0.0.1",
            "port": 0,
            "probes": False,
            "namespace": "default",
            "identity": name,
            "log_level": "DEBUG",
        } | settings
        environment = {key: value for key, value in os.environ.items() if not key.startswith("COSYVOICE_")}
        environment |= {f"COSYVOICE_OPERATOR_{key.upper()}": str(value) for key, value in chosen.items()}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cosyvoice_operator", "run"], env=environment, stdout=log, stderr=log
            )
        self._port: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def port(self) -> int:
        """Port of its HTTP server."""
        deadline = time.monotonic() + STARTS_WITHIN
        while self._port is None:
            started = next(self.lines("started"), None)
            if started:
                self._port = int(started["port"])
            elif self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the operator did not start: {self.log.read_text()[-3000:]}")
            else:
                time.sleep(0.05)
        return self._port

    def lines(self, message: str = "") -> Iterator[dict[str, Any]]:
        """Log lines, or those with a message that begins with ``message``."""
        for line in self.log.read_text().splitlines():
            if line.startswith("{"):
                decoded: dict[str, Any] = json.loads(line)
                if decoded["message"].startswith(message):
                    yield decoded

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of an HTTP GET; status 0 when there is no answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ready(self) -> bool:
        """Whether it says that it is ready."""
        return self.get("/readyz")[0] == 200

    def leading(self) -> bool:
        """Whether it holds the lease and has listed everything."""
        return self.metric("leading") == 1 and self.ready()

    def samples(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """All values of a metric, by their labels."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        full = name if name.startswith("process_") else PREFIX + name
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
            if sample.name == full
        }

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric over all samples that have these labels."""
        return sum(
            value
            for found, value in self.samples(name).items()
            if all(dict(found).get(key) == wanted for key, wanted in labels.items())
        )

    def requests(self, *, writes: bool = False, lease: bool = False) -> dict[tuple[str, str, str], int]:
        """Requests so far by verb, kind and code; those about the Lease only on demand."""
        found: Mapping[tuple[tuple[str, str], ...], float] = self.samples("api_request_duration_seconds_count")
        counted = {
            (dict(key)["verb"], dict(key)["kind"], dict(key)["code"]): int(value) for key, value in found.items()
        }
        return {
            key: value
            for key, value in counted.items()
            if (lease or key[1] != "Lease") and (not writes or key[0] not in {"get", "list"})
        }

    def writes(self) -> int:
        """Writes so far, those of the Lease left out."""
        return sum(self.requests(writes=True).values())

    def peak_memory(self) -> float:
        """Highest resident memory so far, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1000

    def cpu_seconds(self) -> float:
        """CPU time so far, in user and kernel mode."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, within: float = 25.0) -> int:
        """Ask it to stop, as the kubelet does, and give its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=within)

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
