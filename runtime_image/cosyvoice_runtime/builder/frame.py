"""Around a build: one request in, one result out, whatever happens to the process that builds.

The libraries that build are native code: they crash, they are killed for their memory, and no signal handler runs while they
compute. So they run in a worker process of their own, and this one keeps the time, answers questions, and has the last word.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from cosyvoice_runtime.builder import reasons
from cosyvoice_runtime.builder.cache import EngineCache
from cosyvoice_runtime.builder.manifest import Manifest
from cosyvoice_runtime.builder.progress import Progress, Stage
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.request import BuildRequest
from cosyvoice_runtime.builder.result import Accuracy, Result
from cosyvoice_runtime.builder.surroundings import Surroundings
from cosyvoice_runtime.jobs import serve_progress

_TAIL_BYTES = 65536
_MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")
CHANNEL = "COSYVOICE_BUILD_CHANNEL"
"""Environment variable with the file descriptor on which a worker tells its progress and what came of it."""


STOPPED = 143
"""Exit status after SIGTERM. A Job tries again then, and doesn't after a failure of ours."""


class Interrupted(BaseException):
    """The time is over, or the pod is being deleted. Like KeyboardInterrupt, so that no `except Exception` swallows it."""

    def __init__(self, error: BuildError, status: int = 1) -> None:
        super().__init__(error.message)
        self.error = error
        self.status = status


@dataclass(frozen=True)
class Outcome:
    """What a worker produced, for the manifest and the result."""

    versions: dict[str, str]
    accuracy: tuple[Accuracy, ...] = ()
    driver: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """What the runtime needs to know to load the files: names of graphs, what the CPU must have."""


Command = Callable[[Path], Sequence[str]]
"""The command line of a worker that writes an engine's files to the given directory."""


def build(request: BuildRequest, surroundings: Surroundings, command: Command) -> Result:
    """Build one engine, or find that it is there.

    Never raises: everything that can go wrong is a result.
    """
    started = time.monotonic()
    progress = Progress()
    serve_progress(progress.document, surroundings.host, surroundings.port)
    cache = EngineCache(surroundings.cache, surroundings.pod_uid)
    try:
        with interruptible(surroundings.timeout):
            progress.enter(Stage("looking into the cache"))
            cache.prepare(time.time())
            reused = (found := cache.find(request.key)) is not None
            if found is None:
                found, reused = _build_anew(request, cache, command, progress)
    except Interrupted as interrupted:
        return Result.failed(request.key, interrupted.error, time.monotonic() - started, interrupted.status)
    except Exception as error:  # noqa: BLE001 - every failure has a reason of the closed list
        failure = reasons.from_exception(error, progress.document()["phase"])
        return Result.failed(request.key, failure, time.monotonic() - started)
    return _succeeded(found, time.monotonic() - started, reused=reused)


def _build_anew(
    request: BuildRequest, cache: EngineCache, command: Command, progress: Progress
) -> tuple[Manifest, bool]:
    begun = time.monotonic()
    with cache.writing(request.key) as folder:
        outcome = Worker(command(folder), request, progress).run()
        progress.enter(Stage("writing the engine to the cache"))
        document = {
            "version": 1,
            "key": request.key,
            "keyFields": request.key_fields,
            "request": request.model_dump(mode="json", by_alias=True, exclude={"version", "key", "key_fields"}),
            "versions": outcome.versions,
            "driver": outcome.driver,
            "builtAt": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - begun, 3),
            "accuracy": [one.document() for one in outcome.accuracy],
            "facts": outcome.facts,
        }
        return cache.complete(request.key, folder, document)


def _succeeded(found: Manifest, seconds: float, *, reused: bool) -> Result:
    document = found.document
    accuracy = tuple(Accuracy(one["graph"], one["cosine"], one["maxError"]) for one in document.get("accuracy", ()))
    message = "found in the cache" if reused else "built"
    return Result(found.key, None, message, seconds, found.size, reused, document.get("versions", {}), accuracy)


@contextlib.contextmanager
def interruptible(timeout: float | None) -> Iterator[None]:
    """Raise Interrupted in the main thread, once, when the time is over or SIGTERM comes; after the end neither disturbs."""

    def quiet() -> None:
        # Whoever is being told to stop must not be stopped again while it cleans up.
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in handlers:
            signal.signal(number, signal.SIG_IGN)

    def too_late(_: int, __: FrameType | None) -> None:
        quiet()
        raise Interrupted(
            BuildError(
                Reason.TIMEOUT, f"not done after {timeout:g} s; raise engines.timeout, or build on a faster node"
            )
        )

    def terminated(number: int, _: FrameType | None) -> None:
        quiet()
        raise Interrupted(
            BuildError(
                Reason.INTERNAL,
                f"stopped by {signal.Signals(number).name}: the pod was deleted or evicted, or the Job is past its deadline; "
                "the next attempt starts anew",
            ),
            STOPPED,
        )

    handlers: dict[int, Callable[[int, FrameType | None], None]] = {
        signal.SIGALRM: too_late,
        signal.SIGTERM: terminated,
        signal.SIGINT: terminated,
    }
    for number, handler in handlers.items():
        signal.signal(number, handler)
    if timeout is not None:
        # A timer of 0 would be none.
        signal.setitimer(signal.ITIMER_REAL, max(timeout, 1e-3))
    try:
        yield
    finally:
        quiet()


class Worker:
    """The process that builds: it is started, listened to, and ended with all that it started."""

    def __init__(self, command: Sequence[str], request: BuildRequest, progress: Progress) -> None:
        self._command = command
        self._request = request
        self._progress = progress
        self._tail = bytearray()
        self._outcome: Outcome | None = None
        self._failure: BuildError | None = None

    def run(self) -> Outcome:
        """Run it to its end.

        Raises:
            BuildError: What it said, or what its end and its last words mean.
        """
        killed_before = oom_kills()
        ours, theirs = os.pipe()
        with os.fdopen(ours, encoding="utf-8") as channel:
            try:
                process = subprocess.Popen(  # noqa: S603 - our own module
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(theirs,),
                    env=os.environ | {CHANNEL: str(theirs), "PYTHONUNBUFFERED": "1"},
                    start_new_session=True,
                )
            finally:
                os.close(theirs)
            try:
                logs = threading.Thread(target=self._copy_log, args=(process,), daemon=True)
                logs.start()
                self._listen(channel)
                code = process.wait()
            finally:
                end_group(process)
        logs.join(timeout=5)
        if self._outcome is not None and code == 0:
            return self._outcome
        raise self._failure or died(code, self._tail.decode("utf-8", "replace"), oom_kills() - killed_before)

    def _listen(self, channel: Iterator[str]) -> None:
        for line in channel:
            if not line.endswith("\n"):
                return  # it died while it wrote
            said = json.loads(line)
            if "stage" in said:
                self._progress.enter(Stage(**said["stage"]))
            elif "failure" in said:
                self._failure = BuildError(Reason(said["failure"]["reason"]), said["failure"]["message"])
            else:
                accuracy = tuple(Accuracy(**one) for one in said["outcome"].pop("accuracy"))
                self._outcome = Outcome(**said["outcome"], accuracy=accuracy)

    def _copy_log(self, process: subprocess.Popen[bytes]) -> None:
        """Hand the worker's output on, and keep its end: a native library's last words are all that is left of a crash."""
        assert process.stdout is not None
        while chunk := os.read(process.stdout.fileno(), 65536):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            self._tail += chunk
            del self._tail[:-_TAIL_BYTES]


def died(code: int, tail: str, oom_kills_meanwhile: int) -> BuildError:
    """What it means that a worker ended without saying anything.

    Args:
        code: Its exit status; negative for a signal.
        tail: The end of its output.
        oom_kills_meanwhile: Processes of this container that the kernel killed for memory since the worker's start.
    """
    if oom_kills_meanwhile > 0 or code == -signal.SIGKILL:
        sure = "was killed for its memory" if oom_kills_meanwhile > 0 else "was killed, most likely for its memory"
        return BuildError(Reason.OUT_OF_MEMORY, f"the process that builds {sure}; give the build a higher memory limit")
    how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
    known = reasons.recognise(tail)
    if known is not None:
        return BuildError(known.reason, f"{known.message} (the process that builds ended {how})")
    return BuildError(
        Reason.INTERNAL,
        f"the process that builds ended {how}; its last words: {reasons.one_line(tail[-2000:]) or 'none'}",
    )


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker and every process that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def oom_kills(events: Path = _MEMORY_EVENTS) -> int:
    """Processes of this container that the kernel has killed for memory so far; 0 where that is not told."""
    try:
        counts = dict(line.split() for line in events.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(counts.get("oom_kill", 0))


class Reporter:
    """The worker's side of the channel."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    @classmethod
    def from_environment(cls) -> Reporter:
        """The channel that the frame gave."""
        return cls(os.fdopen(int(os.environ[CHANNEL]), "w", buffering=1, encoding="utf-8").write)

    def stage(self, phase: str, done: int | None = None, total: int | None = None) -> None:
        """Tell what is being done now."""
        self._say({"stage": {"phase": phase, "done": done, "total": total}})

    def outcome(self, outcome: Outcome) -> None:
        """Tell that all files are written."""
        accuracy = [{"graph": one.graph, "cosine": one.cosine, "max_error": one.max_error} for one in outcome.accuracy]
        self._say(
            {
                "outcome": {
                    "versions": outcome.versions,
                    "driver": outcome.driver,
                    "facts": outcome.facts,
                    "accuracy": accuracy,
                }
            }
        )

    def failure(self, error: BuildError) -> None:
        """Tell why there is no engine."""
        self._say({"failure": {"reason": error.reason.value, "message": error.message}})

    def _say(self, document: dict[str, Any]) -> None:
        self._write(json.dumps(document) + "\n")
