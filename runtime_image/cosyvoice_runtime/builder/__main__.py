"""Entry point: `python -m cosyvoice_runtime.builder COMMAND`."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cosyvoice_runtime import logs
from cosyvoice_runtime.builder import frame, manifest, request, result, work
from cosyvoice_runtime.builder.cache import EngineCache
from cosyvoice_runtime.builder.progress import Progress
from cosyvoice_runtime.builder.reasons import BuildError, Reason, from_exception
from cosyvoice_runtime.builder.result import Result
from cosyvoice_runtime.builder.surroundings import (
    DEFAULT_TERMINATION_MESSAGE,
    REQUEST,
    TERMINATION_MESSAGE,
    Surroundings,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status: 0, 1, or 143 when it was stopped."""
    options = _parser().parse_args(arguments)
    logs.configure("info")
    started = time.monotonic()
    termination_message = Path(os.environ.get(TERMINATION_MESSAGE) or DEFAULT_TERMINATION_MESSAGE)
    try:
        outcome: Result = options.run(options, Surroundings.read())
    except frame.Interrupted as interrupted:
        outcome = Result.failed(None, interrupted.error, 0.0, interrupted.status)
    except (BuildError, OSError) as error:
        outcome = Result.failed(None, from_exception(error, options.command), 0.0)
    result.report(replace(outcome, seconds=time.monotonic() - started), termination_message)
    return 0 if outcome.succeeded else outcome.status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cosyvoice_runtime.builder",
        description=f"Build inference engines. What to build is read from {REQUEST}; the last line of stdout is the result.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    build = commands.add_parser("build", help="build the engine of a key into the cache, or find it there")
    build.set_defaults(run=_build)
    for name in work.PARTS:
        one = commands.add_parser(name, help=f"only what {name} makes of it, into a directory and past the cache")
        one.add_argument("directory", type=Path, help="an empty directory, or one to be made")
        one.set_defaults(run=_convert)
    verify = commands.add_parser("verify", help="read every byte of an engine against its manifest")
    verify.add_argument("directory", type=Path)
    verify.set_defaults(run=_verify)
    remove = commands.add_parser("remove", help="remove engines from the cache")
    remove.add_argument("keys", nargs="+", metavar="KEY")
    remove.set_defaults(run=_remove)
    return parser


def _request() -> request.BuildRequest:
    text = os.environ.get(REQUEST)
    if not text:
        raise BuildError(Reason.INTERNAL, f"{REQUEST} is not set; it holds the JSON document that says what to build")
    return request.parse(text)


def _build(_: argparse.Namespace, surroundings: Surroundings) -> Result:
    wanted = _request()
    return frame.build(wanted, surroundings, lambda folder: work.command(folder, work.parts(wanted)))


def _convert(options: argparse.Namespace, surroundings: Surroundings) -> Result:
    wanted, folder = _request(), options.directory.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise BuildError(Reason.INTERNAL, f"{folder} is not empty; name another directory")
    with frame.interruptible(surroundings.timeout):
        outcome = frame.Worker(work.command(folder, [options.command]), wanted, Progress()).run()
    size = sum(path.stat().st_size for path in manifest.regular_files(folder))
    message = f"written to {folder}"
    return Result(wanted.key, None, message, size=size, versions=outcome.versions, accuracy=outcome.accuracy)


def _verify(options: argparse.Namespace, _: Surroundings) -> Result:
    found = manifest.verify(options.directory)
    message = f"{len(found.files)} files are as they were built"
    return Result(found.key, None, message, size=found.size, versions=found.document.get("versions", {}))


def _remove(options: argparse.Namespace, surroundings: Surroundings) -> Result:
    for key in options.keys:
        if not re.fullmatch(request.ENGINE_KEY, key):
            raise BuildError(Reason.INTERNAL, f"{key!r} is no engine key; one has 16 hexadecimal digits")
    cache = EngineCache(surroundings.cache, surroundings.pod_uid)
    removed = [key for key in options.keys if cache.remove(key)]
    absent = len(options.keys) - len(removed)
    message = f"removed {', '.join(removed) or 'nothing'}" + (f"; {absent} were not there" if absent else "")
    return Result(None, None, message)


if __name__ == "__main__":
    sys.exit(main())
