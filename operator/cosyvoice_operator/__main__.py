"""The command line: ``cosyvoice-operator run | crdgen | render | gpus``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cosyvoice_operator import __version__

if TYPE_CHECKING:
    from cosyvoice_operator.api.source import Family
    from cosyvoice_operator.settings import Settings


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
    gpus = commands.add_parser("gpus", help="print the GPU types of a cluster, or of a file, as the operator sees them")
    gpus.add_argument(
        "-f", "--filename", type=Path, metavar="FILE", help="Nodes, and ResourceSlices if any; left out: the cluster"
    )
    gpus.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")
    gpus.add_argument(
        "--family", type=_family, default="CosyVoice3", help="model family to serve (default: CosyVoice3)"
    )
    options = parser.parse_args(arguments)
    if options.command == "crdgen":
        return _crdgen(options.out, check=options.check)
    if options.command == "render":
        return _render(options.filename, options.nodes)
    if options.command == "gpus":
        return _gpus(options.filename, options.output, options.family)
    return _run()


# Each command imports what it needs: `render` in a pipeline must not wait for Kopf.


def _run() -> int:
    from cosyvoice_operator.app import run  # noqa: PLC0415
    from cosyvoice_operator.kube.login import LoginError  # noqa: PLC0415
    from cosyvoice_operator.telemetry.logs import configure_logging  # noqa: PLC0415

    try:
        # Half of a busy operator's time is TLS and callbacks, which this loop does in C.
        from uvloop import new_event_loop  # noqa: PLC0415
    except ImportError:
        from asyncio import new_event_loop  # noqa: PLC0415

    settings = _settings()
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


def _family(name: str) -> Family:
    from cosyvoice_operator.api.source import Family  # noqa: PLC0415

    try:
        return Family(name)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(Family)}") from None


def _gpus(file: Path | None, output: str, family: Family) -> int:
    from cosyvoice_operator.gpus import as_json, as_table, from_cluster, from_file  # noqa: PLC0415
    from cosyvoice_operator.kube.errors import ApiError  # noqa: PLC0415
    from cosyvoice_operator.kube.login import LoginError  # noqa: PLC0415
    from cosyvoice_operator.offline import OfflineError  # noqa: PLC0415

    settings = _settings()
    try:
        found = from_file(file, settings, family) if file else asyncio.run(from_cluster(settings, family))
    except (OfflineError, LoginError, ApiError) as error:
        print(f"cosyvoice-operator: {error}", file=sys.stderr)
        return 1
    print(as_json(found, family) if output == "json" else as_table(found, family))
    return 0


def _settings() -> Settings:
    """Read the settings; a variable that can't be read ends the command with its name."""
    from pydantic import ValidationError  # noqa: PLC0415
    from pydantic_settings import SettingsError  # noqa: PLC0415

    from cosyvoice_operator.settings import Settings  # noqa: PLC0415

    try:
        return Settings()
    except (ValidationError, SettingsError) as error:
        raise SystemExit(f"cosyvoice-operator: a COSYVOICE_OPERATOR_* variable can't be used: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
