"""Entry point: `python -m cosyvoice_runtime.fetch` fetches what COSYVOICE_FETCH_REQUEST names."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

from cosyvoice_runtime import logs
from cosyvoice_runtime.fetch import result
from cosyvoice_runtime.fetch.cache import ModelCache
from cosyvoice_runtime.fetch.errors import (
    AGAIN,
    FAILED,
    STOPPED,
    FetchError,
    Interrupted,
    Reason,
    disk_error,
    without_secrets,
)
from cosyvoice_runtime.fetch.fetching import Fetcher
from cosyvoice_runtime.fetch.progress import Progress
from cosyvoice_runtime.fetch.request import REQUEST, FetchRequest
from cosyvoice_runtime.fetch.result import Result

_log = logging.getLogger(__name__)


def main() -> int:
    """Fetch one model; gives the exit status: 0, or one of :mod:`errors`."""
    _parser().parse_args()
    logs.configure("info")
    for name in ("httpx2", "httpcore2", "urllib3", "botocore", "filelock"):
        # Their lines quote addresses, and the address of a redirect is signed.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    _trust()
    os.umask(0o022)
    started, status = time.monotonic(), FAILED
    try:
        with _interruptible(_timeout()):
            outcome = _run()
    except Interrupted as interrupted:
        outcome, status = Result.failed(interrupted.error), interrupted.status
    except FetchError as error:
        outcome, status = Result.failed(error), AGAIN if error.reason is Reason.NETWORK else FAILED
    except OSError as error:
        outcome = Result.failed(disk_error(error, Path(error.filename or "the cache")))
    except Exception as error:  # noqa: BLE001 - a result is owed, whatever happens
        _log.exception("the fetch failed in a way that nobody foresaw")
        outcome = Result.failed(FetchError(Reason.INTERNAL, f"{type(error).__name__}; the log has the place"))
    outcome = replace(outcome, seconds=time.monotonic() - started, message=without_secrets(outcome.message, os.environ))
    result.report(outcome, Path(os.environ.get("COSYVOICE_TERMINATION_MESSAGE") or "/dev/termination-log"))
    return 0 if outcome.succeeded else status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cosyvoice_runtime.fetch",
        description=f"Fetch a model into COSYVOICE_CACHE. Which one is read from {REQUEST}; the last line of stdout is the result.",
    )
    parser.add_argument("command", nargs="?", choices=["fetch"], help="what a Job says, and what is done without it")
    return parser


def _run() -> Result:
    request = FetchRequest.read(os.environ.get(REQUEST) or "{}")
    progress = Progress()
    host = os.environ.get("COSYVOICE_HOST") or "0.0.0.0"  # noqa: S104 - a pod's address is known only to the cluster
    progress.report(host, int(os.environ.get("COSYVOICE_PORT") or 8080))
    # Outside a pod, so that two people on one machine do not write to one directory.
    pod_uid = os.environ.get("COSYVOICE_POD_UID") or str(uuid.uuid4())
    cache = ModelCache(Path(os.environ.get("COSYVOICE_CACHE") or "/cache"), pod_uid, time.time)
    return Fetcher(cache, progress, os.environ, lambda: dt.datetime.now(dt.UTC)).fetch(request)


def _trust() -> None:
    """Let one variable name the authorities for every library: OpenSSL's own."""
    bundle = os.environ.get("SSL_CERT_FILE")
    for name in ("REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE"):
        if bundle and not os.environ.get(name):
            os.environ[name] = bundle


def _timeout() -> float | None:
    text = os.environ.get("COSYVOICE_TIMEOUT")
    return float(text) if text else None


@contextlib.contextmanager
def _interruptible(timeout: float | None) -> Iterator[None]:
    """End the block when the time is over or the pod is being deleted. As process 1 of a container nothing else would end it."""

    def over(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted(
            FetchError(
                Reason.TIMEOUT,
                f"not done after {timeout:g} s; what has come is kept, and the next try goes on there. Raise engines.timeout if "
                "the connection is slow",
            ),
            AGAIN,
        )

    def deleted(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted(
            FetchError(Reason.INTERNAL, "the pod was stopped; what has come is kept, and the next try goes on there"),
            STOPPED,
        )

    signal.signal(signal.SIGALRM, over)
    signal.signal(signal.SIGTERM, deleted)
    if timeout is not None:
        signal.setitimer(signal.ITIMER_REAL, max(timeout, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    # Threads that read from a server that hangs are not waited for.
    code = main()
    sys.stdout.flush()
    os._exit(code)
