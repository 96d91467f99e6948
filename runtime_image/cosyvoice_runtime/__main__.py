"""Entry point of every image: without arguments the gateway; with a command, one of the programs that Jobs run.

`fetch` gets a model into the cache; for `build`, `verify` and `remove` see `python -m cosyvoice_runtime.builder --help`.
"""

from __future__ import annotations

import sys

from pydantic import ValidationError

from cosyvoice_runtime import logs
from cosyvoice_runtime.settings import Settings


def main() -> None:
    """Run what the arguments name; without any, the gateway."""
    arguments = sys.argv[1:]
    # Each program imports what it needs: the gateway's image has no hub libraries, and a fetch needs no ONNX Runtime.
    if arguments[:1] == ["fetch"]:
        from cosyvoice_runtime.fetch.__main__ import main as fetch  # noqa: PLC0415

        sys.exit(fetch())
    if arguments:
        from cosyvoice_runtime.builder.__main__ import main as build  # noqa: PLC0415

        sys.exit(build(arguments))
    _serve()


def _serve() -> None:
    """Run the gateway with the settings of the environment."""
    try:
        settings = Settings()
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            name = "COSYVOICE_" + "_".join(str(part) for part in problem["loc"]).upper()
            print(f"{name}: {problem['msg']}", file=sys.stderr)
        sys.exit(2)
    logs.configure(settings.log_level)
    from cosyvoice_runtime import server  # noqa: PLC0415 - a wrong setting should be told before anything is loaded

    sys.exit(server.run(settings))


if __name__ == "__main__":
    main()
