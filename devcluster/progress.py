"""Says what is being done while it is done, because a cold build takes minutes and silence looks like a hang."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.markup import escape

LOG_EVERY_SECONDS = 15.0


class Progress(Protocol):
    """Where steps report to."""

    def step(self, title: str) -> AbstractContextManager[Callable[[str], None]]:
        """A context for one step; the value it gives takes details to show."""
        ...

    def note(self, text: str) -> None:
        """One line that stays."""
        ...


class SilentProgress:
    """For tests: no output at all."""

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """Report nothing."""
        del title
        yield lambda _detail: None

    def note(self, text: str) -> None:
        """Report nothing."""
        del text


class ConsoleProgress:
    """A spinner with elapsed seconds on a terminal, plain lines in a log."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._console = Console(file=stream or sys.stderr, highlight=False)
        self._spinning = False

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """Show a step with its elapsed seconds; a line with the total stays when it is done."""
        started = time.monotonic()
        detail = [""]
        ended = threading.Event()

        def line() -> str:
            shown = f": {detail[0]}" if detail[0] else ""
            return f"{title} ({time.monotonic() - started:.0f} s){shown}"

        def show_on_terminal() -> None:
            with self._console.status(escape(line())) as status:
                while not ended.wait(0.25):
                    status.update(escape(line()))

        def show_in_log() -> None:
            while not ended.wait(LOG_EVERY_SECONDS):
                self.note(line())

        # A terminal has room for one spinner; a step within a step reports like in a log.
        outermost = self._console.is_terminal and not self._spinning
        self._spinning = self._spinning or outermost
        shower = threading.Thread(target=show_on_terminal if outermost else show_in_log, daemon=True)
        shower.start()
        try:
            yield lambda text: detail.__setitem__(0, text)
        finally:
            ended.set()
            shower.join()
            self._spinning = self._spinning and not outermost
        seconds = time.monotonic() - started
        self._console.print(f"[green]✓[/] {escape(title)} [dim]{seconds:.1f} s[/]", soft_wrap=True)
