"""The `onnxruntime` backend: worker processes of the gateway itself, each with its own session, kept alive and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from cosyvoice_runtime.backends import BackendFacts, Task
from cosyvoice_runtime.backends.wire import Kind, Parser, frame
from cosyvoice_runtime.errors import BackendLostError, BadAudioError, SynthesisError, TextRefusedError

_log = logging.getLogger(__name__)

# Sentences a worker holds: one it speaks and one that waits, so that it never idles for the time of a round trip.
DEPTH = 2
_FIRST_RESTART_DELAY = 0.05
_LONGEST_RESTART_DELAY = 30.0
_LAST_WORDS_SECONDS = 1.0
# Workers that end before any has ever loaded: by then the cause is in the image or its settings, and a restart of the
# container, which the kubelet counts and shows, is worth more than trying on in silence.
_HOPELESS_AFTER = 3
_KINDS: dict[str, type[SynthesisError]] = {error.kind: error for error in (BadAudioError, TextRefusedError)}


@dataclass(frozen=True)
class PoolOptions:
    """How many workers, and what each of them loads."""

    workers: int
    voice: str
    threads: int = 1
    warmup_requests: int = 3
    engine: Path | None = None
    """Where the graphs of an engine are; without one they come from the package."""


class WorkerLink(asyncio.Protocol):
    """One worker process: its socket, and the sentences it holds in the order it speaks them."""

    def __init__(self, owner: WorkerPool) -> None:
        self._owner = owner
        self._parser = Parser()
        self._tasks: OrderedDict[int, Task] = OrderedDict()
        self._numbers: dict[int, int] = {}
        self._transport: asyncio.Transport | None = None
        self._next_number = 0
        self._doomed = False
        self.process: asyncio.subprocess.Process | None = None
        self.facts: BackendFacts | None = None
        self.broken: str | None = None
        self.lost = asyncio.Event()

    @property
    def room(self) -> int:
        """Sentences it would take now."""
        if self.facts is None or self.lost.is_set() or self._doomed:
            return 0
        return DEPTH - len(self._tasks)

    @property
    def load(self) -> int:
        """Sentences it holds."""
        return len(self._tasks)

    def submit(self, task: Task) -> None:
        """Send it a sentence."""
        self._next_number = number = (self._next_number + 1) & 0xFFFF_FFFF
        self._tasks[number] = task
        self._numbers[id(task)] = number
        self._send(frame(Kind.SPEAK, number, task.text.encode("utf-8")))

    def cancel(self, task: Task) -> bool:
        """Tell it that a sentence is no longer wanted; False when it does not hold it."""
        number = self._numbers.get(id(task))
        if number is None:
            return False
        self._send(frame(Kind.CANCEL, number))
        return True

    def abandon(self, task: Task) -> bool:
        """Kill the process, since it has held this sentence for too long; False when it does not hold it."""
        number = self._numbers.get(id(task))
        if number is None:
            return False
        self._pop(number)
        self._doomed = True
        self.kill()
        return True

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()

    def close(self) -> None:
        """Close the socket, on which an idle worker exits by itself."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio's callback."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Asyncio's callback."""
        for kind, number, payload in self._parser.feed(data):
            self._received(kind, number, payload)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Asyncio's callback: the worker is gone; what it held is given back."""
        self.lost.set()
        held, self._tasks = list(self._tasks.values()), OrderedDict()
        self._numbers.clear()
        for position, task in enumerate(held):
            task.fail(BackendLostError("the worker process ended", suspicious=position == 0 and not self._doomed))
        self._owner.on_free()

    def _received(self, kind: int, number: int, payload: bytearray) -> None:
        if Kind.PCM <= kind <= Kind.FAILED:
            if number in self._tasks:
                self._spoken(kind, number, payload)
        elif kind == Kind.READY:
            facts = json.loads(payload)
            self.facts = BackendFacts(tuple(facts["providers"]), facts["load_seconds"], facts["warmup_seconds"])
            self._owner.worker_ready(self)
        elif kind == Kind.BROKEN:
            self.broken = payload.decode("utf-8", "replace")

    def _spoken(self, kind: int, number: int, payload: bytearray) -> None:
        if kind == Kind.PCM:
            self._tasks[number].deliver(payload)
            return
        task = self._pop(number)
        if kind == Kind.FAILED:
            reason = json.loads(payload)
            task.fail(_KINDS.get(reason["kind"], SynthesisError)(reason["message"]))
        else:
            if payload:
                task.deliver(payload)
            task.finish()
        self._owner.on_free()

    def _pop(self, number: int) -> Task:
        task = self._tasks.pop(number)
        del self._numbers[id(task)]
        return task

    def _send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


class WorkerPool:
    """The backend. Each worker has a keeper that starts it, waits for its end, and starts the next one."""

    def __init__(
        self,
        options: PoolOptions,
        on_load: Callable[[BackendFacts], None] = lambda _: None,
        on_hopeless: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Make a pool; :meth:`start` starts its workers.

        Args:
            options: How many workers, and what each of them loads.
            on_load: Told what each worker says after loading.
            on_hopeless: Told why, when no worker has ever loaded and several have ended trying.
        """
        self._options = options
        self._on_load = on_load
        self._on_hopeless = on_hopeless
        self._ever_loaded = False
        self._failed_starts = 0
        self._links: list[WorkerLink] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._facts: BackendFacts | None = None
        self._trouble: str | None = None
        self._closing = False
        self.restarts = 0
        self.on_free: Callable[[], None] = lambda: None

    @property
    def facts(self) -> BackendFacts | None:
        """Of the slowest worker, once all of the first generation have loaded."""
        return self._facts

    @property
    def engines(self) -> int:
        """One for each worker."""
        return self._options.workers

    @property
    def broken(self) -> str | None:
        """Never: workers that end are replaced here."""
        return None

    @property
    def trouble(self) -> str | None:
        """Why nothing can be spoken at the moment."""
        return (
            None
            if any(link.facts is not None for link in self._links)
            else (self._trouble or "the workers are loading")
        )

    @property
    def ready_workers(self) -> int:
        """Workers that can speak."""
        return sum(link.facts is not None for link in self._links)

    @property
    def process_ids(self) -> list[int]:
        """Of the workers that run, for tests and for the status."""
        return [link.process.pid for link in self._links if link.process is not None]

    async def start(self, on_free: Callable[[], None]) -> None:
        """Start the workers; they load at the same time."""
        self.on_free = on_free
        self._keepers = [
            asyncio.create_task(self._keep(), name=f"worker-{number}") for number in range(self._options.workers)
        ]

    def free_slots(self) -> int:
        """Sentences it would take now."""
        return sum(link.room for link in self._links)

    def submit(self, task: Task) -> None:
        """Give it to the worker that holds least."""
        min((link for link in self._links if link.room > 0), key=lambda link: link.load).submit(task)

    def cancel(self, task: Task) -> None:
        """The worker skips it, or stops before its next piece."""
        for link in self._links:
            if link.cancel(task):
                return

    def abandon(self, task: Task) -> None:
        """The worker that holds it is killed and replaced."""
        for link in self._links:
            if link.abandon(task):
                return

    async def close(self) -> None:
        """Close the sockets, then kill what has not ended within a second."""
        self._closing = True
        for link in self._links:
            link.close()
        if self._keepers:
            _, pending = await asyncio.wait(self._keepers, timeout=1.0)
            for link in self._links:
                link.kill()
            for keeper in pending:
                keeper.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    def worker_ready(self, link: WorkerLink) -> None:
        """A worker has loaded and warmed up."""
        assert link.facts is not None
        self._ever_loaded = True
        self._on_load(link.facts)
        loaded = [other.facts for other in self._links if other.facts is not None]
        if self._facts is None and len(loaded) == self._options.workers:
            self._facts = BackendFacts(
                loaded[0].providers,
                max(facts.load_seconds or 0.0 for facts in loaded),
                max(facts.warmup_seconds or 0.0 for facts in loaded),
            )
        self._trouble = None
        self.on_free()

    async def _keep(self) -> None:
        delay = _FIRST_RESTART_DELAY
        while not self._closing:
            link = WorkerLink(self)
            self._links.append(link)
            try:
                code = await self._run(link)
            except OSError as error:
                code, link.broken = -1, f"cannot start a worker process: {error}"
            finally:
                self._links.remove(link)
                link.kill()
            if self._closing:
                return
            self.restarts += 1
            self._trouble = link.broken or f"a worker process ended with code {code}"
            _log.error(
                "worker ended", extra={"data": {"code": code, "loaded": link.facts is not None, "reason": link.broken}}
            )
            self._failed_starts += 1
            if not self._ever_loaded and self._failed_starts >= _HOPELESS_AFTER:
                self._on_hopeless(self._trouble)
                return
            # A worker that served is replaced at once; one that cannot even load is tried again more and more slowly.
            delay = _FIRST_RESTART_DELAY if link.facts is not None else min(delay * 2, _LONGEST_RESTART_DELAY)
            await asyncio.sleep(delay)

    async def _run(self, link: WorkerLink) -> int:
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        options = self._options
        arguments = [str(theirs.fileno()), options.voice, str(options.threads), str(options.warmup_requests)]
        arguments += [] if options.engine is None else [str(options.engine)]
        try:
            link.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "cosyvoice_runtime.backends.worker",
                *arguments,
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                env=_worker_environment(),
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
        await link.lost.wait()
        if not self._closing:
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(link.process.wait(), _LAST_WORDS_SECONDS)
            # A worker whose socket is closed is of no use, even if the process still lives.
            link.kill()
        return await link.process.wait()


def _worker_environment() -> dict[str, str]:
    """The gateway's, with numerical libraries held to the one thread a worker has."""
    package_root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(part for part in (package_root, os.environ.get("PYTHONPATH", "")) if part)
    return os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path}
