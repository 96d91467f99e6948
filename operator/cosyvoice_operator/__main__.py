"""The command line: ``cosyvoice-operator run | crdgen | render``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from cosyvoice_operator import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    parser = argparse.ArgumentParser(
        prog="cosyvoice-operator", description="Kubernetes operator for CosyVoice text-to-speech."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "run", help="run the operator against a cluster; settings come from COSYVOICE_OPERATOR_* variables"
    )
    crdgen = commands.add_parser("crdgen", help="write the CRDs and what else is generated from the models")
    crdgen.add_argument(
        "--check", action="store_true", help="only tell whether the files are fresh; exit status 1 if not"
    )
    crdgen.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="root of the repository (default: here)"
    )
    render = commands.add_parser("render", help="print the children that a resource would get, without a cluster")
    render.add_argument(
        "-f", "--filename", type=Path, required=True, metavar="FILE", help="CosyVoiceDeployments, as YAML or JSON"
    )
    render.add_argument(
        "--nodes", type=Path, metavar="FILE", help="nodes of the cluster, e.g. from kubectl get nodes -o yaml"
    )
    options = parser.parse_args(arguments)
    if options.command == "crdgen":
        return _crdgen(options.out, check=options.check)
    if options.command == "render":
        return _render(options.filename, options.nodes)
    return _run()


# Each command imports what it needs: `render` in a pipeline must not wait for Kopf.


def _run() -> int:
    from cosyvoice_operator.app import run  # noqa: PLC0415
    from cosyvoice_operator.kube.login import LoginError  # noqa: PLC0415
    from cosyvoice_operator.settings import Settings  # noqa: PLC0415
    from cosyvoice_operator.telemetry.logs import configure_logging  # noqa: PLC0415

    try:
        # Half of a busy operator's time is TLS and callbacks, which this loop does in C.
        from uvloop import new_event_loop  # noqa: PLC0415
    except ImportError:
        from asyncio import new_event_loop  # noqa: PLC0415

    settings = Settings()
    configure_logging(settings.log_level, settings.log_style)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(run(settings))
    except LoginError as error:
        print(f"cosyvoice-operator: {error}", file=sys.stderr)
        return 2


def _crdgen(out: Path, *, check: bool) -> int:
    from cosyvoice_operator.crdgen import main as generate  # noqa: PLC0415

    return generate(out, check)


def _render(resources: Path, nodes: Path | None) -> int:
    from cosyvoice_operator.offline import OfflineError, render_files  # noqa: PLC0415

    try:
        print(render_files(resources, nodes), end="")
    except OfflineError as error:
        print(f"cosyvoice-operator: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
